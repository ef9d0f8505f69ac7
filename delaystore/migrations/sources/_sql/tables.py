"""The tables of a migration: the layout it reads, and its own beside it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    Double,
    Index,
    Inspector,
    Integer,
    MetaData,
    Table,
    Text,
    inspect,
)
from sqlalchemy.dialects.mssql import DATETIMEOFFSET
from sqlalchemy.sql import quoted_name
from sqlalchemy.types import NullType, TypeDecorator, TypeEngine
from typing_extensions import override

from delaystore.errors import InvalidMessageError, MigrationError, StoreSetupError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import Identity
from delaystore.stores.sql.codec import INNODB, ExactText, UtcDateTime
from delaystore.stores.sql.dialects import DIALECTS, dialect_of
from delaystore.stores.sql.faults import quoted_table
from delaystore.stores.sql.urls import derived_name


class RecurringError(InvalidMessageError):
    """A row is no message because it is due again and again: the program of its table goes on with it."""


class TableLayout(ABC):
    """One kind of table. Its objects hold no connection and no state.

    Columns are named as the database spells them; `SqlSource` quotes them, and reflects their types. Instants of the
    `time_column` and `order_column` come as aware datetimes in UTC, also from columns without a time zone, which are
    read as UTC. Other values come as the driver gives them: a uuid is a UUID, text may be None.
    """

    kind: ClassVar[str]
    """What people call it: "delaystore"."""
    columns: ClassVar[Mapping[str, str]]
    """The required columns, and their purposes."""
    missing_column_advice: ClassVar[str] = ""
    """A sentence to add, after a space, to the report that one of `columns` is missing."""
    id_column: ClassVar[str]
    """The primary key (or a unique column; MySQL and MariaDB: the primary key)."""
    time_column: ClassVar[str]
    """When a message is due; rows without a time, or with one that Python cannot represent, stay."""
    destination_column: ClassVar[str]
    order_column: ClassVar[str | None] = None
    """An indexed time, never before `time_column`, by which rows are found; None: `time_column` is indexed itself."""
    identity_columns: ClassVar[Sequence[str] | None] = None
    """The columns that `identity` reads; None: all."""

    leaves_rejected: ClassVar[bool] = False
    """Whether rows that cannot move stay in the table, because another program may still run them.

    False where a dispatcher of delaystore would reject them, too.
    """
    has_recurring: ClassVar[bool] = False
    """Whether `to_message` may raise RecurringError."""

    @abstractmethod
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """The endpoints that have messages here, and the table of each; `inspector.bind` is a connection."""

    @abstractmethod
    def table_name(self, endpoint: str) -> str:
        """The table of `endpoint`, whether it exists or not."""

    @abstractmethod
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        """The message of a row (column name -> value); raises InvalidMessageError with the fault."""

    def row_id(self, row: Mapping[str, Any]) -> str:
        """How people find the row; reads the `id_column` alone."""
        return str(row[self.id_column])

    def destination(self, value: Any) -> str:
        """The destination that `to_message` makes of a value of the `destination_column`."""
        return str(value)

    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        """(message_id, destination, due_time) as in `to_message`."""
        message = self.to_message(row, endpoint)
        return message.message_id, message.destination, message.due_time

    def of_endpoint(self, table: Table, endpoint: str) -> ColumnElement[bool] | None:  # noqa: ARG002 - for overriders
        """Which rows are the endpoint's; None: all of them."""
        return None

    def partitions(self, connection: Connection, source: Table) -> Table | None:  # noqa: ARG002 - for overriders
        """A table whose ids may wait beside those of `source`, or soon will; None: there is none."""
        return None

    def note_moved(self, connection: Connection, tables: "RunTables", number: int) -> None:  # noqa: B027 - most need nothing
        """Note at the source, in the transaction that completes a batch, that its rows have moved to the target."""

    def free(self, table: Table, now: datetime) -> ColumnElement[bool] | None:  # noqa: ARG002 - for overriders
        """Which rows no dispatcher has claimed at `now`; None: row locks tell."""
        return None

    def types(self) -> Mapping[str, TypeEngine[Any]]:
        """Types for columns that reflection does not tell well enough."""
        return {}


class Instant(TypeDecorator[datetime]):
    """An aware datetime in UTC, in a column of any type of time; one without a time zone holds UTC."""

    impl = DateTime
    cache_ok = True

    def __init__(self, reflected: TypeEngine[Any]) -> None:
        self.reflected = reflected
        super().__init__()

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(self.reflected)

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC, aware where the column is."""
        if value is None:
            return None
        aware = isinstance(self.reflected, DATETIMEOFFSET) or bool(getattr(self.reflected, "timezone", False))
        value = value.astimezone(UTC)
        return value if aware else value.replace(tzinfo=None)

    @override
    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """To an aware UTC datetime; a value that the driver could not convert comes as it is."""
        if not isinstance(value, datetime):
            return value
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class EpochSeconds(TypeDecorator[datetime]):
    """An aware datetime in UTC, in a column of seconds since 1970, to the microsecond."""

    impl = Double
    cache_ok = True

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> float | None:
        return None if value is None else value.timestamp()

    @override
    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """A value that Python cannot represent as an instant comes as it is."""
        try:
            return None if value is None else datetime.fromtimestamp(value, UTC)
        except (OverflowError, TypeError, ValueError):
            return value


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
    layout: TableLayout
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
        layout = self.layout
        return self.source.c[layout.order_column or layout.time_column], self.source.c[layout.id_column]

    @property
    def left(self) -> ColumnElement[int]:
        """Of a row of `batches`: how many of its rows were neither rejected nor given back."""
        columns = self.batches.c
        return columns.prepared - columns.rejected - columns.returned

    @property
    def created(self) -> Sequence[Table]:
        """The tables that a run makes, in the order to drop them in: the records of the rows after the rows."""
        return [self.side, self.batches, self.runs]


def run_tables(connection: Connection, layout: TableLayout, endpoint: str, schema: str | None) -> RunTables:
    """The tables of the endpoint, as the database has them; StoreSetupError where its own is missing."""
    inspector = inspect(connection)
    name, dialect = layout.table_name(endpoint), dialect_of(connection, DIALECTS)
    if not inspector.has_table(name, schema=schema):
        known = ", ".join(sorted(layout.tables(inspector, schema))) or "none"
        where = f" in the schema {schema!r}" if schema else ""
        raise StoreSetupError(
            f"there is no table {name!r}{where} for the endpoint {endpoint!r}; endpoints found here: {known}"
        )
    source = _source_table(inspector, layout, name, schema)
    side = source.to_metadata(MetaData(), name=quoted_name(derived_name(name, SIDE, dialect), quote=True))
    side.append_column(Column(BATCH, Integer, nullable=False))
    side.append_column(Column(REJECTED, Text))
    return RunTables(
        endpoint=endpoint,
        layout=layout,
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


def _source_table(inspector: Inspector, layout: TableLayout, name: str, schema: str | None) -> Table:
    """With the columns that can be written; one that the database computes is computed again when a row goes back.

    Only values that we search by are converted; the others are copied unread, so no conversion can change them.
    """
    ours = (BATCH, REJECTED)  # `check` reports a source that has such columns
    times, plain = (layout.time_column, layout.order_column), (layout.id_column, layout.destination_column)
    types = layout.types()
    columns = []
    for column in inspector.get_columns(name, schema=schema):
        reflected = column["type"]
        if column.get("computed") or column["name"] in ours:
            continue
        read = Instant(reflected) if column["name"] in times else reflected if column["name"] in plain else NullType()
        type_ = types.get(column["name"], read)
        columns.append(Column(column["name"], type_, quote=True, info={REFLECTED: reflected}))
    return quoted_table(name, schema, *columns)


def runs_table(name: str, schema: str | None) -> Table:
    """A row for each run; `holder`: who had the lock last."""
    return quoted_table(
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
    """`prepared` is fixed; `rejected` counts rows in the side table, `returned` counts rows that went back."""
    table = quoted_table(
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
