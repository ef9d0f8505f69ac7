"""A migration's source in a SQL database: tables by their layout, and delaystore's own."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final

from sqlalchemy import URL, ColumnElement, Connection, Inspector, Table, inspect
from sqlalchemy.types import TypeEngine
from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import Identity, MigrationRow, Problem, Recurring, Rejected, WaitingCounts
from delaystore.migrations.sources._sql import _preparing, _reading
from delaystore.migrations.sources._sql._database import Database
from delaystore.migrations.sources._sql._runs import SqlRuns
from delaystore.migrations.sources._sql.tables import BATCH, REJECTED, RunTables, TableLayout
from delaystore.settings import TransactionMode
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.codec import FAILURES, FAILURES_OF, MESSAGE_KEY, NAMES, NOT_AFTER
from delaystore.stores.sql.dialects import STORE_DIALECTS, store_dialect_of
from delaystore.stores.sql.errors import configuration_errors
from delaystore.stores.sql.rows import to_readable_message
from delaystore.stores.sql.schema import delayed_table, partitions_table
from delaystore.stores.sql.urls import check_identifier, database_url, default_table_name


class SqlSource(SqlRuns):
    """Messages in tables of PostgreSQL, MariaDB, MySQL, SQLite or SQL Server, of any layout.

    `url`: SQLAlchemy's; `?schema=NAME` in it names the tables' schema (else: the connection's own), the rest of its
    query goes to the driver. The user needs SELECT, INSERT, UPDATE and DELETE on the table, and the right to create
    and drop tables beside it.

    While it has a lock, all work goes through the one connection that has it. A pooler between (pgbouncer)
    must give a connection a session of its own.

    Raises ConfigurationError for a URL that cannot work, MissingDependencyError for a missing driver.
    """

    def __init__(self, url: str | URL, layout: TableLayout) -> None:
        with configuration_errors():
            parsed = database_url(url)
        schema = url_parameter(parsed, "schema")
        super().__init__(Database(parsed.difference_update_query(["schema"])), layout, schema)
        if schema is not None:
            check_identifier(schema, self._database.dialect, "the schema name")

    @property
    @override
    def label(self) -> str:
        """The kind, and the URL without password and options."""
        schema = f" (schema {self._schema})" if self._schema else ""
        return f"{self._layout.kind} in {self._database.label}{schema}"

    @override
    def endpoints(self) -> Sequence[str]:
        with self._database.reading() as connection:
            return sorted(self._layout.tables(inspect(connection), self._schema))

    @override
    def check(self, endpoint: str) -> Sequence[Problem]:
        """A missing table or column, an id that is no key, tables of another layout, a missing right."""
        return _preparing.check(self._database, self._layout, endpoint, self._schema)

    @override
    def waiting(self, endpoint: str, cutoff: datetime | None) -> WaitingCounts:
        found = _reading.waiting(self._database, self._tables(endpoint), cutoff)
        if not self._layout.has_recurring:
            return found
        rows = (row for page in self.would_move(endpoint, cutoff) for row in page)
        recurring = Counter(row.destination for row in rows if isinstance(row, Recurring))
        destinations = Counter(found.destinations) - recurring
        count = destinations.total()
        staying = found.staying + found.count - count
        return replace(found, count=count, destinations=dict(destinations), staying=staying)

    @override
    def late(self, endpoint: str, due_after: datetime) -> int:
        return _reading.late(self._database, self._tables(endpoint), due_after)

    @override
    def would_move(self, endpoint: str, cutoff: datetime | None) -> Iterator[Sequence[MigrationRow | Rejected]]:
        return _reading.would_move(self._database, self._tables(endpoint), cutoff)

    @override
    def now(self) -> datetime:
        return self._database.now()

    @override
    def close(self) -> None:
        self._database.close()


def url_parameter(url: URL, name: str) -> str | None:
    """The value of a parameter of a URL's query; None: it is not there. ConfigurationError where it is twice."""
    value = url.query.get(name)
    if isinstance(value, tuple):
        raise ConfigurationError(f"the parameter {name} is given twice")
    return value


_TABLE: Final = delayed_table("any", None, STORE_DIALECTS["sqlite"])
_SUFFIX: Final = default_table_name("")


class DelaystoreLayout(TableLayout):
    """`<endpoint>_delayed`, or the one `table` of a store that was given one.

    Headers, properties, failure count, next attempt, key and latest delivery come along, so that another store gets
    all of a message; tables of earlier releases have no keys, or no latest deliveries.
    """

    kind = "delaystore"
    columns: ClassVar[Mapping[str, str]] = {name: f"the message's {name}" for name in NAMES}
    missing_column_advice = " If an older release made it, run `delaystore setup` on the source first"
    id_column = "message_id"
    time_column = "due_time"
    order_column = "next_attempt"
    destination_column = "destination"
    identity_columns = ("message_id", "destination", "due_time")

    def __init__(self, table: str | None = None) -> None:
        self._table = table

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """The tables that stores have set up; a given `table` is listed as the endpoint of its own name."""
        names = set(inspector.get_table_names(schema=schema))
        if self._table is not None:
            return {self._table: self._table} if self._table in names else {}
        stores = sorted(name for name in names if name.endswith(_SUFFIX) and f"{name}_version" in names)
        return {name.removesuffix(_SUFFIX): name for name in stores if name != _SUFFIX}

    @override
    def table_name(self, endpoint: str) -> str:
        return self._table or default_table_name(endpoint)

    @override
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        """All of the message, as a store would fetch it. A parked one is shown: its pause stays at the source."""
        message = to_readable_message([row[name] for name in NAMES], row.get(MESSAGE_KEY), row.get(NOT_AFTER))
        return replace(message, next_attempt=message.due_time) if message.is_parked else message

    @override
    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        return row["message_id"], row["destination"], row["due_time"]

    @override
    def note_moved(self, connection: Connection, tables: RunTables, number: int) -> None:
        """As entries of the history, if one is kept; rejected rows have none."""
        source, side = tables.source, tables.side
        store = SqlDelayedMessageStore(connection.engine, schema=source.schema, table=source.name)
        store.initialize(tables.endpoint, TransactionMode.NONE)
        store.enlist(connection).note_moved(side, (side.c[BATCH] == number) & side.c[REJECTED].is_(None))

    @override
    def free(self, table: Table, now: datetime) -> ColumnElement[bool] | None:
        """Where claims are leases (SQLite): the rows without a lease, or whose lease has ended."""
        if "claimed_by" not in table.c:
            return None
        return table.c.claimed_by.is_(None) | (table.c.claimed_until <= now)

    @override
    def partitions(self, connection: Connection, source: Table) -> Table | None:
        dialect = store_dialect_of(connection)
        if dialect.bulk is None:
            return None
        partitions = partitions_table(source, dialect)
        return partitions if inspect(connection).has_table(partitions.name, schema=partitions.schema) else None

    @override
    def types(self) -> Mapping[str, TypeEngine[Any]]:
        return {column.name: column.type for column in _TABLE.columns if column.name not in (FAILURES, FAILURES_OF)}


def open_delaystore_source(url: str) -> SqlSource:
    """The delaystore SQL store at `url`; `?schema=NAME` and `?table=NAME` where they are not the defaults."""
    with configuration_errors():
        parsed = database_url(url)
    return SqlSource(parsed.difference_update_query(["table"]), DelaystoreLayout(url_parameter(parsed, "table")))
