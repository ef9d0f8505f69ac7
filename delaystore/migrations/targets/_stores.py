"""Targets that are stores, with receipts of batches where the store is a SQL database."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby
from typing import Any, Final

from sqlalchemy import URL, Column, Connection, Integer, Table, select, update
from sqlalchemy.exc import IntegrityError
from typing_extensions import override

from delaystore.errors import (
    DuplicateMessageError,
    InvalidMessageError,
    MessageBeingDispatchedError,
    MessageBeingStoredError,
    StoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
)
from delaystore.message import DelayedMessage, are_same_time
from delaystore.migrations.abc import (
    Checksum,
    Identity,
    MigrationBatch,
    MigrationRun,
    MigrationTarget,
    Problem,
    checksum,
    clock_problems,
)
from delaystore.settings import TransactionMode
from delaystore.stores.abc import ManagedDelayedMessageStore
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.codec import INNODB, Json
from delaystore.stores.sql.dialects import StoreDialect, store_dialect_of
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.faults import Fault, quoted_table
from delaystore.stores.sql.schema import delayed_table
from delaystore.stores.sql.setup import HEAD, current_version
from delaystore.stores.sql.urls import default_table_name, derived_name, hosts_label, sqlite_file
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind

_EVERY_MESSAGE = (StorePermissionError, StoreSetupError)
"""Errors that any message would meet, and that do not pass by themselves."""


class StoreTarget(MigrationTarget):
    """`store`, initialized for `endpoint` here: messages wait there as they did before.

    It keeps no receipts. A message that already waits there, unchanged, counts as moved; one that was cancelled,
    changed or dispatched between a kill and the resume is not known again.
    """

    def __init__(self, store: ManagedDelayedMessageStore, endpoint: str, label: str) -> None:
        store.initialize(endpoint, TransactionMode.NONE)
        self._store = store
        self._label = label

    @property
    @override
    def label(self) -> str:
        return self._label

    @override
    def check(self, destinations: Mapping[str, int]) -> Sequence[Problem]:
        try:
            return [
                *self.infrastructure_problems(),
                *clock_problems("the target's clock", self._store.now(), datetime.now(UTC)),
            ]
        except StoreError as error:
            return [Problem(self.label, str(error))]

    @override
    def set_up(self, destinations: Mapping[str, int]) -> None:
        self._store.setup_infrastructure()
        self._store.clean_up()

    @override
    def send(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        return store_each(self._store, messages)

    @override
    def refusals(self, messages: Sequence[DelayedMessage]) -> Sequence[str | None]:
        """Where another message with its id waits there already."""
        if self.infrastructure_problems():  # nothing waits where there is no table yet
            return [None] * len(messages)
        there = {message_id for message_id, _, _ in self.waiting([message.message_id for message in messages])}
        return [self._refusal(message) if message.message_id in there else None for message in messages]

    @override
    def checksum(self, moved: Iterator[Sequence[Identity]]) -> Checksum | None:
        return sum((checksum(self._without_marks(page)) for page in moved), Checksum())

    @override
    def close(self) -> None:
        self._store.close()

    def infrastructure_problems(self) -> Sequence[Problem]:
        """Defects of its tables. Raises StoreError."""
        return []

    def waiting(self, ids: Sequence[str]) -> Iterator[Identity]:
        """(message_id, destination, due_time) of those of `ids` that wait."""
        found = filter(None, map(self._store.get, ids))
        return ((message.message_id, message.destination, message.due_time) for message in found)

    def _without_marks(self, moved: Sequence[Identity]) -> Iterator[Identity]:
        """Those of `moved` that wait."""
        times = {message_id: due_time for message_id, _, due_time in moved}
        for message_id, destination, due_time in self.waiting(list(times)):
            is_same = are_same_time(due_time, times[message_id])
            yield message_id, destination, times[message_id] if is_same else due_time

    def _refusal(self, message: DelayedMessage) -> str | None:
        there = self._store.get(message.message_id)
        return None if there is None or _is_same(there, message) else _taken(message)


def store_each(store: ManagedDelayedMessageStore, messages: Sequence[DelayedMessage]) -> list[Outcome]:
    """Store all at once; one by one where that fails. An outcome for each; see `MigrationTarget.send`."""
    if not store.keeps_not_after and any(message.not_after is not None for message in messages):
        return [_store_one(store, message) for message in messages]
    try:
        store.store_many(messages)
    except (MessageBeingStoredError, MessageBeingDispatchedError):
        return [_store_one(store, message) for message in messages]
    except StoreUnavailableError as error:
        return [Outcome(OutcomeKind.UNCONFIRMED, str(error))] * len(messages)
    except _EVERY_MESSAGE:
        raise
    except (StoreError, InvalidMessageError):
        return [_store_one(store, message) for message in messages]
    return [DELIVERED] * len(messages)


def _store_one(store: ManagedDelayedMessageStore, message: DelayedMessage) -> Outcome:
    if message.not_after is not None and not store.keeps_not_after:
        return Outcome(OutcomeKind.REFUSED, "it has a latest delivery, which the target would not keep")
    try:
        store.store_many([message])  # unlike `store`, it leaves the transaction of a bound store as it was if it fails
    except DuplicateMessageError:
        return _compared(store, message)
    except StoreUnavailableError as error:
        return Outcome(OutcomeKind.UNCONFIRMED, str(error))
    except _EVERY_MESSAGE:
        raise
    except (StoreError, InvalidMessageError) as error:
        return Outcome(OutcomeKind.REFUSED, str(error))
    return DELIVERED


def _compared(store: ManagedDelayedMessageStore, message: DelayedMessage) -> Outcome:
    """The outcome for a message whose id already waits at the target."""
    there = store.get(message.message_id)
    if there is None:  # it was dispatched this very moment
        return _store_one(store, message)
    if _is_same(there, message):
        return DELIVERED
    return Outcome(OutcomeKind.REFUSED, _taken(message))


def _taken(message: DelayedMessage) -> str:
    return f"another message with the id {message.message_id!r} waits at the target"


def _is_same(there: DelayedMessage, message: DelayedMessage) -> bool:
    """Whether a receiver would see the same, at the same time; the failure count is left out."""
    return _content(there) == _content(message) and are_same_time(there.due_time, message.due_time)


def _content(message: DelayedMessage) -> tuple[Any, ...]:
    return message.destination, message.body, dict(message.headers), dict(message.properties)


RECEIPTS: Final = "_received_"
"""After the name of the store's table, before digits of the run: the table of its receipts."""
_DIGITS: Final = 12


class Receipts:
    """The receipts of `run`, in a table of their own beside the store's `table`: a row for each batch.

    A run has its own table, so that a process that was believed dead finds none once the run is cleaned up.
    """

    def __init__(self, table: Table, run: MigrationRun, dialect: StoreDialect) -> None:
        name = derived_name(table.name, RECEIPTS + sha256(run.run_id.encode()).hexdigest()[:_DIGITS], dialect)
        self.table = quoted_table(
            name,
            table.schema,
            Column("batch", Integer, primary_key=True, autoincrement=False),
            Column("positions", Json, nullable=False),
            **INNODB,
        )
        self._dialect = dialect

    def locked(self, connection: Connection, batch: MigrationBatch) -> Set[int]:
        """The positions of the batch's rows that were stored; no other process stores any until the transaction ends.

        An empty receipt is inserted where there is none: that waits for the commit of a process that died meanwhile,
        which a search would not see.
        """
        self._insert_empty(connection, batch)
        columns = self.table.c
        found = select(columns.positions).where(columns.batch == batch.number).with_for_update()
        ranges = json.loads(connection.execute(found).scalar_one())
        return {position for first, last in ranges for position in range(first, last + 1)}

    def write(self, connection: Connection, batch: MigrationBatch, positions: Set[int]) -> None:
        """Note that the batch's rows at these positions, and no others, are stored; the receipt is locked."""
        change = update(self.table).where(self.table.c.batch == batch.number)
        connection.execute(change.values(positions=json.dumps(list(_ranges(positions)))))

    def _insert_empty(self, connection: Connection, batch: MigrationBatch) -> None:
        try:
            connection.execute(self._dialect.insert(self.table), {"batch": batch.number, "positions": "[]"})
        except IntegrityError as error:
            if self._dialect.fault(error) is not Fault.DUPLICATE:
                raise


def _ranges(positions: Iterable[int]) -> Iterable[tuple[int, int]]:
    """The first and the last of each row of successive numbers."""
    for _, group in groupby(enumerate(sorted(positions)), lambda entry: entry[1] - entry[0]):
        numbers = [number for _, number in group]
        yield numbers[0], numbers[-1]


class SqlStoreTarget(StoreTarget):
    """The table of `endpoint` in a database: each message is stored there once, with any later result."""

    def __init__(self, store: SqlDelayedMessageStore, endpoint: str) -> None:
        name = default_table_name(endpoint)
        super().__init__(store, endpoint, f"{name} in {_database_label(store.engine.url)}")
        self._sql_store = store
        self._engine = store.engine
        self._dialect = store_dialect_of(store.engine)
        self._table = delayed_table(name, None, self._dialect)

    @override
    def infrastructure_problems(self) -> Sequence[Problem]:
        """Missing tables are a warning: they are created, and older ones upgraded, when the run begins."""
        new = [Problem(self.label, "does not exist, and will be created", fatal=False)]
        file = sqlite_file(self._engine.url)
        if file is not None and not file.exists():  # connecting would create it
            return new
        with translated_errors(), self._engine.connect() as connection:
            version = current_version(connection, self._table)
        if version is None:
            return new
        if version > HEAD:
            return [Problem(self.label, f"has schema version {version}, which this release does not know; upgrade it")]
        with translated_errors(), self._engine.connect() as connection:
            if self._dialect.may_create(connection, self._sql_store.table.schema):
                return []
        text = "no table may be created beside it, and a run keeps its receipts in one; grant the right for the run"
        return [Problem(self.label, text)]

    @override
    def begin(self, run: MigrationRun) -> None:
        with self._sql_store.transaction() as bound:
            self._receipts(run).table.create(bound.connection, checkfirst=True)

    @override
    def received(self, run: MigrationRun, batch: MigrationBatch) -> Set[int] | None:
        receipts = self._receipts(run)
        with self._sql_store.transaction() as bound:
            if not self._dialect.has_table(bound.connection, receipts.table):  # another release began the run
                return None
            self._dialect.begin_writing(bound.connection)
            return receipts.locked(bound.connection, batch)

    @override
    def send_part(
        self, run: MigrationRun, batch: MigrationBatch, part: Mapping[int, DelayedMessage], now: datetime
    ) -> Sequence[Outcome]:
        """All in one transaction, with the receipt."""
        try:
            outcomes = self._store_new(run, batch, part)
        except StoreUnavailableError as error:
            return [Outcome(OutcomeKind.UNCONFIRMED, str(error))] * len(part)
        return [outcomes[position] for position in part]

    @override
    def end(self, run: MigrationRun) -> None:
        with self._sql_store.transaction() as bound:
            self._receipts(run).table.drop(bound.connection, checkfirst=True)

    @override
    def waiting(self, ids: Sequence[str]) -> Iterator[Identity]:
        columns = self._table.c
        statement = select(columns.message_id, columns.destination, columns.due_time)
        with translated_errors(), self._engine.connect() as connection:
            rows = connection.execute(statement.where(columns.message_id.in_(ids))).all()
        return ((row.message_id, row.destination, row.due_time) for row in rows)

    def _store_new(
        self, run: MigrationRun, batch: MigrationBatch, part: Mapping[int, DelayedMessage]
    ) -> Mapping[int, Outcome]:
        """Store messages without a receipt. An outcome, not UNCONFIRMED, by position; StoreUnavailableError: none."""
        receipts = self._receipts(run)
        with self._sql_store.transaction() as bound:
            self._dialect.begin_writing(bound.connection)
            before = receipts.locked(bound.connection, batch)
            new = {position: message for position, message in part.items() if position not in before}
            outcomes = dict(zip(new, store_each(bound, list(new.values())), strict=True))
            for outcome in outcomes.values():
                if outcome.kind is OutcomeKind.UNCONFIRMED:
                    raise StoreUnavailableError(outcome.reason)
            stored = {position for position, outcome in outcomes.items() if outcome.kind is OutcomeKind.DELIVERED}
            receipts.write(bound.connection, batch, before | stored)
        return dict.fromkeys(part, DELIVERED) | outcomes

    def _receipts(self, run: MigrationRun) -> Receipts:
        return Receipts(self._sql_store.table, run, self._dialect)


def _database_label(url: URL) -> str:
    """The database, without user, password and options."""
    if sqlite_file(url) is not None:
        return f"sqlite {os.path.realpath(url.database or '')}"
    return f"{url.get_backend_name()} {hosts_label(url)}/{url.database or ''}"
