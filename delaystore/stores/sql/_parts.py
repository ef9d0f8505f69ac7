"""Objects that the connections of one store share, its clock among them."""

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, Executable, Insert, false, insert, null, select
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.util import memoized_property
from typing_extensions import override

from delaystore.clock import Clock, ClockReading, ExtrapolatedClock
from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError, MessageBeingStoredError
from delaystore.message import DelayedMessage
from delaystore.stores.sql._claims import CandidateLocks, Claims, DueScan, Leases, RowLocks
from delaystore.stores.sql._keyed import Keyed, keyed_of
from delaystore.stores.sql._statements import Inserts, LeaseStatements, RowLockStatements, Statements
from delaystore.stores.sql.dialects import Claiming, StoreDialect
from delaystore.stores.sql.dialects.base import OWN
from delaystore.stores.sql.engine import Connections, connections_of
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.faults import Fault
from delaystore.stores.sql.rows import to_row
from delaystore.stores.sql.schema import OperatingTables
from delaystore.stores.sql.setup import HISTORIC, KnownVersion

log = logging.getLogger("delaystore.stores.sql")
FRESH_FOR: Final = 10.0
"""Seconds for which an answer is carried on."""
_READING: Final = "delaystore_clock"
"""The key in Connection.info, which lives as long as the driver's connection."""


class StoreClock(ABC):
    """The clock of one store, for all servers that its connections lead to."""

    @abstractmethod
    def now(self) -> datetime:
        """The present instant, asked on a connection of its own if need be: never call it while you have one."""

    def latest_now(self) -> datetime:
        """As `now`, but never behind; by default that is exact."""
        return self.now()

    @abstractmethod
    def now_on(self, connection: Connection) -> datetime:
        """The present instant, asked on `connection` if need be, in its transaction."""

    @abstractmethod
    def now_read(self, read: datetime | None) -> datetime:
        """The present instant, where a statement has also read the database's clock; `read` None: it has none."""


class DatabaseClock(StoreClock):
    """Never ahead of the clock of the server that is asked. SQLite's is this computer's clock.

    After a fail-over another server answers, whose clock may be behind. So an answer is carried on for the connection
    on which it came: messages that are fetched there are due by the clock of the very server that has them. The
    answer for calls without a connection is requested again after a connection was lost or made.
    """

    def __init__(self, engine: Engine, connections: Connections, dialect: StoreDialect) -> None:
        self._connections = connections
        self._clock = dialect.clock()
        self._question = None if self._clock is None else select(self._clock)
        self._shared = ExtrapolatedClock(self._read, FRESH_FOR)
        self._ahead = ExtrapolatedClock(self._read_again, FRESH_FOR, never_behind=True)
        if self._question is not None:
            connections_of(engine).clocks.update((self._shared, self._ahead))

    @override
    def now(self) -> datetime:
        return self._shared.now() if self._question is not None else datetime.now(UTC)

    @override
    def latest_now(self) -> datetime:
        return self._ahead.now() if self._question is not None else datetime.now(UTC)

    @override
    def now_on(self, connection: Connection) -> datetime:
        if self._question is None:
            return datetime.now(UTC)
        with translated_errors():
            # Kept with the connection: after a fail-over a pool may have connections to two servers with two clocks.
            reading: ClockReading | None = connection.info.get(_READING)
            if reading is None or reading.age > FRESH_FOR:
                reading = ClockReading.of(connection.execute(self._question).scalar_one())
                connection.info[_READING] = reading
                self._shared.note(reading)
        return reading.now()

    @override
    def now_read(self, read: datetime | None) -> datetime:
        return read or datetime.now(UTC)

    def _read(self) -> datetime:
        with translated_errors(), self._connections.connect() as connection:
            return self.now_on(connection)

    def _read_again(self) -> datetime:
        """Not carried on from an earlier answer, which may be behind."""
        assert self._question is not None
        with translated_errors(), self._connections.connect() as connection:
            instant: datetime = connection.execute(self._question).scalar_one()
        return instant


class SuppliedClock(StoreClock):
    """A test's own clock; the database's is not asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @override
    def now(self) -> datetime:
        return self._clock.now()

    @override
    def now_on(self, connection: Connection) -> datetime:
        return self._clock.now()

    @override
    def now_read(self, read: datetime | None) -> datetime:
        return self._clock.now()


ASKED_AGAIN: Final = 5.0
"""Seconds after which a store asks again whether a history is kept."""
HISTORY: Final = "history"
"""The name of its setting in the table of settings."""


@dataclass(frozen=True, slots=True)
class HistorySetting:
    """The row of the setting. `since` None: no entries are made any more; `kept`: those there are, are kept so long."""

    kept: timedelta
    since: datetime | None

    @classmethod
    def of(cls, value: str) -> "HistorySetting":
        """Read it; the inverse of `text`."""
        kept, since = json.loads(value)
        return cls(timedelta(seconds=kept), None if since is None else datetime.fromisoformat(since))

    def text(self) -> str:
        """As its row holds it."""
        return json.dumps([self.kept.total_seconds(), None if self.since is None else self.since.isoformat()])


class KnownHistory:
    """Whether a history is kept, as far as one store knows; asked again when that is ASKED_AGAIN seconds old.

    A role that may not read the setting makes no entries, and removes messages as before. A role that may read it, and
    may not insert entries, gets an error: it would leave gaps in a history that says of itself that it has none.
    """

    def __init__(self, tables: OperatingTables, dialect: StoreDialect, version: KnownVersion) -> None:
        self._tables, self._dialect, self._version = tables, dialect, version
        self._ask_from = 0.0
        self._is_kept = False
        self._may_insert = False
        self.is_refused = False
        """Whether this role may not read the setting."""

    @property
    def known(self) -> bool | None:
        """Whether a history is kept; None: that takes a question."""
        return self._is_kept if time.monotonic() < self._ask_from else None

    def is_kept(self, connection: Connection) -> bool:
        """Whether a history is kept. Asks in a transaction that is open on `connection`, if need be."""
        if self.known is None:
            known = self.read(connection) if self._version.is_from(HISTORIC, connection) else None
            # A caller's transaction may read older rows: it must not tell all others that no history is kept.
            if known is not None or OWN in connection.get_execution_options():
                self.note(known)
        return self._is_kept

    def takes_entries(self, connection: Connection) -> bool:
        """Whether a history is kept; the driver raises an error where this role may not insert entries.

        A dispatcher asks before it forwards messages, which it could not remove.
        """
        is_kept = self.is_kept(connection)
        if is_kept and not self._may_insert:
            with nullcontext() if self._dialect.is_file else self._dialect.savepoint(connection):
                connection.execute(self._insert_none)
            self._may_insert = True
        return is_kept

    @memoized_property
    def _insert_none(self) -> Insert:
        """An insert of no rows."""
        history = self._tables.history
        names = [column.name for column in history.columns if not (column.nullable or column.primary_key)]
        none = select(*[null().label(name) for name in names]).where(false())
        return insert(history).from_select(names, none, include_defaults=False)

    def note(self, setting: HistorySetting | None) -> None:
        """Take notice of the setting as it is now."""
        self._is_kept = setting is not None and setting.since is not None
        self._may_insert = self._dialect.is_file
        self._ask_from = time.monotonic() + ASKED_AGAIN

    def read(self, connection: Connection) -> HistorySetting | None:
        """The setting; None: there is none, or this role may not read it."""
        settings = self._tables.settings
        found = select(settings.c.value).where(settings.c.name == HISTORY)
        try:
            with nullcontext() if self._dialect.is_file else self._dialect.savepoint(connection):
                value: str | None = connection.execute(found).scalar()
        except DBAPIError as error:
            if self._dialect.fault(error) is not Fault.PERMISSION:
                raise
            if not self.is_refused:
                log.warning(
                    "messages that this role removes get no entries in the history, as it may not read %s; grant "
                    "SELECT on that table",
                    settings.fullname,
                )
            self.is_refused = True
            return None
        self.is_refused = False
        return None if value is None else HistorySetting.of(value)


@dataclass(frozen=True, slots=True)
class StoreParts:
    """Objects that the connections of one store share."""

    dialect: StoreDialect
    statements: Statements
    scan: DueScan
    clock: StoreClock
    channel: str
    lease: timedelta
    keyed: Keyed
    version: KnownVersion
    history: KnownHistory

    def claims(self, connection: Callable[[], Connection], *, committing: bool, token: str | None = None) -> Claims:
        """The claims on rows that `connection` returns; `token` names the claimer where claims outlive their
        transaction.
        """
        sql = self.statements
        if isinstance(sql, LeaseStatements):
            return Leases(
                connection,
                sql,
                self.version,
                token=token or Leases.new_token(),
                lease=self.lease,
                now=lambda: self.clock.now_on(connection()),
                committing=committing,
            )
        if isinstance(sql, RowLockStatements):
            return RowLocks(connection, sql, self.version, committing=committing)
        return CandidateLocks(connection, sql, self.version)

    def keyed_in(self, connection: Connection, message: DelayedMessage) -> Keyed:
        """Stores `message`, which has a key, in the table as it is. Raises StoreSetupError."""
        if message.not_after is not None:
            self.version.require_latest_deliveries(connection)
        return keyed_of(self.statements.as_of(self.version, connection), self.keyed.timeout)

    def _inserts_of(self, message: DelayedMessage, connection: Connection) -> Inserts:
        if message.not_after is None:
            return self.statements.inserts
        self.version.require_latest_deliveries(connection)
        return self.statements.inserts_with_not_after

    def insert(self, connection: Connection, message: DelayedMessage) -> None:
        """Insert a row.

        Raises DuplicateMessageError where its message_id is there, claimed or not, MessageBeingStoredError where it
        may be in a moment, and the driver's errors.
        """
        self._check(connection, message, self._inserts_of(message, connection).insert)

    def insert_alone(self, connection: Connection, message: DelayedMessage, wake: str | None) -> None:
        """`insert` in a transaction of one statement, which also wakes dispatchers with the payload `wake`."""
        inserts = self._inserts_of(message, connection)
        notifying = None if wake is None else inserts.insert_and_notify
        if notifying is None:
            self._check(connection, message, inserts.insert_alone)
        else:
            self._check(connection, message, notifying, wake)

    def insert_enlisted(self, connection: Connection, message: DelayedMessage, wake: str) -> None:
        """`insert` in a caller's transaction, whose commit wakes dispatchers where the database can."""
        notifying = self._inserts_of(message, connection).insert_enlisted
        if notifying is None:
            self.insert(connection, message)
        else:
            self._check(connection, message, notifying, wake)

    def _check(
        self, connection: Connection, message: DelayedMessage, statement: Executable, wake: str | None = None
    ) -> None:
        """Insert the row of `message`; raise the error that says why `statement` has not inserted it.

        `wake`: the payload with which the statement also wakes dispatchers; None: it wakes none.
        """
        there = {"id": message.message_id}
        for _ in range(2):  # the row that refuses the first may have gone by now
            try:
                if self._inserted(connection, statement, to_row(message), wake):
                    return
            except DBAPIError as error:
                if self.dialect.is_file or not self.dialect.is_message_id_locked(error):
                    raise
                if self.dialect.claiming is Claiming.CANDIDATE_LOCKS and self._is_there(connection, there):
                    raise MessageBeingDispatchedError([message.message_id]) from None  # the insert has waited for it
                raise MessageBeingStoredError(message.message_id) from None
            if self.dialect.bulk is None or self._is_there(connection, there):
                raise DuplicateMessageError([message.message_id])
        raise MessageBeingStoredError(message.message_id)

    def _is_there(self, connection: Connection, there: dict[str, str]) -> bool:
        return connection.execute(self.statements.waits, there).first() is not None

    def _inserted(
        self, connection: Connection, statement: Executable, row: dict[str, Any], wake: str | None = None
    ) -> bool:
        if wake is not None:
            values = {f"new_{name}": value for name, value in row.items()} | {"channel": self.channel, "payload": wake}
            return connection.execute(statement, values).scalar() is not None
        try:
            with self.dialect.inserting(connection):
                return connection.execute(statement, row).rowcount > 0
        except IntegrityError as error:
            if self.dialect.fault(error) is not Fault.DUPLICATE:
                raise
            return False
