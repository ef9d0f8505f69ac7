"""What a database must say to a migration, and what most of them say alike."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Insert,
    Integer,
    Select,
    Table,
    bindparam,
    delete,
    literal,
    null,
    select,
    text,
    tuple_,
    update,
)

from delaystore.migrations.sources.sql.tables import BATCH, REJECTED, RunTables
from delaystore.stores.sql.names import quoted_name

SLICE: Final = 1000
"""Ids in one statement."""

Release = Callable[[], None]
"""Ends a lock."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """What became of a search: how many rows it found, locked and moved, and the `place` of the last it found."""

    place: tuple[datetime, Any]
    found: int
    locked: int
    moved: int


class MigrationDialect(ABC):
    """One database's way of locking a source, and of making and filling the side table."""

    rights: ClassVar[str] = "SELECT, INSERT, UPDATE, DELETE"
    """What a migration does to the source's table."""
    isolation: ClassVar[str | None] = "READ COMMITTED"
    """The isolation level of its transactions; None: the database has but one."""

    def prepare_engine(self, engine: Engine) -> None:  # noqa: B027 - most need nothing
        """Set up what every connection needs."""

    @abstractmethod
    def hold(self, connection: Connection, key: str, holder: str) -> Release | None:
        """Take the lock `key` for as long as the connection lives; None: somebody else has it."""

    @abstractmethod
    def holder(self, connection: Connection, key: str) -> str | None:
        """Who has the lock, as far as the database knows."""

    @abstractmethod
    def creating(self, connection: Connection, tables: RunTables) -> Sequence[str]:
        """The statements that create the side table, with columns exactly like the source's."""

    @contextmanager
    def writing(self, connection: Connection) -> Iterator[None]:  # noqa: ARG002 - for overriders
        """Begin a transaction that writes, and end nothing."""
        yield

    def by_index(self, connection: Connection) -> None:  # noqa: B027 - most need nothing
        """See to it that the transaction finds its rows by index, whatever the statistics say."""

    def behind(self, source: Table, order: str, key: str, place: tuple[datetime, Any]) -> ColumnElement[bool]:
        """Whether a row lies behind a place in the order of (order, key)."""
        columns = source.c[order], source.c[key]
        return tuple_(*columns) > tuple_(*(literal(v, c.type) for v, c in zip(place, columns, strict=True)))

    def among(self, column: ColumnElement[Any], ids: Sequence[Any]) -> ColumnElement[bool]:
        """Whether a column's value is one of `ids`."""
        return column.in_(bindparam("ids", ids, expanding=True, type_=column.type, unique=True))

    def limited(self, statement: Select[Any], limit: int) -> Select[Any]:
        """The first rows of it."""
        return statement.limit(limit)

    def passing(self, statement: Select[Any], source: Table) -> Select[Any]:  # noqa: ARG002 - for overriders
        """`statement`, a search that waits for no lock."""
        return statement

    def locked(self, statement: Select[Any], source: Table) -> Select[Any]:  # noqa: ARG002 - for overriders
        """`statement`, locking the rows it finds and passing over those others have locked."""
        return statement.with_for_update(skip_locked=True)

    def exact(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """A column's value such that only what is the same byte by byte is grouped together."""
        return column

    def hide(
        self, connection: Connection, tables: RunTables, number: int, search: Select[Any], wanted: ColumnElement[bool]
    ) -> Hidden | None:
        """Move the rows of `search` (order, key), as far as they are free and `wanted`; None: there are none."""
        found = connection.execute(self.passing(search, tables.source)).all()
        if not found:
            return None
        key = tables.source.c[tables.shape.id_column]
        held: list[Any] = []
        for ids in slices([row[1] for row in found]):
            locked = self.locked(select(key).where(self.among(key, ids), wanted), tables.source)
            held += connection.execute(locked).scalars()
        copied = removed = 0
        for ids in slices(held):
            moving = self.moving(tables, number, ids)
            copied += connection.execute(moving, execution_options={"preserve_rowcount": True}).rowcount
        for ids in slices(held):
            removed += connection.execute(self.removing(tables, number, ids)).rowcount
        return Hidden((found[-1][0], found[-1][1]), len(found), len(held), min(copied, removed))

    def moving(self, tables: RunTables, number: int, ids: Sequence[Any]) -> Insert:
        """Copy rows of the source into the side table."""
        source = tables.source
        values = [*(source.c[name] for name in tables.names), literal(number, Integer), null()]
        copied = select(*values).where(self.among(source.c[tables.shape.id_column], ids))
        return tables.side.insert().from_select([*tables.names, BATCH, REJECTED], self.of_source(copied, source))

    def of_source(self, statement: Select[Any], source: Table) -> Select[Any]:  # noqa: ARG002 - for overriders
        """`statement` over locked rows of the source, found by their ids."""
        return statement

    def removing(self, tables: RunTables, number: int, ids: Sequence[Any]) -> Executable:  # noqa: ARG002 - for overriders
        """Delete copied rows from the source."""
        return delete(tables.source).where(self.among(tables.source.c[tables.shape.id_column], ids))

    def rejecting(self, tables: RunTables, number: int) -> Executable:
        """Set `rejected_because` in the row `rejected_row`, both parameters; no column may have their names."""
        side, key = tables.side, tables.side.c[tables.shape.id_column]
        row = (side.c[BATCH] == number) & (key == bindparam("rejected_row", type_=key.type))
        return update(side).where(row).values({REJECTED: bindparam("rejected_because"), **self.kept(tables)})

    def kept(self, tables: RunTables) -> dict[str, Any]:  # noqa: ARG002 - for overriders
        """Columns that an update must set to what they are, lest the database changes them by itself."""
        return {}

    def dropping(self, connection: Connection, tables: Sequence[Table]) -> Sequence[str]:
        """The statements that drop tables, all or none."""
        return ["DROP TABLE IF EXISTS " + ", ".join(name_of(table, connection) for table in tables)]

    def trials(self, tables: RunTables) -> Sequence[Executable]:
        """Statements that find no row, but are refused where a right is missing."""
        source = tables.source
        nothing = literal(1, Integer) == literal(0, Integer)
        columns = [source.c[name] for name in tables.names]
        return [
            self.locked(select(*columns).where(nothing), source),
            source.insert().from_select(tables.names, select(*columns).where(nothing)),
            delete(source).where(nothing),
        ]

    def may_create(self, connection: Connection, schema: str | None) -> bool:  # noqa: ARG002 - for overriders
        """Whether tables may be created; True also where the database does not say."""
        return True


def slices(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """`ids` in parts that fit one statement."""
    for start in range(0, len(ids), SLICE):
        yield ids[start : start + SLICE]


def name_of(table: Table, connection: Connection) -> str:
    """The table's name as the database reads it."""
    return quoted_name(table, connection.dialect)


def name_of_column(name: str, connection: Connection) -> str:
    """The column's name as the database reads it."""
    quoted = connection.dialect.identifier_preparer.quote_identifier(name)
    return quoted.replace("%%", "%") if connection.dialect.paramstyle in ("format", "pyformat") else quoted


def names_of_columns(tables: RunTables, connection: Connection) -> str:
    """The copied columns' names, as a list."""
    return ", ".join(name_of_column(name, connection) for name in tables.names)


def run_statement(connection: Connection, statement: str) -> None:
    """Execute SQL as it stands, whatever signs its names hold."""
    connection.execute(text(statement.replace("\\", "\\\\").replace(":", r"\:")))
