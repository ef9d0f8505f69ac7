"""A migration's source in a SQL database: tables by their layout, and delaystore's own."""

import os
import socket
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final

from sqlalchemy import URL, ColumnElement, Connection, Inspector, Table, inspect
from sqlalchemy.types import TypeEngine
from typing_extensions import override

from delaystore.errors import ConfigurationError, MigrationLockedError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import (
    BatchStatus,
    Checksum,
    Identity,
    MigrationBatch,
    MigrationRow,
    MigrationRun,
    MigrationSource,
    Problem,
    Recurring,
    Rejected,
    RunCounts,
    RunParameters,
    RunStatus,
    WaitingCounts,
)
from delaystore.migrations.sources._sql import _preparing, _reading, _runs
from delaystore.migrations.sources._sql._database import Database
from delaystore.migrations.sources._sql.tables import RunTables, TableLayout, run_tables
from delaystore.stores.sql.codec import FAILURES, FAILURES_OF, MESSAGE_KEY, NAMES
from delaystore.stores.sql.dialects import STORE_DIALECTS, store_dialect_of
from delaystore.stores.sql.errors import configuration_errors
from delaystore.stores.sql.rows import to_readable_message
from delaystore.stores.sql.schema import delayed_table, partitions_table
from delaystore.stores.sql.urls import check_identifier, database_url, default_table_name


class SqlSource(MigrationSource):
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
        self._schema = url_parameter(parsed, "schema")
        self._layout = layout
        self._database = Database(parsed.difference_update_query(["schema"]))
        if self._schema is not None:
            check_identifier(self._schema, self._database.dialect, "the schema name")
        self._known: dict[str, RunTables] = {}
        self._left: dict[str, dict[str, Rejected]] = {}
        self._refused: dict[str, dict[str, Rejected]] = {}
        self.leaves_rejected = layout.leaves_rejected
        self._holder = f"{socket.gethostname()}, process {os.getpid()}"

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
    @contextmanager
    def lock(self, endpoint: str, holder: str) -> Iterator[None]:
        """Locks the endpoint's table. The lock ends with the connection, or with the process (SQLite)."""
        tables = self._tables(endpoint)
        with self._database.exclusive(self._database.key_of(tables.source), holder) as other:
            if other is not None:
                named = _runs.noted_holder(self._database, tables) or other
                raise MigrationLockedError(
                    f"{tables.source.name!r} is being migrated by {named}; wait until it ends, or stop it"
                )
            self._holder = holder
            with _preparing.naming_missing_grants(self._database, tables):
                _runs.note_holder(self._database, tables, holder)
            yield

    @override
    def runs(self, endpoint: str) -> Sequence[MigrationRun]:
        tables = self._tables(endpoint)
        with _preparing.naming_missing_grants(self._database, tables):
            return _runs.remembered(self._database, tables)

    @override
    def begin(self, parameters: RunParameters) -> MigrationRun:
        """The rows of earlier runs stay in the side table until each run is cleaned up.

        Raises MigrationError for an unfinished run, tables of another layout, rows of an unknown run;
        StorePermissionError saying what to grant.
        """
        self._known.pop(parameters.endpoint, None)
        tables = self._tables(parameters.endpoint)
        with _preparing.naming_missing_grants(self._database, tables):
            return _runs.begin(self._database, tables, parameters, self._holder)

    @override
    def prepare(self, run: MigrationRun) -> Iterator[MigrationBatch]:
        """What a dispatcher has claimed in each of three passes stays with it."""
        tables = self._tables_of(run)
        with _preparing.naming_missing_grants(self._database, tables):
            left, refused = (found.setdefault(run.run_id, {}) for found in (self._left, self._refused))
            yield from _preparing.prepare(self._database, tables, run, ChainMap(left, refused))

    @override
    def left(self, run: MigrationRun) -> Sequence[Rejected]:
        return list(self._left.get(run.run_id, {}).values())

    @override
    def set_status(self, run: MigrationRun, status: RunStatus) -> MigrationRun:
        return _runs.set_status(self._database, self._tables_of(run), run, status)

    @override
    def batches(self, run: MigrationRun, *statuses: BatchStatus) -> Sequence[MigrationBatch]:
        """Counts leave out what was rejected or given back."""
        return _runs.batches(self._database, self._tables_of(run), run, statuses)

    @override
    def stage(self, run: MigrationRun, batch: MigrationBatch) -> Sequence[MigrationRow | Rejected]:
        """Raises MigrationError for a batch that is COMPLETED."""
        return _runs.stage(self._database, self._tables_of(run), run, batch)

    @override
    def complete(self, run: MigrationRun, batch: MigrationBatch, rejected: Sequence[Rejected]) -> None:
        """Raises MigrationError for a batch that is not STAGED, or a row that is not in it."""
        _runs.complete(self._database, self._tables_of(run), run, batch, rejected)
        if rejected and self.leaves_rejected:
            self._refused.setdefault(run.run_id, {}).update((one.row_id, one) for one in rejected)

    @override
    def give_back(self, run: MigrationRun, *, rejected: bool) -> Iterator[int]:
        """A row whose id waits in the table again stays, as rejected."""
        tables = self._tables_of(run)
        with _preparing.naming_missing_grants(self._database, tables):
            yield from _runs.give_back(self._database, tables, run, rejected=rejected)

    @override
    def counts(self, run: MigrationRun) -> RunCounts:
        return _runs.counts(self._database, self._tables_of(run), run)

    @override
    def in_flight(self, run: MigrationRun) -> int:
        return _runs.in_flight(self._database, self._tables_of(run), run)

    @override
    def rejections(self, run: MigrationRun, limit: int | None) -> Sequence[Rejected]:
        return _runs.rejections(self._database, self._tables_of(run), run, limit)

    @override
    def moved_checksum(self, run: MigrationRun) -> Checksum:
        """Reads the rows again."""
        return _reading.moved_checksum(self._database, self._tables_of(run), run)

    @override
    def moved(self, run: MigrationRun) -> Iterator[Sequence[Identity]]:
        """A page for each batch."""
        return _reading.moved(self._database, self._tables_of(run), run)

    @override
    def clean_up(self, run: MigrationRun) -> None:
        """While other runs are not cleaned up, only the run's own rows are deleted. Runs without a row are forgotten.

        Rejected rows are deleted, too. MigrationError while rows have neither moved nor gone back.
        """
        tables = self._tables_of(run)
        with _preparing.naming_missing_grants(self._database, tables):
            _runs.clean_up(self._database, tables, run)
        self._known.clear()

    @override
    def now(self) -> datetime:
        return self._database.now()

    @override
    def close(self) -> None:
        self._database.close()

    def _tables_of(self, run: MigrationRun) -> RunTables:
        return self._tables(run.parameters.endpoint)

    def _tables(self, endpoint: str) -> RunTables:
        """Looked up once for a run."""
        if endpoint not in self._known:
            with self._database.reading() as connection:
                self._known[endpoint] = run_tables(connection, self._layout, endpoint, self._schema)
        return self._known[endpoint]


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

    Headers, properties, failure count, next attempt and key come along, so that another store gets all of a message;
    tables of releases before keys have none.
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
        message = to_readable_message([row[name] for name in NAMES], row.get(MESSAGE_KEY))
        return replace(message, next_attempt=message.due_time) if message.is_parked else message

    @override
    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        return row["message_id"], row["destination"], row["due_time"]

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
