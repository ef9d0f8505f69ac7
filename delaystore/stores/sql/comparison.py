"""The tables as they are, compared with the tables of this release; missing ones are made again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Column, Connection, Index, Inspector, Select, Table, inspect, select
from sqlalchemy.exc import DBAPIError, NoSuchTableError
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import NullType

from delaystore.stores.sql import setup
from delaystore.stores.sql.codec import FAILURES, FAILURES_OF, FIRST_SENT, KEY, LOAD, MESSAGE_KEY, NOT_AFTER
from delaystore.stores.sql.dialects import Defect, StoreDialect, made_by_setup
from delaystore.stores.sql.errors import translate
from delaystore.stores.sql.faults import Fault, quoted_name
from delaystore.stores.sql.schema import OperatingTables, partitions_table
from delaystore.text import roughly

if TYPE_CHECKING:
    from alembic.ddl.impl import DefaultImpl

_TEXT: Final = {"TEXT", "VARCHAR"}
MANY: Final = 100_000
"""Rows from which on it is said how many there are before an index is made."""


def expected_tables(table: Table, dialect: StoreDialect) -> Sequence[Table]:
    """The tables of an endpoint as this release works with them; the first is `table`, which holds the messages."""
    partitions = [] if dialect.bulk is None else [partitions_table(table, dialect)]
    return [table, *partitions, *OperatingTables(table, dialect).all]


def defects(connection: Connection, table: Table, dialect: StoreDialect) -> Sequence[Defect]:
    """Defects of the tables; changes nothing. Raises StoreSetupError for tables of a newer release."""
    found: list[Defect] = []
    if not setup.is_current(connection, table):
        missing = setup.missing_schema(connection, table, dialect)
        if missing is not None:
            return [Defect(text=missing, is_obstacle=True)]
        version = setup.current_version(connection, table)
        if version is not None:
            how = f"of schema version {version}, older than {setup.HEAD}"
            return [made_by_setup(f"table {table.name!r}", how)]
        found.append(_without_version(connection, table, dialect))
        if not dialect.has_table(connection, table):
            return found
    tables = expected_tables(table, dialect)
    there = _tables_found(connection, tables, dialect)
    for each in tables:
        if each.name in there:
            found += _Comparison(connection, each, there[each.name], dialect).defects()
        else:
            found.append(made_by_setup(f"table {each.name!r}", is_obstacle=True))
    return [*found, *dialect.defects(connection, tables)]


def blocking_defects(connection: Connection, table: Table, dialect: StoreDialect) -> Iterator[str]:
    """What keeps messages from being stored once and dispatched; nothing for tables of an earlier release.

    A role that only reads messages, as for monitoring, lacks rights on the other tables; that stops no dispatcher.
    """
    version = setup.current_version(connection, table)
    if version is None:
        yield _without_version(connection, table, dialect).text
        if not dialect.has_table(connection, table):
            return
    elif version < setup.HEAD:
        return
    tables = expected_tables(table, dialect)
    unreadable = dict(_unreadable(connection, tables, dialect))
    yield from unreadable.values()
    there = {} if table.name in unreadable else _tables_found(connection, tables[:1], dialect)
    found = [
        *(each for name in there for each in _Comparison(connection, tables[0], there[name], dialect).key_defects()),
        *dialect.defects(connection, tables),
    ]
    yield from (each.text for each in found if each.is_obstacle)


def _without_version(connection: Connection, table: Table, dialect: StoreDialect) -> Defect:
    """Of a table without a version: it is missing, or the table of its version is missing or empty."""
    if not dialect.has_table(connection, table):
        return made_by_setup(f"table {table.name!r}", is_obstacle=True)
    versions = setup.version_table(table)
    how = "empty" if dialect.has_table(connection, versions) else "missing"
    return made_by_setup(f"table {versions.name!r}", how, is_obstacle=True)


def _unreadable(connection: Connection, tables: Sequence[Table], dialect: StoreDialect) -> Iterator[tuple[str, str]]:
    """The names of tables that cannot be read, and why; asked by one statement where all can be.

    The dialect's own defects report hidden rows.
    """
    first, *others = tables
    joined: Any = first
    for each in others:  # a condition about both, or SQLAlchemy warns
        joined = joined.join(each, first.c[KEY].is_(None) == next(iter(each.columns)).is_(None))
    columns = [column for each in tables for column in each.columns]
    if _refusal(connection, select(*columns).select_from(joined), dialect) is None:
        return
    for each in tables:
        error = _refusal(connection, select(*each.columns), dialect)
        if error is None or dialect.fault(error) is Fault.ROW_SECURITY:
            continue
        if each is first or dialect.fault(error) is Fault.MISSING:
            yield each.name, str(translate(error))


def _refusal(connection: Connection, statement: Select[Any], dialect: StoreDialect) -> DBAPIError | None:
    """Why the statement cannot be executed without a table, a column or a right; None: it can."""
    try:
        connection.execute(statement.limit(0)).close()
    except DBAPIError as error:
        if dialect.fault(error) not in (Fault.MISSING, Fault.PERMISSION, Fault.ROW_SECURITY):
            raise
        connection.rollback()
        return error
    return None


def repair(
    connection: Connection, table: Table, dialect: StoreDialect, tell: Callable[[str], object]
) -> Sequence[Defect]:
    """Make missing parts; returns the defects that are left. Commits.

    Changes nothing where nothing is missing, or this user may not make it. `tell`: hears of each that is made.
    """
    found = defects(connection, table, dialect)
    connection.rollback()
    if not any(each.missing for each in found):
        return found
    tables = expected_tables(table, dialect)
    try:
        with dialect.setup_lock(connection, table.fullname):
            for each in defects(connection, table, dialect):
                if each.missing:
                    tell(f"making {each.missing}{_size(connection, each.missing, table, dialect)}")
            dialect.drop_invalid_indexes(connection, tables)
            setup.make_again(connection, table, dialect)
            connection.commit()
    except DBAPIError as error:
        fault = dialect.fault(error)
        if fault not in (Fault.PERMISSION, Fault.DUPLICATE):
            raise
        connection.rollback()
        if fault is Fault.DUPLICATE:
            found = [_of_duplicates(table) if f"{table.name}_keys" in (each.missing or "") else each for each in found]
        return found
    left = defects(connection, table, dialect)
    connection.rollback()
    return left


@dataclass(frozen=True, slots=True)
class _FoundTable:
    """A table as it is, in SQLAlchemy's words."""

    columns: Sequence[Mapping[str, Any]]
    indexes: Sequence[Mapping[str, Any]]
    key: Sequence[str]


def _tables_found(connection: Connection, tables: Sequence[Table], dialect: StoreDialect) -> Mapping[str, _FoundTable]:
    """Those of `tables` that there are. At once, where names are exact: else SQLAlchemy looks for each in a list."""
    inspector: Inspector = inspect(connection)
    schema, names = tables[0].schema, [table.name for table in tables]
    if dialect.may_ignore_capitals:
        return {name: found for name in names if (found := _table_found(inspector, name, schema)) is not None}
    columns = inspector.get_multi_columns(schema=schema, filter_names=names)
    indexes = inspector.get_multi_indexes(schema=schema, filter_names=names)
    keys = inspector.get_multi_pk_constraint(schema=schema, filter_names=names)
    return {
        at[1]: _FoundTable(found, indexes.get(at, []), keys[at]["constrained_columns"] if at in keys else [])
        for at, found in columns.items()
    }


def _table_found(inspector: Inspector, name: str, schema: str | None) -> _FoundTable | None:
    try:
        columns = inspector.get_columns(name, schema=schema)
    except NoSuchTableError:
        return None
    key = inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]
    return _FoundTable(columns, inspector.get_indexes(name, schema=schema), key)


class _Comparison:
    """One table, compared with the one in the database under its name."""

    def __init__(self, connection: Connection, table: Table, found: _FoundTable, dialect: StoreDialect) -> None:
        self._connection, self._table, self._found, self._dialect = connection, table, found, dialect
        self._sql = connection.dialect
        self._name = quoted_name(table, connection.dialect)

    @cached_property
    def _types(self) -> "DefaultImpl":
        from alembic.migration import MigrationContext  # a third of a second, which only columns need

        return MigrationContext.configure(self._connection).impl

    def defects(self) -> Iterator[Defect]:
        """Columns first: without one its indexes are missing, too."""
        columns = {each["name"]: each for each in self._found.columns}
        for wanted in self._table.columns:
            if wanted.name not in columns:
                yield self._without(wanted)
            elif not self._is_of_type(columns[wanted.name], wanted):
                yield self._of_type(wanted, columns[wanted.name]["type"])
        for name, other in columns.items():
            if name not in self._table.c and _must_be_given(other):
                yield Defect(
                    text=f"the column {name!r} of the table {self._table.name!r} is not delaystore's, and no row can "
                    "be stored without a value for it; drop it, or give it a default",
                    is_obstacle=True,
                )
        yield from self.key_defects()

    def key_defects(self) -> Iterator[Defect]:
        """Those of the primary key and of the indexes; without a unique one, messages are doubled or refused."""
        key = [column.name for column in self._table.primary_key]
        if key and list(self._found.key) != key:
            remedy = f"run ALTER TABLE {self._name} ADD PRIMARY KEY ({', '.join(key)})"
            if self._dialect.is_file:
                remedy = "make the table again with it and copy the rows, as SQLite adds none to a table that exists"
            text = f"the table {self._table.name!r} has no primary key ({', '.join(key)}); {remedy}"
            yield Defect(text=text, is_obstacle=True)
        yield from self._of_indexes()

    def _of_indexes(self) -> Iterator[Defect]:
        indexes = {each["name"]: each for each in self._found.indexes}
        for wanted in sorted(self._table.indexes, key=lambda index: str(index.name)):
            what = f"index {wanted.name!r} of the table {self._table.name!r}"
            if wanted.name not in indexes:
                yield made_by_setup(what, is_obstacle=wanted.unique)
            elif not self._is_alike(wanted, indexes[wanted.name]):
                yield Defect(
                    text=f"the {what} is another one; drop it, and run `delaystore setup`, which makes it again",
                    is_obstacle=wanted.unique,
                )

    def _is_alike(self, wanted: Index, found: Mapping[str, Any]) -> bool:
        columns = [column.name for column in wanted.columns]
        is_unique = bool(found["unique"]) == bool(wanted.unique)
        return is_unique and found["column_names"] == columns and self._dialect.has_condition(wanted, found)

    def _without(self, column: Column[Any]) -> Defect:
        what = f"column {column.name!r} of the table {self._table.name!r}"
        added = (
            MESSAGE_KEY,
            FIRST_SENT,
            FAILURES,
            FAILURES_OF,
            NOT_AFTER,
            LOAD,
            *(each.name for each in self._dialect.failing_columns()),
        )
        if column.name in added:
            return made_by_setup(what, is_obstacle=True)
        remedy = "restore the table from a backup"
        if column.nullable:
            remedy = f"run ALTER TABLE {self._name} ADD COLUMN {self._definition(column)}"
        return Defect(text=f"the {what} is missing; {remedy}", is_obstacle=True)

    def _of_type(self, column: Column[Any], found: Any) -> Defect:
        known = f"the type {found}" if not isinstance(found, NullType) else "no type, or an unknown one"
        return Defect(
            text=f"the column {column.name!r} of the table {self._table.name!r} has {known}; change it by "
            f"ALTER TABLE to {self._definition(column)}"
        )

    def _is_of_type(self, found: Mapping[str, Any], wanted: Column[Any]) -> bool:
        """PostgreSQL's two words for text are one; collations are compared by the dialect."""
        kind = copy(found["type"])
        if isinstance(kind, NullType):  # SQLAlchemy does not know it
            return False
        if getattr(kind, "collation", None) is not None:
            kind.collation = None
        both = {str(kind), str(wanted.type.compile(dialect=self._sql)).partition(" ")[0]}
        return both == _TEXT or not self._types.compare_type(Column(wanted.name, kind), wanted)

    def _definition(self, column: Column[Any]) -> str:
        return " ".join(str(CreateColumn(column).compile(dialect=self._sql)).split())


def _must_be_given(column: Mapping[str, Any]) -> bool:
    """Whether a row cannot be without a value for it."""
    fills_itself = column.get("identity") or column.get("computed") or column.get("autoincrement") is True
    return not column["nullable"] and column.get("default") is None and not fills_itself


def _size(connection: Connection, what: str, table: Table, dialect: StoreDialect) -> str:
    """How much work an index is; empty where it is little."""
    if not what.startswith("the index"):
        return ""
    rows = dialect.estimate(connection, table) or 0
    if rows < MANY:
        return ""
    return f" ({roughly(rows)} rows: all who send or dispatch wait until it is made)"


def _of_duplicates(table: Table) -> Defect:
    return Defect(
        text=f"the index '{table.name}_keys' cannot be made, because several messages in the table {table.name!r} have "
        "the same message_key; cancel all of them but one, and run `delaystore setup`"
    )
