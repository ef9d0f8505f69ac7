"""Messages in the tables of a SQL database, as a migration's source."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import URL, inspect, make_url

from delaystore.errors import MigrationLockedError
from delaystore.migrations.abc import (
    Batch,
    BatchStatus,
    EndpointPreview,
    MigrationSource,
    Problem,
    Rejected,
    Row,
    Run,
    RunCounts,
    RunParameters,
    RunStatus,
)
from delaystore.migrations.checksum import Checksum
from delaystore.migrations.sources.sql import (
    batches,
    checking,
    cleaning,
    history,
    preparing,
    previewing,
    proving,
    returning,
)
from delaystore.migrations.sources.sql.database import Database
from delaystore.migrations.sources.sql.shape import TableShape
from delaystore.migrations.sources.sql.tables import RunTables, run_tables
from delaystore.stores.sql.names import check_identifier
from delaystore.stores.sql.translation import configuration_errors


class SqlSource(MigrationSource):
    """Messages in tables of PostgreSQL, MariaDB, MySQL, SQLite or SQL Server, of any shape.

    `url`: a SQLAlchemy URL; `?schema=NAME` in it names the tables' schema (else: the connection's own), the rest of its
    query goes to the driver. The user needs SELECT, INSERT, UPDATE and DELETE on the table, and the right to create
    and drop tables beside it.

    While a lock is held all work goes through one connection, which also holds the lock. A pooler between (pgbouncer)
    must give a connection a session of its own.

    Raises ConfigurationError for a URL that cannot work, MissingDependencyError for a missing driver.
    """

    def __init__(self, url: str, shape: TableShape) -> None:
        with configuration_errors():
            parsed = make_url(url)
        self._schema = schema_of(parsed)
        self._shape = shape
        self._database = Database(parsed.difference_update_query(["schema"]))
        if self._schema is not None:
            check_identifier(self._schema, self._database.dialect_name, "the schema name")
        self._known: dict[str, RunTables] = {}
        self._holder = f"{socket.gethostname()}, process {os.getpid()}"

    @property
    def label(self) -> str:
        """The kind, and the URL without password and options."""
        schema = f" (schema {self._schema})" if self._schema else ""
        return f"{self._shape.kind} in {self._database.label}{schema}"

    def endpoints(self) -> Sequence[str]:
        """By name."""
        with self._database.reading() as connection:
            return sorted(self._shape.tables(inspect(connection), self._schema))

    def check(self, endpoint: str) -> Sequence[Problem]:
        """A missing table or column, an id that is no key, tables of another layout, a missing right."""
        return checking.check(self._database, self._shape, endpoint, self._schema)

    def preview(self, endpoint: str, cutoff: datetime | None) -> EndpointPreview:
        """Counted by the database."""
        return previewing.preview(self._database, self._tables(endpoint), cutoff)

    def late(self, endpoint: str, due_after: datetime) -> int:
        """Counted by the database."""
        return previewing.late(self._database, self._tables(endpoint), due_after)

    @contextmanager
    def lock(self, endpoint: str, holder: str) -> Iterator[None]:
        """Of the endpoint's table. The database ends it with the connection, the system with the process (SQLite)."""
        tables = self._tables(endpoint)
        with self._database.exclusive(self._database.key_of(tables.source), holder) as other:
            if other is not None:
                named = history.noted_holder(self._database, tables) or other
                raise MigrationLockedError(
                    f"{tables.source.name!r} is being migrated by {named}; wait until it ends, or stop it"
                )
            self._holder = holder
            with checking.told_what_to_grant(self._database, tables):
                history.note_holder(self._database, tables, holder)
            yield

    def run(self, endpoint: str) -> Run | None:
        """From the run's table."""
        tables = self._tables(endpoint)
        with checking.told_what_to_grant(self._database, tables):
            return history.latest(self._database, tables)

    def begin(self, parameters: RunParameters) -> Run:
        """The rows of earlier runs stay in the side table until each run is cleaned up.

        Raises MigrationError for a run that is not at its end, tables of another layout, rows of an unknown run;
        StorePermissionError saying what to grant.
        """
        self._known.pop(parameters.endpoint, None)
        tables = self._tables(parameters.endpoint)
        with checking.told_what_to_grant(self._database, tables):
            return history.begin(self._database, tables, parameters, self._holder)

    def prepare(self, run: Run) -> Iterator[Batch]:
        """See the contract; what a dispatcher holds in each of three passes stays with it."""
        tables = self._tables_of(run)
        with checking.told_what_to_grant(self._database, tables):
            yield from preparing.prepare(self._database, tables, run)

    def set_status(self, run: Run, status: RunStatus) -> Run:
        """See the contract."""
        return history.set_status(self._database, self._tables_of(run), run, status)

    def batches(self, run: Run, *statuses: BatchStatus) -> Sequence[Batch]:
        """See the contract; counts leave out what was rejected or given back."""
        return batches.batches(self._database, self._tables_of(run), run, statuses)

    def stage(self, run: Run, batch: Batch) -> Sequence[Row | Rejected]:
        """See the contract; MigrationError for a batch that is COMPLETED."""
        return batches.stage(self._database, self._tables_of(run), run, batch)

    def complete(self, run: Run, batch: Batch, rejected: Sequence[Rejected]) -> None:
        """See the contract; MigrationError for a batch that is not STAGED, or a row that is not in it."""
        batches.complete(self._database, self._tables_of(run), run, batch, rejected)

    def give_back(self, run: Run, *, rejected: bool) -> Iterator[int]:
        """See the contract; a row whose id waits in the table again stays, as rejected."""
        tables = self._tables_of(run)
        with checking.told_what_to_grant(self._database, tables):
            yield from returning.give_back(self._database, tables, run, rejected=rejected)

    def counts(self, run: Run) -> RunCounts:
        """See the contract."""
        return batches.counts(self._database, self._tables_of(run), run)

    def rejections(self, run: Run, limit: int) -> Sequence[Rejected]:
        """See the contract."""
        return batches.rejections(self._database, self._tables_of(run), run, limit)

    def moved_checksum(self, run: Run) -> Checksum:
        """See the contract; reads the rows again."""
        return proving.moved_checksum(self._database, self._tables_of(run), run)

    def moved_ids(self, run: Run) -> Iterator[Sequence[str]]:
        """See the contract; a page for each batch."""
        return proving.moved_ids(self._database, self._tables_of(run), run)

    def clean_up(self, run: Run) -> None:
        """See the contract; while other runs are not cleaned up, only the run's own rows are deleted.

        Rejected rows go with it. MigrationError while rows have neither moved nor gone back.
        """
        tables = self._tables_of(run)
        with checking.told_what_to_grant(self._database, tables):
            cleaning.clean_up(self._database, tables, run)
        self._known.clear()

    def now(self) -> datetime:
        """The database's clock (SQLite: this computer's)."""
        return self._database.now()

    def close(self) -> None:
        """See the contract."""
        self._database.close()

    def _tables_of(self, run: Run) -> RunTables:
        return self._tables(run.parameters.endpoint)

    def _tables(self, endpoint: str) -> RunTables:
        """Looked up once for a run."""
        if endpoint not in self._known:
            with self._database.reading() as connection:
                self._known[endpoint] = run_tables(connection, self._shape, endpoint, self._schema)
        return self._known[endpoint]


def schema_of(url: URL) -> str | None:
    """The schema that a URL's query names; None: the connection's own."""
    schema = url.query.get("schema")
    return schema if isinstance(schema, str) else None
