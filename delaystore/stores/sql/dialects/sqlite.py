"""SQLite: leases in place of row locks, and connections that survive forks."""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Executable,
    Insert,
    Integer,
    Select,
    Table,
    Text,
    TypeDecorator,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal,
    literal_column,
    null,
    select,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from tenacity import retry, retry_if_exception_message, stop_after_delay, wait_random
from typing_extensions import override

from delaystore.errors import StorePermissionError, StoreUnavailableError
from delaystore.message import LATEST_DUE_TIME
from delaystore.processes import hold_off, let_go, pause
from delaystore.stores.sql._history import EntryInserts, NewEntries
from delaystore.stores.sql.codec import DIGEST, MESSAGE_KEY, JsonList, UtcDateTime
from delaystore.stores.sql.dialects.base import (
    Claiming,
    KeyUpserts,
    Release,
    RowChanges,
    StatementChange,
    StoreDialect,
    floored,
    row_with,
)
from delaystore.stores.sql.drivers import Driver
from delaystore.stores.sql.faults import Fault, TableSize

ResultT = TypeVar("ResultT")


class ForkSafeConnection(sqlite3.Connection):
    """For `sqlite3.connect(factory=...)`: forks wait for the end of a statement, or of the transaction it is in."""

    @override
    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or _ForkSafeCursor)

    @override
    def commit(self) -> None:
        self.without_forks(super().commit)

    @override
    def rollback(self) -> None:
        self.without_forks(super().rollback)

    @override
    def close(self) -> None:
        """Undo the open transaction; SQLite can only when no cursor is left, and a cancelled task may still hold
        one.
        """
        try:
            if self._in_transaction():
                super().rollback()
        finally:
            try:
                super().close()
            finally:
                let_go(self)

    def _in_transaction(self) -> bool:
        try:
            return self.in_transaction
        except sqlite3.ProgrammingError:  # it is closed already
            return False

    def without_forks(self, work: Callable[..., ResultT], *arguments: Any) -> ResultT:
        """The result of `work`; forks wait for its end, and for the end of the transaction it leaves open."""
        hold_off(self)
        try:
            return work(*arguments)
        finally:
            if not self.in_transaction:
                let_go(self)


class _ForkSafeCursor(sqlite3.Cursor):
    connection: ForkSafeConnection

    @override
    def execute(self, *arguments: Any) -> "_ForkSafeCursor":
        self.connection.without_forks(super().execute, *arguments)
        return self

    @override
    def executemany(self, *arguments: Any) -> "_ForkSafeCursor":
        self.connection.without_forks(super().executemany, *arguments)
        return self


BUSY_TIMEOUT: Final = 30
"""Seconds that one writer waits for another."""
_AHEAD: Final = 10**18
"""Microseconds: more than between any two times, in whole seconds."""
_HASHES: Final = "delaystore_hashes"
"""The key of a connection's `info` that says that it has the function for digests."""
_NO_LEASE: Final[Mapping[str, None]] = {"claimed_by": None, "claimed_until": None}
_FAULTS: Final[Mapping[str, Fault]] = {
    "no such table": Fault.MISSING,
    "no such column": Fault.MISSING,
    "has no column": Fault.MISSING,
    "ON CONFLICT clause does not match": Fault.MISSING,  # the unique index
    "unable to open database file": Fault.NO_FILE,
    "file is not a database": Fault.NO_FILE,
    "readonly database": Fault.PERMISSION,
    "not authorized": Fault.PERMISSION,
    "UNIQUE constraint failed": Fault.DUPLICATE,
    "is locked": Fault.LOCKED,
}
"""By a part of the error's text."""


class SqliteDialect(StoreDialect, KeyUpserts):
    """SQLite 3.35 or newer (RETURNING)."""

    connect_arguments: ClassVar[Mapping[str, Any]] = {"timeout": BUSY_TIMEOUT, "factory": ForkSafeConnection}
    max_identifier_bytes: ClassVar[int] = 255
    async_drivers: ClassVar[Sequence[str]] = ("aiosqlite",)
    is_file: ClassVar[bool] = True
    may_ignore_capitals: ClassVar[bool] = True
    reserved_prefix: ClassVar[str | None] = "sqlite_"
    claiming: ClassVar[Claiming] = Claiming.LEASES
    transaction_isolation: ClassVar[str | None] = None

    @override
    def prepare(self, connection: Any, driver: Driver, *, heed_pooler: bool) -> None:
        cursor = connection.cursor()
        _switch_to_wal(cursor)
        cursor.execute("PRAGMA synchronous=FULL")  # in WAL mode less would lose the last commits in a power cut
        cursor.close()
        driver.text_by(connection, text_of)  # one text that is no UTF-8 would make the whole search fail

    @override
    def fault(self, error: DBAPIError) -> Fault | None:
        if not isinstance(error.orig, sqlite3.Error):
            return None
        text = str(error.orig)
        return next((fault for part, fault in _FAULTS.items() if part in text), None)

    @override
    def clock(self) -> ColumnElement[datetime] | None:
        """SQLite runs in this process: the computer's clock is its clock, and has microseconds."""
        return None

    @override
    def bucket(self, column: ColumnElement[datetime], seconds: ColumnElement[int]) -> ColumnElement[int]:
        """Whole seconds since 1970; the fraction is cut off, which strftime would round."""
        epoch = cast(func.strftime("%s", func.substr(column, 1, 19)), Integer)
        return floored(epoch, seconds).op("/", precedence=9)(seconds)

    @override
    def microsecond(self, column: ColumnElement[datetime]) -> ColumnElement[int]:
        return cast(func.substr(column, 21, 6), Integer)

    @override
    def _microsecond_before(self, time: ColumnElement[datetime]) -> ColumnElement[datetime]:
        """Times are text, which has no arithmetic; another text stays as it is."""
        part = func.substr(time, 21, 6)
        same_second = func.substr(time, 1, 20).concat(func.printf("%06d", cast(part, Integer) - 1))
        second_before = func.strftime("%Y-%m-%d %H:%M:%S", func.substr(time, 1, 19), "-1 second").concat(".999999")
        before = case((part > "000000", same_second), else_=second_before)
        is_time = cast(time, Text).like("____-__-__ __:__:__.______")
        return case((is_time, func.coalesce(before, time)), else_=time)

    @override
    @contextmanager
    def setup_lock(self, connection: Connection, name: str) -> Iterator[None]:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield

    @override
    def take_lock(self, connection: Connection, name: str, owner: str) -> Release | None:
        """An flock of a file that names the owner; it is gone when no process has it."""
        path = _lock_file(connection, name)
        while True:
            handle = _opened(path)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            if _is_there(path, handle):
                break
            os.close(handle)  # its last owner has deleted it between our opening and our locking
        os.truncate(handle, 0)
        os.write(handle, owner.encode(errors="replace"))

        def release() -> None:
            path.unlink(missing_ok=True)
            os.close(handle)

        return release

    @override
    def lock_owner(self, connection: Connection, name: str) -> str | None:
        try:
            return _lock_file(connection, name).read_text(errors="replace") or None
        except OSError:
            return None

    @override
    def locked(self, statement: Select[Any], table: Table) -> Select[Any]:
        """There is but one writer."""
        return statement

    @override
    def claimed(self, statement: Select[Any], table: Table) -> Select[Any]:
        """Only rows without a lease, or with one that has expired at the parameter `now`."""
        return statement.where(_unclaimed(table))

    @override
    def among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        """One parameter: SQLite limits their number."""
        values = func.json_each(bindparam(name, type_=JsonList())).table_valued("value")
        return column.in_(select(values.c.value))

    @override
    def remove_many(self, table: Table) -> Executable:
        """Only rows that the parameter `token` has claimed."""
        return delete(table).where(self.among(table.c.message_id, "ids"), owned(table))

    @override
    def has_stored_id(self, table: Table) -> ColumnElement[bool]:
        """By type and bytes: a column of SQLite's holds text that is no UTF-8, and bytes, too."""
        key = table.c.message_id
        return func.typeof(key).concat(func.hex(key)) == bindparam("id", type_=_TypeAndBytes)

    @override
    def insert_entries(
        self,
        connection: Connection,
        where: Sequence[ColumnElement[bool]],
        values: Mapping[str, Any],
        entries: NewEntries,
    ) -> None:
        """SQLite has no digests: a function of this process makes them."""
        if _HASHES not in connection.info:
            wrapper: Any = connection.connection.dbapi_connection
            wrapper.create_function("delaystore_sha256", 1, _sha256)
            connection.info[_HASHES] = True
        super().insert_entries(connection, where, values, entries)

    @override
    def sha256(self, body: ColumnElement[bytes]) -> ColumnElement[bytes]:
        return func.delaystore_sha256(body, type_=DIGEST)

    @override
    def insert(self, table: Table) -> Insert:
        return sqlite.insert(table).on_conflict_do_nothing()

    @override
    def insert_keyed(
        self,
        table: Table,
        partitions: Table | None,
        names: Sequence[str],
        changes: RowChanges,
        lock_timeout: float,
        entries: EntryInserts | None = None,
    ) -> Executable:
        """Changes no row that is claimed at the parameter `now`, and ends a lease that has expired."""
        key, insert = table.c[MESSAGE_KEY], sqlite.insert(table)
        values, condition = changes(insert.excluded)
        free = _unclaimed(table) if condition is None else _unclaimed(table) & condition
        upsert = insert.on_conflict_do_update(
            index_elements=[key], index_where=key.is_not(None), set_={**values, **_NO_LEASE}, where=free
        )
        return upsert.returning(table.c.message_id, table.c.next_attempt)

    @override
    def later(self, time: ColumnElement[datetime], microseconds: ColumnElement[int]) -> ColumnElement[datetime]:
        """Times are text, which has no arithmetic; another text stays as it is.

        _AHEAD keeps the dividend positive: SQLite rounds a negative quotient up.
        """
        second = cast(func.strftime("%s", func.substr(time, 1, 19)), Integer) - _AHEAD // 1_000_000
        behind = cast(func.substr(time, 21, 6), Integer) + (microseconds + _AHEAD)
        whole = func.strftime("%Y-%m-%d %H:%M:%S", second + behind.op("/", precedence=9)(1_000_000), "unixepoch")
        return func.coalesce(whole.concat(func.printf(".%06d", behind % 1_000_000)), time, type_=UtcDateTime())

    @override
    def capped(
        self, at: ColumnElement[datetime], first: ColumnElement[datetime], microseconds: ColumnElement[int]
    ) -> ColumnElement[datetime]:
        return func.min(at, self.later(first, microseconds), type_=UtcDateTime())

    @override
    def moved(
        self, time: ColumnElement[datetime], since: ColumnElement[datetime], to: ColumnElement[datetime]
    ) -> ColumnElement[datetime]:
        moved = self.later(time, _epoch(to) - _epoch(since))
        return func.min(moved, literal(LATEST_DUE_TIME, UtcDateTime), type_=UtcDateTime())

    @override
    @contextmanager
    def savepoint(self, connection: Connection) -> Iterator[None]:
        """A savepoint inside a transaction: pysqlite begins none of its own for it, and its release would commit."""
        if not _in_transaction(connection):
            connection.exec_driver_sql("BEGIN")
        with connection.begin_nested():
            yield

    @override
    def last_part(self, text: ColumnElement[str], length: int) -> ColumnElement[str]:
        return func.substr(text, literal_column(str(-length)), type_=text.type)

    @override
    def change_unclaimed(
        self,
        connection: Connection,
        table: Table,
        change: StatementChange,
        values: dict[str, Any],
        now: datetime,
        returning: ColumnElement[Any] | None = None,
        entries: NewEntries | None = None,
    ) -> tuple[bool | None, Any]:
        """The lease is part of the statement's predicate."""
        if entries is not None:
            self.insert_entries(connection, [row_with(table), _unclaimed(table)], {**values, "now": now}, entries)
        changed = change.where(row_with(table), _unclaimed(table)).returning(null() if returning is None else returning)
        row = connection.execute(changed, values | {"now": now}).first()
        if row is not None:
            return True, row[0]
        there = select(table.c.message_id).where(row_with(table))
        return (None if connection.execute(there, {"id": values["id"]}).first() is None else False), None

    @override
    def change_unclaimed_of(
        self,
        connection: Connection,
        table: Table,
        change: StatementChange,
        ids: Sequence[str] | None,
        matches: Sequence[ColumnElement[bool]],
        values: Mapping[str, Any],
        now: datetime,
        returning: ColumnElement[Any] | None = None,
        entries: NewEntries | None = None,
    ) -> Mapping[str, Any]:
        """The lease is part of the statement's predicate."""
        key = table.c.message_id
        these = func.typeof(key) == "text" if ids is None else self.among(key, "ids")  # a column takes any type
        changed = change.where(these, *matches, _unclaimed(table))
        returned = changed.returning(key, null() if returning is None else returning)
        parameters = {**values, "now": now} | ({} if ids is None else {"ids": list(ids)})
        if entries is not None:
            self.insert_entries(connection, [these, *matches, _unclaimed(table)], parameters, entries)
        return {row[0]: row[1] for row in connection.execute(returned, parameters)}

    @override
    def initialize_dialect(self, engine: Engine, lent: Connection) -> None:
        """The library is the server of every connection; another connection may wait for the transaction of this.

        It would switch the file to WAL first.
        """
        engine.dialect.initialize(lent)

    @override
    def allows_setup_on_second_connection(self, connection: Connection) -> bool:
        """An open transaction is either the writer, which another would wait for, or sees nothing that is newer."""
        return not _in_transaction(connection)

    @override
    def index_condition(self, condition: ColumnElement[bool]) -> Mapping[str, Any]:
        return {"sqlite_where": condition}

    @override
    def identity(self, connection: Connection, table: Table) -> Sequence[Any]:
        """The file."""
        file = _file_of(connection) or os.devnull  # a database in memory belongs to this process alone
        try:
            found = os.stat(file)
        except FileNotFoundError:
            raise StoreUnavailableError(
                f"the database file {file!r} is not there any more; put it back, or connect again"
            ) from None
        return found.st_dev, found.st_ino

    @override
    def identity_of(self, url: URL) -> Sequence[Any] | None:
        try:
            found = os.stat(path_of(url))
        except OSError:  # it will be made
            return None
        return found.st_dev, found.st_ino

    @override
    def sizes(self, connection: Connection, table: Table) -> Sequence[TableSize]:
        """The whole file: SQLite does not keep the sizes of tables."""
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        size = pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        return [TableSize(name=_file_of(connection), data_bytes=size, index_bytes=None, rows=None, dead_rows=None)]

    @override
    def limit_lock_wait(self, connection: Connection, seconds: float) -> str | None:
        before = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {max(1, int(seconds * 1000))}")
        return f"PRAGMA busy_timeout = {int(before)}"

    @override
    def has_ended_transaction(self, error: DBAPIError, connection: Connection) -> bool:
        """Where the disk is full or fails, or memory runs out (sqlite.org/lang_transaction.html)."""
        return super().has_ended_transaction(error, connection) or not _in_transaction(connection)

    @override
    def begin_writing(self, connection: Connection) -> None:
        """Begin as a writer: a reader that becomes a writer fails if another has written meanwhile.

        The driver itself begins a transaction only at the first write; the release of an earlier savepoint would
        commit.
        """
        if not _in_transaction(connection):
            connection.exec_driver_sql("BEGIN IMMEDIATE")


class _TypeAndBytes(TypeDecorator[str | bytes]):
    """A value as its type in SQLite and its bytes, in hexadecimal digits."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: str | bytes | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        kind, raw = ("blob", value) if isinstance(value, bytes) else ("text", value.encode(errors="surrogateescape"))
        return kind + raw.hex().upper()


def _sha256(body: object) -> bytes | None:
    """None: a row that was written by hand may hold anything in place of a body."""
    return sha256(body).digest() if isinstance(body, bytes) else None


def text_of(raw: bytes) -> str:
    """A text of SQLite's, which need not be UTF-8."""
    return raw.decode(errors="surrogateescape")


def path_of(url: URL) -> Path:
    """The file of SQLite's that `url` names."""
    database = url.database or ""
    return Path(unquote(urlsplit(database).path) if database.startswith("file:") else database)


def owned(table: Table) -> ColumnElement[bool]:
    """Whether the parameter `token` has claimed a row.

    One that is not claimed is another message under a message_id that was used again, or one that was rescheduled.
    """
    return table.c.claimed_by == bindparam("token", type_=table.c.claimed_by.type)


def _unclaimed(table: Table) -> ColumnElement[bool]:
    """Whether a row has no lease at the parameter `now`."""
    return table.c.claimed_by.is_(None) | (table.c.claimed_until <= bindparam("now", type_=UtcDateTime))


def _epoch(time: ColumnElement[datetime]) -> ColumnElement[int]:
    """Microseconds since 1970. Times are text, which has no arithmetic."""
    seconds = cast(func.strftime("%s", func.substr(time, 1, 19)), Integer)
    return seconds * 1_000_000 + cast(func.substr(time, 21, 6), Integer)


def _in_transaction(connection: Connection) -> bool:
    """Whether SQLite itself is in a transaction, which SQLAlchemy may not know."""
    wrapper: Any = connection.connection.dbapi_connection  # on an event loop; the driver's own elsewhere
    return bool(getattr(wrapper, "driver_connection", wrapper).in_transaction)


def _file_of(connection: Connection) -> str:
    """The path of the database."""
    (path,) = [row[2] for row in connection.exec_driver_sql("PRAGMA database_list") if row[1] == "main"]
    return str(path)


def _lock_file(connection: Connection, name: str) -> Path:
    kind, _, key = name.partition(" ")
    return Path(f"{_file_of(connection)}.{quote(key, safe='')}.{kind}-lock")


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorePermissionError(
            f"the lock file {str(path)!r} cannot be written: {error.strerror}; allow writing beside the database"
        ) from None


def _is_there(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


@retry(
    retry=retry_if_exception_message(match=".*locked"),
    stop=stop_after_delay(BUSY_TIMEOUT),
    wait=wait_random(0.01, 0.1),
    sleep=pause,
    reraise=True,
)
def _switch_to_wal(cursor: DBAPICursor) -> None:
    """Switch to WAL; tried again while locked, as SQLite does not wait for another process that switches."""
    cursor.execute("PRAGMA journal_mode")
    if cursor.fetchone() != ("wal",):
        cursor.execute("PRAGMA journal_mode=WAL")
