"""The request of a read to a database: the table, the filters that it can apply, and parts of about equal size."""

import operator
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Executable,
    FromClause,
    Table,
    cast,
    not_,
    null,
    or_,
    text,
)

from delaystore.bulk.options import StoreOptions
from delaystore.errors import ConfigurationError
from delaystore.settings import TransactionMode
from delaystore.stores import open_store
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.stores.sql.codec import COLUMNS, NOT_AFTER, ExactText, UtcDateTime
from delaystore.stores.sql.dialects import store_dialect_of
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.faults import quoted_name
from delaystore.stores.sql.schema import delayed_table
from delaystore.stores.sql.setup import LOADED, KnownVersion
from delaystore.stores.sql.store import SqlDelayedMessageStore
from delaystore.stores.sql.urls import check_identifier, check_table_name, default_table_name

# The store that a user's options name.


@dataclass(frozen=True)
class SqlTable:
    """A SQL store's engine, and the table in which its messages wait."""

    engine: Engine
    table: Table

    @property
    def is_postgresql(self) -> bool:
        """Whether several connections can read from one snapshot, and rows come as Arrow data."""
        return store_dialect_of(self.engine).exports_snapshots

    def wanted(self, names: Sequence[str], connection: Connection) -> list[ColumnElement[Any]]:
        """The columns of these names; tables of version 0005 have no latest deliveries. Raises StoreError."""
        with translated_errors():
            lacks = NOT_AFTER in names and not KnownVersion(self.table).is_from(LOADED, connection)
        none = cast(null(), self.table.c[NOT_AFTER].type).label(NOT_AFTER)
        return [none if lacks and name == NOT_AFTER else self.table.c[name] for name in names]

    def connect(self) -> Connection:
        """A connection of no pool: closed when it is closed. Raises StoreError."""
        with translated_errors():
            connection = self.engine.connect()
            connection.detach()
            return connection


def open_readable(options: StoreOptions) -> SqlTable | ManagedDelayedMessageStore:
    """The source of a read; connects to nothing. Raises ConfigurationError and its kin.

    A store in memory is refused: Spark's workers are other processes, and cannot see it.
    """
    store = _opened(options.store, options.endpoint)
    if isinstance(store, SqlDelayedMessageStore):
        return SqlTable(store.engine, _table(store.engine, options))
    if isinstance(store, InMemoryDelayedMessageStore):
        raise ConfigurationError("Spark's workers cannot see a store in this process's memory; use a database")
    if not isinstance(store, ManagedDelayedMessageStore):
        raise ConfigurationError(f"{type(store).__name__} cannot list its waiting messages, so it cannot be read")
    if options.schema is not None or options.table is not None:
        raise ConfigurationError("the options schema and table are for SQL stores; leave them out")
    store.initialize(options.endpoint, TransactionMode.NONE)
    return store


def open_table(options: StoreOptions) -> SqlTable:
    """The table of a SQL store; connects to nothing. Raises ConfigurationError and its kin."""
    opened = open_readable(options)
    if not isinstance(opened, SqlTable):
        raise ConfigurationError(f"{type(opened).__name__} is no SQL store")
    return opened


@lru_cache(maxsize=8)
def _opened(url: str, endpoint: str) -> DelayedMessageStore:  # noqa: ARG001 - a store is of one endpoint
    """The store, opened once in a process: Spark's workers live for several tasks, and need not ask a server twice."""
    return open_store(url)


def _table(engine: Engine, options: StoreOptions) -> Table:
    dialect = store_dialect_of(engine)
    if options.schema is not None:
        check_identifier(options.schema, dialect, "the schema name")
    name = check_table_name(options.table or default_table_name(options.endpoint), dialect)
    return delayed_table(name, options.schema, dialect)


# Which of Spark's filters a database can apply, and as what.

MAX_VALUES: Final = 200
"""A longer list is left to Spark."""
_OPERATORS: Final[Mapping[type[Filter], str]] = {
    EqualTo: "eq",
    EqualNullSafe: "eq",  # our columns that are compared are never null
    GreaterThan: "gt",
    GreaterThanOrEqual: "ge",
    LessThan: "lt",
    LessThanOrEqual: "le",
}
_TIMES: Final = {column.name for column in COLUMNS if isinstance(column.type, UtcDateTime)}
_TEXTS: Final = {column.name for column in COLUMNS if isinstance(column.type, ExactText)}
_NULLABLE: Final = {column.name for column in COLUMNS if column.nullable}


@dataclass(frozen=True)
class Condition:
    """A column compared with any of `values` by a function of the module `operator`, or "null"; `negated`: not so."""

    column: str
    operator: str
    values: tuple[Any, ...] = ()
    negated: bool = False


def condition_of(given: Filter) -> Condition | None:
    """`given` as a condition. None: it is left to Spark."""
    if isinstance(given, Not):
        inner = condition_of(given.child)
        if inner is None or inner.negated or (isinstance(given.child, In) and None in given.child.value):
            return None  # with a null in its list NOT IN is never true
        return Condition(inner.column, inner.operator, inner.values, negated=True)
    if isinstance(given, IsNull | IsNotNull):
        return _null_condition(given)
    if isinstance(given, In):
        return _comparison(given.attribute, "eq", tuple(value for value in given.value if value is not None))
    name = _OPERATORS.get(type(given))
    return None if name is None else _comparison(given.attribute, name, (given.value,))  # type: ignore[attr-defined]


def clauses(source: FromClause, conditions: Iterable[Condition]) -> Sequence[ColumnElement[bool]]:
    """The conditions on the columns of `source`; all must hold."""
    return [_clause(source, condition) for condition in conditions]


def _clause(source: FromClause, condition: Condition) -> ColumnElement[bool]:
    column = source.c[condition.column]
    if condition.operator == "null":
        return column.is_not(None) if condition.negated else column.is_(None)
    compare = getattr(operator, condition.operator)
    clause = or_(*(compare(column, value) for value in condition.values))
    return not_(clause) if condition.negated else clause


def _null_condition(given: IsNull | IsNotNull) -> Condition | None:
    (column,) = given.attribute if len(given.attribute) == 1 else ("",)
    return Condition(column, "null", negated=isinstance(given, IsNotNull)) if column in _NULLABLE else None


def _comparison(attribute: tuple[str, ...], name: str, values: tuple[Any, ...]) -> Condition | None:
    if len(attribute) != 1 or not 1 <= len(values) <= MAX_VALUES:
        return None
    (column,) = attribute
    usable = [_usable(column, value) for value in values]
    return None if None in usable else Condition(column, name, tuple(usable))


def _usable(column: str, value: Any) -> Any:
    """`value` as databases compare it with that column; None: they cannot, or not as Spark does."""
    if column in _TEXTS and type(value) is str and "\0" not in value:
        return value
    if column in _TIMES and isinstance(value, datetime) and value.utcoffset() is not None:
        try:
            return value.astimezone(UTC)
        except OverflowError:
            return None
    return None


# Parts of about equal size: ranges of pages, the same for the table and for each of its bulk partitions.
#
# PostgreSQL reads only the pages of a part, so a read in many parts costs no more than one in one part. The transaction
# of the snapshot locks the tables, so no VACUUM FULL moves their rows meanwhile.

ROWS_PER_PART: Final = 50_000
BYTES_PER_PART: Final = 128 * 2**20
"""A part with fewer rows and bytes costs more than it gains."""


@dataclass(frozen=True)
class Extent:
    """How many rows a read returns, as PostgreSQL estimates, and the bytes and pages of each table that it reads."""

    rows: int
    table_bytes: int
    pages: Sequence[int]

    def part_count(self, most: int) -> int:
        """How many parts are worth their cost, from 1 to `most`."""
        return max(1, min(most, max(self.rows // ROWS_PER_PART, self.table_bytes // BYTES_PER_PART)))

    def boundaries(self, parts: int) -> Sequence[int]:
        """Numbers of pages that split the tables into `parts`, or fewer if there are not as many pages."""

        def before(page: int) -> int:
            return sum(min(page, pages) for pages in self.pages)

        every, total = range(max(self.pages, default=0)), sum(self.pages)
        return sorted({bisect_left(every, total * number // parts, key=before) for number in range(1, parts)} - {0})


def extent(connection: Connection, table: Table, estimated: Executable) -> Extent:
    """The extent of a read; `estimated` explains its statement."""
    sizes = connection.execute(_SIZES, {"name": quoted_name(table, connection.dialect)}).all()
    ((explained,),) = connection.execute(estimated).scalars().all()
    pages, table_bytes = zip(*sizes, strict=True)
    return Extent(int(explained["Plan"]["Plan Rows"]), sum(table_bytes), pages)


_SIZES: Final = text(
    "SELECT coalesce(pg_relation_size(oid) / current_setting('block_size')::int, 0), coalesce(pg_table_size(oid), 0)"
    " FROM pg_class WHERE oid = CAST(:name AS regclass)"
    " OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST(:name AS regclass))"
)
"""Pages and bytes, with those of large values, of the table and of each bulk partition."""
