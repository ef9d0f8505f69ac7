"""A SQL store as a target: it keeps receipts, its tables can be checked, and many rows read at a time."""

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime

from sqlalchemy import URL, select
from typing_extensions import override

from delaystore.errors import StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.migrations._checksum import Identity
from delaystore.migrations.abc import Batch, Problem, Run
from delaystore.migrations.targets._receipts import Receipts
from delaystore.migrations.targets._store import StoreTarget, store_each
from delaystore.sql.dialects import store_dialect_of
from delaystore.sql.errors import translated_errors
from delaystore.sql.names import default_table_name
from delaystore.sql.urls import hosts_label, sqlite_file
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.schema import delayed_table
from delaystore.stores.sql.setup import HEAD, current_version
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind


class SqlStoreTarget(StoreTarget):
    """The table of `endpoint` in a database: each message is stored there once, whatever becomes of it afterwards."""

    def __init__(self, store: SqlDelayedMessageStore, endpoint: str) -> None:
        name = default_table_name(endpoint)
        super().__init__(store, endpoint, f"{name} in {_database_label(store.engine.url)}")
        self._sql_store = store
        self._engine = store.engine
        self._dialect = store_dialect_of(store.engine)
        self._table = delayed_table(name, None, leases=False)

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
    def begin(self, run: Run) -> None:
        with self._sql_store.transaction() as bound:
            self._receipts(run).create(bound.connection)

    @override
    def received(self, run: Run, batch: Batch) -> Set[int] | None:
        receipts = self._receipts(run)
        with self._sql_store.transaction() as bound:
            if not receipts.exist(bound.connection):  # another release began the run
                return None
            self._dialect.begin_writing(bound.connection)
            return receipts.locked(bound.connection, batch)

    @override
    def send_part(self, run: Run, batch: Batch, part: Mapping[int, DelayedMessage], now: datetime) -> Sequence[Outcome]:
        """All in one transaction, with the receipt."""
        try:
            outcomes = self._store_new(run, batch, part)
        except StoreUnavailableError as error:
            return [Outcome(OutcomeKind.UNSETTLED, str(error))] * len(part)
        return [outcomes[position] for position in part]

    @override
    def end(self, run: Run) -> None:
        with self._sql_store.transaction() as bound:
            self._receipts(run).drop(bound.connection)

    @override
    def waiting(self, ids: Sequence[str]) -> Iterator[Identity]:
        columns = self._table.c
        statement = select(columns.message_id, columns.destination, columns.due_time)
        with translated_errors(), self._engine.connect() as connection:
            rows = connection.execute(statement.where(columns.message_id.in_(ids))).all()
        return ((row.message_id, row.destination, row.due_time) for row in rows)

    def _store_new(self, run: Run, batch: Batch, part: Mapping[int, DelayedMessage]) -> Mapping[int, Outcome]:
        """Store what there is no receipt of. An outcome, not UNSETTLED, by position; StoreUnavailableError: none."""
        receipts = self._receipts(run)
        with self._sql_store.transaction() as bound:
            self._dialect.begin_writing(bound.connection)
            before = receipts.locked(bound.connection, batch)
            new = {position: message for position, message in part.items() if position not in before}
            outcomes = dict(zip(new, store_each(bound, list(new.values())), strict=True))
            for outcome in outcomes.values():
                if outcome.kind is OutcomeKind.UNSETTLED:
                    raise StoreUnavailableError(outcome.reason)
            stored = {position for position, outcome in outcomes.items() if outcome.kind is OutcomeKind.DELIVERED}
            receipts.write(bound.connection, batch, before | stored)
        return dict.fromkeys(part, DELIVERED) | outcomes

    def _receipts(self, run: Run) -> Receipts:
        return Receipts(self._sql_store.table, run, self._dialect)


def _database_label(url: URL) -> str:
    """The database, without user, password and options."""
    if sqlite_file(url) is not None:
        return f"sqlite {os.path.realpath(url.database or '')}"
    return f"{url.get_backend_name()} {hosts_label(url)}/{url.database or ''}"
