"""The tables of loads, and a bulk load's demands on its database beyond every dialect's."""

import sys
from abc import abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from itertools import repeat
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Insert,
    Select,
    Table,
    cast,
    column,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from typing_extensions import override

from delaystore.bulk.options import OnDuplicate
from delaystore.errors import NAMED_DUPLICATES, DuplicateMessageError, LoadError, MessageBeingStoredError
from delaystore.message import MAX_KEY_BYTES
from delaystore.stores.sql.codec import (
    ATTEMPT,
    COLUMNS,
    FAILURES,
    FAILURES_OF,
    FIRST_SENT,
    INNODB,
    KEY,
    MESSAGE_KEY,
    NAMES,
    NOT_AFTER,
    ExactText,
    UtcDateTime,
    completed,
)
from delaystore.stores.sql.dialects import SqlDialect
from delaystore.stores.sql.dialects.base import StoreDialect, driver_errors
from delaystore.stores.sql.dialects.mysql import MySqlDialect
from delaystore.stores.sql.dialects.postgresql import PostgreSqlDialect
from delaystore.stores.sql.dialects.sqlite import SqliteDialect
from delaystore.stores.sql.faults import execute_as_it_stands, quoted_name, quoted_table
from delaystore.stores.sql.urls import load_table_name

# The table in which a run of a load is staged.


def staging_table(live: Table, token: str, dialect: SqlDialect, prefixes: Sequence[str] = ()) -> Table:
    """The columns of messages with their keys and latest deliveries, and `attempt`. Rows lie as they came.

    Where a server may refuse tables without a primary key, it is a number that the database gives.
    """
    number = [Column("number", BigInteger, primary_key=True, autoincrement=True)] if dialect.needs_primary_key else []
    return quoted_table(
        load_table_name(live.name, token, dialect),
        live.schema,
        *number,
        Column(ATTEMPT, BigInteger, nullable=False),
        *(Column(column.name, column.type, nullable=column.nullable) for column in COLUMNS),
        Column(MESSAGE_KEY, ExactText(MAX_KEY_BYTES)),
        Column(NOT_AFTER, UtcDateTime),
        prefixes=list(prefixes),
        **INNODB,
    )


# Arrow's memory as PostgreSQL's binary COPY, without a Python object for each value.

STAGING_COLUMNS: Final = (ATTEMPT, *NAMES, MESSAGE_KEY, NOT_AFTER)
"""The columns of the stream, in its order."""
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER: Final = b"\xff\xff"
_LENGTH_8: Final = b"\0\0\0\x08"
_LENGTH_4: Final = b"\0\0\0\x04"
_NULL_LENGTH: Final = -1
_NULL: Final = _NULL_LENGTH.to_bytes(4, signed=True)
_EPOCH: Final = (datetime(2000, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400_000_000
"""PostgreSQL counts microseconds from 2000, Arrow from 1970."""
_PIECE: Final = 2**17
"""Bytes given to the driver at once; it would cut larger pieces into such."""
_LARGE: Final = 2**30
"""Bytes from which offsets of 32 bits might not suffice."""


def copy_stream(rows: pa.RecordBatch, attempt: int) -> Iterator[memoryview]:
    """The whole stream for rows of the schema STAGED, in pieces."""
    yield memoryview(_SIGNATURE)
    if rows.num_rows:
        data = memoryview(_joined(rows, attempt))
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]
    yield memoryview(_TRAILER)


def _joined(rows: pa.RecordBatch, attempt: int) -> pa.Buffer:
    """All rows' bytes: the value buffer of an array whose values are the rows."""
    kind = pa.large_binary() if rows.nbytes > _LARGE else pa.binary()
    row_start = len(STAGING_COLUMNS).to_bytes(2) + _LENGTH_8 + attempt.to_bytes(8, signed=True)
    parts: list[Any] = [row_start]
    sent = {name: encoded(rows.column(name)) for name in rows.schema.names}
    for field in completed(sent, lambda number: [_LENGTH_4 + number.to_bytes(4)]):
        parts += field
    parts += (*sent[MESSAGE_KEY], *sent[NOT_AFTER])
    values = [pa.scalar(part, kind) if isinstance(part, bytes) else part.cast(kind) for part in parts]
    joined = pc.binary_join_element_wise(*values, pa.scalar(b"", kind))
    _, offsets, data = joined.buffers()
    width = 8 if kind == pa.large_binary() else 4
    last = offsets.slice(rows.num_rows * width, width)
    return data.slice(0, int.from_bytes(last.to_pybytes(), sys.byteorder))


def encoded(column: pa.Array) -> Sequence[Any]:
    """A column of times, numbers, texts or bytes: its lengths, and its values. A null has a length of its own."""
    if column.null_count == len(column):
        return _NULL, b""
    if pa.types.is_timestamp(column.type):
        times = _swapped(pc.subtract(column.cast(pa.int64()), _EPOCH), "q")
        if not column.null_count:
            return _LENGTH_8, times
        return pc.if_else(column.is_valid(), _LENGTH_8, _NULL), pc.if_else(
            column.is_valid(), times.cast(pa.binary()), b""
        )
    if pa.types.is_integer(column.type):
        return _LENGTH_4, _swapped(column, "i")
    lengths = pc.binary_length(column)
    values = column.cast(pa.binary())
    if column.null_count:
        lengths, values = lengths.fill_null(_NULL_LENGTH), values.fill_null(b"")
    return _swapped(lengths.cast(pa.int32()), "i"), values


def _swapped(numbers: pa.Array, code: str) -> pa.Array:
    """Numbers of 4 ("i") or 8 ("q") bytes as an array of their bytes, the most significant first."""
    values = array(code)
    width = values.itemsize
    raw = memoryview(numbers.buffers()[1])[numbers.offset * width : (numbers.offset + len(numbers)) * width]
    values.frombytes(raw)
    if sys.byteorder == "little":
        values.byteswap()
    return pa.Array.from_buffers(pa.binary(width), len(numbers), [None, pa.py_buffer(values)])


# What a bulk load asks of its database, beyond what every dialect offers.

DROP_LOCK_TIMEOUT: Final = 2.0
"""Seconds that a drop waits for an attempt that still writes."""
DUE_TIME: Final = "due_time"
_ESCAPED: Final = (b"\0", b"\\", b"\n", b"\r", b"\x1a", b'"', b"'")
"""Bytes that take two in a statement of MySQL's."""
_ROOM: Final = 2**17
"""Bytes of such a statement for all but the body; the server itself reports headers larger than this."""


class StagingDialect(StoreDialect):
    """A database that stages rows, and moves them into the table of waiting messages."""

    without_time_limit: ClassVar[Mapping[str, str]] = {}
    """Parameters of a URL's query that let the driver wait for a long statement."""
    prefixes: ClassVar[Sequence[str]] = ()
    """Words between CREATE and TABLE."""
    emptying: ClassVar[str] = "TRUNCATE TABLE"
    """Before a table's name: removes all rows."""
    keeps_connections: ClassVar[bool] = True
    """Whether a task's connection may serve the next task."""
    replaces_twice: ClassVar[bool] = True
    """Whether a replacing insert silently takes the last of several rows with one message_id."""

    def take_time(self, connection: Connection) -> None:
        """Let the statements of the transaction take as long as they need."""

    def ended_by_interrupt(self, connection: Connection) -> AbstractContextManager[None]:  # noqa: ARG002 - for overriders
        """A block in a transaction. If a KeyboardInterrupt ends it, the server's statement and its locks end, too."""
        return nullcontext()

    def create(self, connection: Connection, staging: Table) -> None:
        """Create the staging, tuned for being filled once and read once."""
        staging.create(connection)

    def drop(self, connection: Connection, name: str) -> None:
        """Drop a table, by its quoted name, if it is there; an error that is LOCKED if others use it for long."""
        with self.lock_wait(connection, DROP_LOCK_TIMEOUT):
            execute_as_it_stands(connection, f"DROP TABLE IF EXISTS {name}")

    def empty(self, connection: Connection, name: str) -> None:
        """Remove all rows; otherwise as `drop`."""
        with self.lock_wait(connection, DROP_LOCK_TIMEOUT):
            execute_as_it_stands(connection, f"{self.emptying} {name}")

    @abstractmethod
    def copy(self, connection: Connection, staging: Table, attempt: int, rows: pa.RecordBatch) -> None:
        """Insert rows of the schema STAGED, in their order, in the connection's transaction."""

    def promoting(self, live: Table, names: Sequence[str], staged: Select[Any], on_duplicate: OnDuplicate) -> Insert:
        """The insert of `staged`, whose columns are `names`, into the table in which messages wait."""
        if on_duplicate is OnDuplicate.ERROR:
            return insert(live).from_select(list(names), staged, include_defaults=False)
        changed = [name for name in names if name != KEY] if on_duplicate is OnDuplicate.REPLACE else []
        return self.merging(live, names, staged, changed)

    def except_in_partitions(
        self,
        connection: Connection,  # noqa: ARG002 - for overriders
        live: Table,  # noqa: ARG002
        partitions: Table | None,  # noqa: ARG002
        staged: Select[Any],
        on_duplicate: OnDuplicate,  # noqa: ARG002
    ) -> Select[Any]:
        """What of `staged` is to be inserted: the primary key does not know the messages in bulk partitions.

        A row that is replaced moves, with its due time, from its bulk partition to the table, where the insert replaces
        it; rows that are ignored are left out. Raises DuplicateMessageError, and MessageBeingStoredError for a row in a
        bulk partition that is not attached. Without bulk partitions: all of `staged`.
        """
        return staged

    def lock_waiting(self, connection: Connection, live: Table, ids: Select[Any]) -> int:
        """Lock the waiting messages of `ids`, if rows can be locked, and wait for dispatchers; returns their number."""
        locked = select(live.c.message_id).where(live.c.message_id.in_(ids)).with_for_update()
        count: int = connection.execute(select(func.count()).select_from(locked.subquery("locked"))).scalar_one()
        return count

    @abstractmethod
    def merging(self, live: Table, names: Sequence[str], staged: Select[Any], changed: Sequence[str]) -> Insert:
        """The insert that sets the columns `changed`, perhaps none, of rows whose message_id waits already."""

    def _values(self, live: Table, new: Any, changed: Sequence[str]) -> dict[str, Any]:
        """The columns `changed` of a row that is replaced; its dispatcher must not take it for the former one.

        Nothing else of the former message is left: the new one has no key, as `promoting` inserts none.
        """
        former = dict.fromkeys((MESSAGE_KEY, FIRST_SENT, FAILURES, FAILURES_OF))
        return {name: new[name] for name in changed} | former | {DUE_TIME: self.unlike(new[DUE_TIME], live.c[DUE_TIME])}

    def is_claimed(
        self,
        connection: Connection,  # noqa: ARG002 - for overriders
        live: Table,  # noqa: ARG002
        staged: Select[Any],  # noqa: ARG002
        now: datetime,  # noqa: ARG002
    ) -> bool:
        """Whether a dispatcher has a message of an id in `staged`; False where the insert waits for row locks."""
        return False


class MySqlStaging(StagingDialect, MySqlDialect):
    """MariaDB and MySQL: inserts of many rows each. DDL commits earlier statements."""

    without_time_limit: ClassVar[Mapping[str, str]] = {"read_timeout": "86400"}

    @override
    @contextmanager
    def ended_by_interrupt(self, connection: Connection) -> Iterator[None]:
        """PyMySQL only closes its connection, and a server does not notice that while a statement waits for a lock."""
        driver: Any = connection.connection.dbapi_connection
        session = int(driver.thread_id())
        try:
            yield
        except KeyboardInterrupt:
            with suppress(SQLAlchemyError), connection.engine.connect() as other:
                other.exec_driver_sql(f"KILL {session}")
            connection.invalidate()  # a rollback would fail, and hide the interrupt
            raise

    @override
    def copy(self, connection: Connection, staging: Table, attempt: int, rows: pa.RecordBatch) -> None:
        """PyMySQL joins rows to statements of up to a megabyte."""
        name = quoted_name(staging, connection.dialect).replace("%", "%%")
        values = ", ".join(["%s"] * len(STAGING_COLUMNS))
        statement = f"INSERT INTO {name} ({', '.join(STAGING_COLUMNS)}) VALUES ({values})"  # noqa: S608 - names are quoted
        _check_packets(connection, rows)
        cursor: Any = connection.connection.cursor()
        with driver_errors(connection, statement), cursor:
            cursor.executemany(statement, list(_python_rows(rows, attempt)))

    @override
    def lock_waiting(self, connection: Connection, live: Table, ids: Select[Any]) -> int:
        """By primary key, in the order of the staging, as the insert that replaces: a scan would lock other rows."""
        rows = ids.subquery("staged")
        joined = select(func.count()).prefix_with("STRAIGHT_JOIN").select_from(rows)
        joined = joined.join(live, live.c.message_id == rows.c.message_id)
        count: int = connection.execute(self.by_primary_key(joined, live).with_for_update()).scalar_one()
        return count

    @override
    def merging(self, live: Table, names: Sequence[str], staged: Select[Any], changed: Sequence[str]) -> Insert:
        """The staging has the types of the table itself, so that IGNORE can only meet duplicates."""
        statement = mysql.insert(live).from_select(list(names), staged, include_defaults=False)
        if not changed:
            return statement.prefix_with("IGNORE")
        return statement.on_duplicate_key_update(self._values(live, statement.inserted, changed))


class PostgreSqlStaging(StagingDialect, PostgreSqlDialect):
    """PostgreSQL: COPY from Arrow's memory. A crash of the server empties an unlogged table; the promotion notices.

    A staging that can become a bulk partition is another table, with a write-ahead log (`PartitionManager`).
    """

    prefixes: ClassVar[Sequence[str]] = ("UNLOGGED",)
    replaces_twice: ClassVar[bool] = False

    @override
    def take_time(self, connection: Connection) -> None:
        """Lifts the role's limits, which are made for other work."""
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")

    @override
    def create(self, connection: Connection, staging: Table) -> None:
        """Without compression and autovacuum."""
        super().create(connection, staging)
        name = quoted_name(staging, connection.dialect)
        storage = ", ".join(f"ALTER COLUMN {column} SET STORAGE EXTERNAL" for column in ("headers", "body"))
        execute_as_it_stands(connection, f"ALTER TABLE {name} SET (autovacuum_enabled = off), {storage}")

    @override
    def copy(self, connection: Connection, staging: Table, attempt: int, rows: pa.RecordBatch) -> None:
        """Binary COPY."""
        name = quoted_name(staging, connection.dialect)
        statement = f"COPY {name} ({', '.join(STAGING_COLUMNS)}) FROM STDIN (FORMAT BINARY)"
        cursor: Any = connection.connection.cursor()
        with driver_errors(connection, statement), cursor, cursor.copy(statement.encode()) as copy:
            for piece in copy_stream(rows, attempt):
                copy.write(piece)

    @override
    def except_in_partitions(
        self,
        connection: Connection,
        live: Table,
        partitions: Table | None,
        staged: Select[Any],
        on_duplicate: OnDuplicate,
    ) -> Select[Any]:
        """A replaced message is waited for, if a dispatcher has it."""
        if partitions is None:
            return staged
        rows = staged.subquery("in_partitions")
        is_there, is_announced = partitions.c[KEY] == rows.c[KEY], self.is_announced(partitions, live)
        if on_duplicate is OnDuplicate.IGNORE:
            staged = select(*rows.c).where(~exists().where(is_there, ~is_announced))
        elif on_duplicate is OnDuplicate.REPLACE:
            own = cast(literal(quoted_name(live, connection.dialect)), postgresql.REGCLASS)
            in_partitions = column("tableoid", postgresql.OID()) != own
            removing = delete(live).where(live.c[KEY] == rows.c[KEY], in_partitions)
            columns = [live.c[DUE_TIME] if each.name == DUE_TIME else each for each in rows.c]
            removed = removing.returning(*columns).cte("removed")
            moving = insert(live).from_select(rows.c.keys(), select(removed), include_defaults=False)
            connection.execute(moving)
        found = select(rows.c[KEY], is_announced).where(is_there).order_by(is_announced.desc()).limit(1)
        for message_id, announced in connection.execute(found):
            if announced:
                raise MessageBeingStoredError(message_id)
            if on_duplicate is OnDuplicate.ERROR:
                raise DuplicateMessageError([message_id])
        return staged

    @override
    def merging(self, live: Table, names: Sequence[str], staged: Select[Any], changed: Sequence[str]) -> Insert:
        """An insert that replaces waits for the row locks of dispatchers."""
        statement = postgresql.insert(live).from_select(list(names), staged, include_defaults=False)
        if not changed:
            return statement.on_conflict_do_nothing()
        values = self._values(live, statement.excluded, changed)
        return statement.on_conflict_do_update(index_elements=[KEY], set_=values)


class SqliteStaging(StagingDialect, SqliteDialect):
    """SQLite; every task writes into the one file."""

    emptying: ClassVar[str] = "DELETE FROM"
    keeps_connections: ClassVar[bool] = False  # its file may be removed, and made anew

    @override
    def copy(self, connection: Connection, staging: Table, attempt: int, rows: pa.RecordBatch) -> None:
        """One prepared statement."""
        name = quoted_name(staging, connection.dialect)
        values = ", ".join("?" * len(STAGING_COLUMNS))
        statement = f"INSERT INTO {name} ({', '.join(STAGING_COLUMNS)}) VALUES ({values})"  # noqa: S608 - names are quoted
        connection.exec_driver_sql(statement, list(_python_rows(rows, attempt)))

    @override
    def merging(self, live: Table, names: Sequence[str], staged: Select[Any], changed: Sequence[str]) -> Insert:
        """A replaced row has no claim: `is_claimed` was asked before, in the same transaction."""
        statement = sqlite.insert(live).from_select(list(names), staged, include_defaults=False)
        if not changed:
            return statement.on_conflict_do_nothing()
        values = self._values(live, statement.excluded, changed)
        free = {"claimed_by": None, "claimed_until": None}
        return statement.on_conflict_do_update(index_elements=[KEY], set_=values | free)

    @override
    def is_claimed(self, connection: Connection, live: Table, staged: Select[Any], now: datetime) -> bool:
        """By a lease; one that has expired ends now, so that its dispatcher cannot remove the message."""
        rows = staged.subquery("staged")
        leased = live.c.claimed_by.is_not(None) & live.c.message_id.in_(select(rows.c.message_id))
        found = select(live.c.message_id).where(leased, live.c.claimed_until > now).limit(1)
        if connection.execute(found).first() is not None:
            return True
        connection.execute(update(live).where(leased).values(claimed_by=None, claimed_until=None))
        return False


STAGING_DIALECTS: Final[Mapping[str, StagingDialect]] = {
    "mariadb": MySqlStaging("mariadb"),
    "mysql": MySqlStaging("mysql"),
    "postgresql": PostgreSqlStaging("postgresql"),
    "sqlite": SqliteStaging("sqlite"),
}
"""By SQLAlchemy's names."""


def twice(staged: Select[Any]) -> Select[Any]:
    """Some message_ids that are twice in `staged`."""
    rows = staged.subquery("staged")
    grouped = select(rows.c.message_id).group_by(rows.c.message_id).having(func.count() > 1)
    return grouped.order_by(rows.c.message_id).limit(NAMED_DUPLICATES)


def waiting_already(staged: Select[Any], live: Table) -> Select[Any]:
    """Some message_ids of `staged` that wait already."""
    rows = staged.subquery("staged")
    joined = select(rows.c.message_id).join(live, live.c.message_id == rows.c.message_id)
    return joined.order_by(rows.c.message_id).limit(NAMED_DUPLICATES)


def there_already(staged: Select[Any], live: Table, after: str, limit: int) -> Select[Any]:
    """The first message_ids of `staged` behind `after`, in their order, that are in `live`, claimed or not."""
    rows = staged.subquery("staged")
    joined = select(rows.c.message_id).distinct().join(live, live.c.message_id == rows.c.message_id)
    return joined.where(rows.c.message_id > after).order_by(rows.c.message_id).limit(limit)


def distinct_ids(staged: Select[Any]) -> Select[Any]:
    """How many message_ids `staged` has."""
    return select(func.count(staged.subquery("staged").c.message_id.distinct()))


def _python_rows(rows: pa.RecordBatch, attempt: int) -> Iterator[tuple[Any, ...]]:
    """`rows` for a driver, with the columns of the staging; times as text."""
    sent = {name: _values(rows.column(name)) for name in rows.schema.names}
    columns = completed(sent, lambda number: [number] * rows.num_rows)
    return zip(repeat(attempt, rows.num_rows), *columns, sent[MESSAGE_KEY], sent[NOT_AFTER], strict=True)


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = pc.strftime(column, "%Y-%m-%d %H:%M:%S")
    values: list[Any] = column.to_pylist()
    return values


def _check_packets(connection: Connection, rows: pa.RecordBatch) -> None:
    """LoadError for a row that no statement could bring: the server would drop the connection without a word.

    MariaDB 10.11 was seen to take a statement of half of its max_allowed_packet, and none longer.
    """
    longest = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one()) // 2 - _ROOM
    sizes = pc.binary_length(rows.column("body"))
    for index in pc.indices_nonzero(pc.greater(sizes, longest // 2)).to_pylist():
        body = rows.column("body")[index].as_py()
        if len(body) + sum(map(body.count, _ESCAPED)) > longest:
            raise LoadError(
                f"the body of message_id {rows.column('message_id')[index].as_py()!r}, {len(body)} bytes, is more than "
                "the server's max_allowed_packet lets through; raise that, or set maxBodyBytes lower"
            )
