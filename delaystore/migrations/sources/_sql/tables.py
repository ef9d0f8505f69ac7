"""The tables of a migration: the source's own, the hidden rows, the runs, the batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Index, Inspector, Integer, MetaData, Table, Text, inspect
from sqlalchemy.sql import quoted_name
from sqlalchemy.types import NullType

from delaystore.errors import MigrationError, StoreSetupError
from delaystore.migrations.sources._sql.shape import TableShape
from delaystore.migrations.sources._sql.types import Instant
from delaystore.sql.dialects import DIALECTS, dialect_of
from delaystore.sql.names import derived_name
from delaystore.sql.types import INNODB, ExactText, UtcDateTime

SIDE: Final = "_migrating"
"""After a table's name: the tables of its hidden rows, of the runs, of their batches; see `derived_name`."""
RUNS: Final = "_migration_run"
BATCHES: Final = "_migration_batches"
BATCH: Final = "migration_batch"
"""The side table's column for the number of the batch a row belongs to."""
REJECTED: Final = "migration_rejected"
"""The side table's column for why a row was rejected; NULL: it was not."""
REFLECTED: Final = "reflected"
"""In the `info` of a copied column: its type as the database has it."""
MAX_TEXT_BYTES: Final = 1600
_STRICTEST: Final = min(DIALECTS.values(), key=lambda dialect: dialect.max_identifier_bytes)
"""The database with the shortest names: a name that it takes is taken by all."""


@dataclass(frozen=True, slots=True)
class RunTables:
    """`side` has the columns of `source`, in the same order, and two of its own."""

    endpoint: str
    shape: TableShape
    source: Table
    side: Table
    runs: Table
    batches: Table

    @property
    def names(self) -> Sequence[str]:
        """The columns that are copied."""
        return [column.name for column in self.source.columns]

    @property
    def order(self) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        """The time and the id by which rows of the source are found."""
        shape = self.shape
        return self.source.c[shape.order_column or shape.time_column], self.source.c[shape.id_column]

    @property
    def left(self) -> ColumnElement[int]:
        """Of a row of `batches`: how many of its rows were neither rejected nor given back."""
        columns = self.batches.c
        return columns.prepared - columns.rejected - columns.returned

    @property
    def created(self) -> Sequence[Table]:
        """The tables that a run makes, in the order to drop them in: the records of the rows after the rows."""
        return [self.side, self.batches, self.runs]


def run_tables(connection: Connection, shape: TableShape, endpoint: str, schema: str | None) -> RunTables:
    """The tables of the endpoint, as the database has them; StoreSetupError where its own is missing."""
    inspector = inspect(connection)
    name, dialect = shape.table_name(endpoint), dialect_of(connection, DIALECTS)
    if not inspector.has_table(name, schema=schema):
        known = ", ".join(sorted(shape.tables(inspector, schema))) or "none"
        where = f" in the schema {schema!r}" if schema else ""
        raise StoreSetupError(
            f"there is no table {name!r}{where} for the endpoint {endpoint!r}; endpoints found here: {known}"
        )
    source = _source_table(inspector, shape, name, schema)
    side = source.to_metadata(MetaData(), name=quoted_name(derived_name(name, SIDE, dialect), quote=True))
    side.append_column(Column(BATCH, Integer, nullable=False))
    side.append_column(Column(REJECTED, Text))
    return RunTables(
        endpoint=endpoint,
        shape=shape,
        source=source,
        side=side,
        runs=runs_table(derived_name(name, RUNS, dialect), schema),
        batches=batches_table(derived_name(name, BATCHES, dialect), schema),
    )


def has_table(connection: Connection, table: Table) -> bool:
    """Whether it exists."""
    return inspect(connection).has_table(table.name, schema=table.schema)


def check_layout(connection: Connection, tables: RunTables) -> None:
    """MigrationError for tables of a run that are not of the layout this release makes for this source."""
    inspector = inspect(connection)
    for table in tables.created:
        if not inspector.has_table(table.name, schema=table.schema):
            continue
        found = {column["name"] for column in inspector.get_columns(table.name, schema=table.schema)}
        expected = {column.name for column in table.columns}
        if found != expected:
            differing = ", ".join(sorted(found ^ expected))
            raise MigrationError(
                f"the table {table.name!r} is there, but of another layout (columns {differing}): was "
                f"{tables.source.name!r} altered since a run began? Move its rows back by hand, then drop it"
            )


def _source_table(inspector: Inspector, shape: TableShape, name: str, schema: str | None) -> Table:
    """With the columns that can be written; one that the database computes is computed again when a row goes back.

    Only values that we search by are converted; the others are copied unread, so no conversion can change them.
    """
    ours = (BATCH, REJECTED)  # `check` tells of a source that has such columns
    times, plain = (shape.time_column, shape.order_column), (shape.id_column, shape.destination_column)
    types = shape.types()
    columns = []
    for column in inspector.get_columns(name, schema=schema):
        reflected = column["type"]
        if column.get("computed") or column["name"] in ours:
            continue
        read = Instant(reflected) if column["name"] in times else reflected if column["name"] in plain else NullType()
        type_ = types.get(column["name"], read)
        columns.append(Column(column["name"], type_, quote=True, info={REFLECTED: reflected}))
    return _quoted_table(name, schema, *columns)


def _quoted_table(name: str, schema: str | None, *columns: Column[Any], **options: Any) -> Table:
    quote_schema = True if schema else None
    return Table(name, MetaData(), *columns, schema=schema, quote=True, quote_schema=quote_schema, **options)


def runs_table(name: str, schema: str | None) -> Table:
    """A row for each run; `holder`: who had the lock last."""
    return _quoted_table(
        name,
        schema,
        Column("run_id", ExactText(36), primary_key=True),
        Column("endpoint", ExactText(MAX_TEXT_BYTES), nullable=False),
        Column("target", ExactText(MAX_TEXT_BYTES), nullable=False),
        Column("cutoff", UtcDateTime),
        Column("batch_size", Integer, nullable=False),
        Column("status", ExactText(20), nullable=False),
        Column("started", UtcDateTime, nullable=False),
        Column("completed", UtcDateTime),
        Column("holder", ExactText(MAX_TEXT_BYTES)),
        **INNODB,
    )


def batches_table(name: str, schema: str | None) -> Table:
    """`prepared` is fixed; `rejected` counts rows in the side table, `returned` those that went back."""
    table = _quoted_table(
        name,
        schema,
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("run_id", ExactText(36), nullable=False),
        Column("status", ExactText(20), nullable=False),
        Column("prepared", Integer, nullable=False),
        Column("rejected", Integer, nullable=False, server_default="0"),
        Column("returned", Integer, nullable=False, server_default="0"),
        **INNODB,
    )
    Index(derived_name(name, "_of_run", _STRICTEST), table.c.run_id, _table=table)
    return table
