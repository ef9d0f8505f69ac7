"""The database that a migration reads from, and what differs by its kind."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    URL,
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Integer,
    Select,
    Table,
    any_,
    bindparam,
    delete,
    func,
    inspect,
    literal,
    null,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import SQLAlchemyError
from typing_extensions import override

from delaystore.clock import ExtrapolatedClock
from delaystore.errors import StoreUnavailableError
from delaystore.migrations.sources._sql.tables import BATCH, REFLECTED, REJECTED, RunTables
from delaystore.stores.sql.dialects import SqlDialect, dialect_of
from delaystore.stores.sql.dialects.base import Pair
from delaystore.stores.sql.dialects.mssql import SqlServerDialect
from delaystore.stores.sql.dialects.mysql import MySqlDialect, joined_delete
from delaystore.stores.sql.dialects.postgresql import PostgreSqlDialect
from delaystore.stores.sql.dialects.sqlite import SqliteDialect
from delaystore.stores.sql.engine import create_store_engine
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.faults import quoted_column, quoted_name
from delaystore.stores.sql.urls import url_label

SLICE: Final = 1000
"""Ids in one statement."""


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """The result of a search: how many rows it found, locked and moved, and the `position` of the last it found."""

    position: tuple[Any, Any]
    found: int
    locked: int
    moved: int


class MigrationDialect(SqlDialect):
    """A database that messages are taken from: how it makes and fills the side table."""

    @abstractmethod
    def creating(self, connection: Connection, tables: RunTables) -> Sequence[str]:
        """The statements that create the side table, with columns exactly like the source's."""

    def one_of(self, column: ColumnElement[Any], ids: Sequence[Any]) -> ColumnElement[bool]:
        """Whether a column's value is one of `ids`."""
        return column.in_(bindparam("ids", ids, expanding=True, type_=column.type, unique=True))

    def hide(
        self, connection: Connection, tables: RunTables, number: int, search: Select[Any], wanted: ColumnElement[bool]
    ) -> HiddenRows | None:
        """Move the rows of `search` (order, key), as far as they are free and `wanted`. None: `search` finds none."""
        found = connection.execute(self.lock_free(search, tables.source)).all()
        if not found:
            return None
        key = tables.source.c[tables.layout.id_column]
        locked: list[Any] = []
        for ids in slices([row[1] for row in found]):
            locking = self.locked(select(key).where(self.one_of(key, ids), wanted), tables.source)
            locked += connection.execute(locking).scalars()
        copied = removed = 0
        for ids in slices(locked):
            moving = self.moving(tables, number, ids)
            copied += connection.execute(moving, execution_options={"preserve_rowcount": True}).rowcount
        for ids in slices(locked):
            removed += connection.execute(self.removing(tables, number, ids)).rowcount
        return HiddenRows((found[-1][0], found[-1][1]), len(found), len(locked), min(copied, removed))

    def moving(self, tables: RunTables, number: int, ids: Sequence[Any]) -> Insert:
        """Copy rows of the source into the side table."""
        source = tables.source
        values = [*(source.c[name] for name in tables.names), literal(number, Integer), null()]
        copied = select(*values).where(self.one_of(source.c[tables.layout.id_column], ids))
        return tables.side.insert().from_select([*tables.names, BATCH, REJECTED], self.by_primary_key(copied, source))

    def removing(self, tables: RunTables, number: int, ids: Sequence[Any]) -> Executable:  # noqa: ARG002 - for overriders
        """Delete copied rows from the source."""
        return delete(tables.source).where(self.one_of(tables.source.c[tables.layout.id_column], ids))

    def rejecting(self, tables: RunTables, number: int) -> Executable:
        """Set `rejected_because` in the row `rejected_row`, both parameters; no column may have their names."""
        side, key = tables.side, tables.side.c[tables.layout.id_column]
        row = (side.c[BATCH] == number) & (key == bindparam("rejected_row", type_=key.type))
        return (
            update(side).where(row).values({REJECTED: bindparam("rejected_because"), **self.unchanged_columns(tables)})
        )

    def unchanged_columns(self, tables: RunTables) -> dict[str, Any]:  # noqa: ARG002 - for overriders
        """Columns that an update must set to their own values, so that the database does not change them."""
        return {}

    def allow_long_reading(self, connection: Connection) -> None:
        """Lift the limit on how long a statement may take, until the transaction ends, where that can be done."""

    def dropping(self, connection: Connection, tables: Sequence[Table]) -> Sequence[str]:
        """The statements that drop tables, all or none."""
        return ["DROP TABLE IF EXISTS " + ", ".join(quoted_name(table, connection.dialect) for table in tables)]

    def rights_checks(self, tables: RunTables) -> Sequence[Executable]:
        """Statements that find no row, but are refused where a right is missing."""
        source = tables.source
        nothing = literal(1, Integer) == literal(0, Integer)
        columns = [source.c[name] for name in tables.names]
        return [
            self.locked(select(*columns).where(nothing), source),
            source.insert().from_select(tables.names, select(*columns).where(nothing)),
            delete(source).where(nothing),
        ]


class SqlServerMigration(MigrationDialect, SqlServerDialect):
    """SQL Server."""

    @override
    def creating(self, connection: Connection, tables: RunTables) -> Sequence[str]:
        """In one transaction; ISNULL makes a column NOT NULL, as a primary key requires."""
        names = _QuotedNames(connection, tables)
        return [
            f"SELECT {names.columns}, ISNULL(CAST(0 AS int), 0) AS {BATCH}, "  # noqa: S608 - all names are quoted
            f"CAST(NULL AS nvarchar(max)) AS {REJECTED} INTO {names.side} FROM {names.source} WHERE 1 = 0",
            f"ALTER TABLE {names.side} ADD PRIMARY KEY ({BATCH}, {names.key})",
        ]


class MySqlMigration(MigrationDialect, MySqlDialect):
    """MariaDB and MySQL."""

    @override
    def creating(self, connection: Connection, tables: RunTables) -> Sequence[str]:
        """One statement, since each commits itself; the primary key keeps a batch's rows together."""
        names = _QuotedNames(connection, tables)
        return [
            f"CREATE TABLE IF NOT EXISTS {names.side} ({BATCH} INT NOT NULL DEFAULT 0, "  # noqa: S608 - all names are quoted
            f"{REJECTED} LONGTEXT CHARACTER SET utf8mb4, PRIMARY KEY ({BATCH}, {names.key})) "
            "ENGINE=InnoDB ROW_FORMAT=DYNAMIC AS "
            f"SELECT {names.columns} FROM {names.source} WHERE 1 = 0"
        ]

    @override
    def behind(self, columns: Pair, position: Pair) -> ColumnElement[bool]:
        """As two ranges of an index, which may be of the time alone."""
        (time, id_), (instant, last_id) = columns, position
        return (time > instant) | ((time == instant) & (id_ > last_id))

    @override
    def removing(self, tables: RunTables, number: int, ids: Sequence[Any]) -> Executable:
        """By primary key, as `MySqlDialect.remove_many`."""
        key = quoted_column(tables.layout.id_column, mysql.dialect()).replace(":", r"\:")
        side = quoted_name(tables.side, mysql.dialect()).replace(":", r"\:")
        statement = joined_delete(tables.source, f"{side} AS moved", f"waiting.{key} = moved.{key}")
        return text(f"{statement} WHERE moved.{BATCH} = {number:d}")

    @override
    def unchanged_columns(self, tables: RunTables) -> dict[str, Any]:
        """A TIMESTAMP may be of the kind that every update sets to the present."""
        stamps = [c.name for c in tables.source.columns if isinstance(c.info[REFLECTED], mysql.TIMESTAMP)]
        return {name: tables.side.c[name] for name in stamps}


class PostgreSqlMigration(MigrationDialect, PostgreSqlDialect):
    """PostgreSQL."""

    @override
    def creating(self, connection: Connection, tables: RunTables) -> Sequence[str]:
        """In one transaction."""
        names = _QuotedNames(connection, tables)
        return [
            f"CREATE TABLE {names.side} AS SELECT {names.columns}, "  # noqa: S608 - all names are quoted
            f"CAST(0 AS integer) AS {BATCH}, CAST(NULL AS text) AS {REJECTED} FROM {names.source} WITH NO DATA",
            f"ALTER TABLE {names.side} ADD PRIMARY KEY ({BATCH}, {names.key})",
        ]

    @override
    def allow_long_reading(self, connection: Connection) -> None:
        """As pg_dump does: the limit is meant for an application's statements."""
        connection.execute(text("SET LOCAL statement_timeout = 0"))

    @override
    def one_of(self, column: ColumnElement[Any], ids: Sequence[Any]) -> ColumnElement[bool]:
        """One array parameter: the statement's text stays the same for any number."""
        return column == any_(bindparam("ids", list(ids), type_=ARRAY(column.type), unique=True))

    @override
    def hide(
        self, connection: Connection, tables: RunTables, number: int, search: Select[Any], wanted: ColumnElement[bool]
    ) -> HiddenRows | None:
        """In one statement. Its locking search checks its conditions again on locked rows, so `wanted` is unused."""
        source, key = tables.source, tables.layout.id_column
        found = self.locked(search, source).cte("found")
        position = (found.c[0], found.c[1])
        gone = delete(source).where(source.c[key] == position[1]).returning(*(source.c[name] for name in tables.names))
        removed = gone.cte("removed")
        copied = select(*(removed.c[name] for name in tables.names), literal(number, Integer), null())
        moved = (
            tables.side.insert().from_select([*tables.names, BATCH, REJECTED], copied).returning(tables.side.c[BATCH])
        )
        numbers = [select(func.count()).select_from(part).scalar_subquery() for part in (found, moved.cte("moved"))]
        last = select(*position, *numbers).order_by(*(column.desc() for column in position)).limit(1)
        row = connection.execute(last).first()
        return None if row is None else HiddenRows((row[0], row[1]), row[2], row[2], row[3])


class SqliteMigration(MigrationDialect, SqliteDialect):
    """SQLite."""

    @override
    def creating(self, connection: Connection, tables: RunTables) -> Sequence[str]:
        """The affinities are the source's, so that no value changes."""
        names = _QuotedNames(connection, tables)
        index = quoted_column(f"{tables.side.name}_key", connection.dialect)
        return [
            f"CREATE TABLE {names.side} AS SELECT {names.columns}, "  # noqa: S608 - all names are quoted
            f"CAST(0 AS INTEGER) AS {BATCH}, CAST(NULL AS TEXT) AS {REJECTED} FROM {names.source} WHERE 0",
            f"CREATE UNIQUE INDEX {index} ON {names.side} ({BATCH}, {names.key})",
        ]

    @override
    def removing(self, tables: RunTables, number: int, ids: Sequence[Any]) -> Executable:
        """Delete the batch's rows of the side table."""
        key = tables.layout.id_column
        moved = select(tables.side.c[key]).where(tables.side.c[BATCH] == number)
        return delete(tables.source).where(tables.source.c[key].in_(moved))

    @override
    def dropping(self, connection: Connection, tables: Sequence[Table]) -> Sequence[str]:
        """One statement each, in one transaction."""
        return [f"DROP TABLE IF EXISTS {quoted_name(table, connection.dialect)}" for table in tables]


MIGRATION_DIALECTS: Final[Mapping[str, MigrationDialect]] = {
    "mariadb": MySqlMigration("mariadb"),
    "mssql": SqlServerMigration("mssql"),
    "mysql": MySqlMigration("mysql"),
    "postgresql": PostgreSqlMigration("postgresql"),
    "sqlite": SqliteMigration("sqlite"),
}
"""By SQLAlchemy's names of the databases."""


def slices(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """`ids` in parts that fit one statement."""
    for start in range(0, len(ids), SLICE):
        yield ids[start : start + SLICE]


class _QuotedNames:
    """The names of the tables and columns as the database reads them; `columns`: the copied ones, as a list."""

    def __init__(self, connection: Connection, tables: RunTables) -> None:
        dialect = connection.dialect
        self.side, self.source = quoted_name(tables.side, dialect), quoted_name(tables.source, dialect)
        self.key = quoted_column(tables.layout.id_column, dialect)
        self.columns = ", ".join(quoted_column(name, dialect) for name in tables.names)


class Database:
    """One database. While it has a lock, all work goes through the lock's own connection.

    So the work ends where the lock ends: with a lost connection the database gives the lock to the next process, and
    this one can write nothing more.
    """

    def __init__(self, url: URL) -> None:
        self._engine = create_store_engine(url)
        self.dialect = dialect_of(self._engine, MIGRATION_DIALECTS)
        self.dialect.check_driver(self._engine.driver)
        self.dialect.set_utc(self._engine)
        self._instant = self.dialect.clock()
        self.label: Final = url_label(self._engine.url)
        """The URL without a password or options."""
        self.now: Final = ExtrapolatedClock(self._read_clock).now
        """The database's clock (SQLite: this computer's)."""
        self.close: Final = self._engine.dispose
        """Give back connections."""
        self._locking: Connection | None = None
        self._keys: set[str] = set()

    @property
    def user(self) -> str:
        """The user in the URL, or "the user"."""
        return self._engine.url.username or "the user"

    def key_of(self, table: Table) -> str:
        """The name of a table's lock: the same whether its schema was named or is the connection's own."""
        with self.reading() as connection:
            return f"{table.schema or inspect(connection).default_schema_name}.{table.name}"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection whose transaction ends with the block."""
        with self._connection() as connection:
            try:
                yield connection
            finally:
                connection.rollback()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, committed at the block's end, or rolled back when it raises."""
        with self._connection() as connection:
            try:
                self.dialect.begin_writing(connection)
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    @contextmanager
    def exclusive(self, key: str, owner: str) -> Iterator[str | None]:
        """Have the lock `key` until the block ends. Yields None; or who else has it, as far as known.

        `owner`: how others shall know who has it. A lock that this object has already is taken once.
        """
        if key in self._keys:
            yield None
            return
        with self._lock_connection() as connection, translated_errors():
            release = self.dialect.take_lock(connection, f"migration {key}", owner)
            connection.rollback()
            if release is None:
                other = self.dialect.lock_owner(connection, f"migration {key}")
                connection.rollback()
                yield other or "another process"
                return
            self._keys.add(key)
            try:
                yield None
            finally:
                self._keys.discard(key)
                with suppress(SQLAlchemyError):  # a lost connection has ended it
                    release()
                    connection.rollback()

    @contextmanager
    def _lock_connection(self) -> Iterator[Connection]:
        """The connection of the locks; closed for good after the last of them."""
        if self._locking is not None:
            yield self._locking
            return
        with translated_errors(), self._engine.connect() as connection:
            connection.detach()
            self._locking = connection
            try:
                yield connection
            finally:
                self._locking = None

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        with translated_errors():
            if self._locking is None:
                with self._engine.connect() as connection:
                    yield connection
                return
            if self._locking.invalidated:
                raise StoreUnavailableError("the connection that held the migration's lock was lost")
            yield self._locking

    def _read_clock(self) -> datetime:
        if self._instant is None:
            return datetime.now(UTC)
        with self.reading() as connection:
            instant: datetime = connection.execute(select(self._instant)).scalar_one()
            return instant
