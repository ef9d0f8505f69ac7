"""Messages in the tables of a SQL database, as a migration's source."""

import os
import socket
from collections import ChainMap, Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from sqlalchemy import URL, inspect
from typing_extensions import override

from delaystore.errors import ConfigurationError, MigrationLockedError
from delaystore.migrations._checksum import Checksum, Identity
from delaystore.migrations.abc import (
    Batch,
    BatchStatus,
    MigrationSource,
    Problem,
    Recurring,
    Rejected,
    Row,
    Run,
    RunCounts,
    RunParameters,
    RunStatus,
    Waiting,
)
from delaystore.migrations.sources._sql import (
    batches,
    checking,
    preparing,
    previewing,
    reading,
    returning,
    runs,
    waiting,
)
from delaystore.migrations.sources._sql.database import Database
from delaystore.migrations.sources._sql.shape import TableShape
from delaystore.migrations.sources._sql.tables import RunTables, run_tables
from delaystore.sql.errors import configuration_errors
from delaystore.sql.names import check_identifier
from delaystore.sql.urls import database_url


class SqlSource(MigrationSource):
    """Messages in tables of PostgreSQL, MariaDB, MySQL, SQLite or SQL Server, of any shape.

    `url`: SQLAlchemy's; `?schema=NAME` in it names the tables' schema (else: the connection's own), the rest of its
    query goes to the driver. The user needs SELECT, INSERT, UPDATE and DELETE on the table, and the right to create
    and drop tables beside it.

    While it has a lock, all work goes through the one connection that has it. A pooler between (pgbouncer)
    must give a connection a session of its own.

    Raises ConfigurationError for a URL that cannot work, MissingDependencyError for a missing driver.
    """

    def __init__(self, url: str | URL, shape: TableShape) -> None:
        with configuration_errors():
            parsed = database_url(url)
        self._schema = url_parameter(parsed, "schema")
        self._shape = shape
        self._database = Database(parsed.difference_update_query(["schema"]))
        if self._schema is not None:
            check_identifier(self._schema, self._database.dialect, "the schema name")
        self._known: dict[str, RunTables] = {}
        self._left: dict[str, dict[str, Rejected]] = {}
        self._refused: dict[str, dict[str, Rejected]] = {}
        self.leaves_rejected = shape.leaves_rejected
        self._holder = f"{socket.gethostname()}, process {os.getpid()}"

    @property
    @override
    def label(self) -> str:
        """The kind, and the URL without password and options."""
        schema = f" (schema {self._schema})" if self._schema else ""
        return f"{self._shape.kind} in {self._database.label}{schema}"

    @override
    def endpoints(self) -> Sequence[str]:
        with self._database.reading() as connection:
            return sorted(self._shape.tables(inspect(connection), self._schema))

    @override
    def check(self, endpoint: str) -> Sequence[Problem]:
        """A missing table or column, an id that is no key, tables of another layout, a missing right."""
        return checking.check(self._database, self._shape, endpoint, self._schema)

    @override
    def waiting(self, endpoint: str, cutoff: datetime | None) -> Waiting:
        found = waiting.waiting(self._database, self._tables(endpoint), cutoff)
        if not self._shape.has_recurring:
            return found
        rows = (row for page in self.would_move(endpoint, cutoff) for row in page)
        recurring = Counter(row.destination for row in rows if isinstance(row, Recurring))
        destinations = Counter(found.destinations) - recurring
        count = destinations.total()
        staying = found.staying + found.count - count
        return replace(found, count=count, destinations=dict(destinations), staying=staying)

    @override
    def late(self, endpoint: str, due_after: datetime) -> int:
        return waiting.late(self._database, self._tables(endpoint), due_after)

    @override
    def would_move(self, endpoint: str, cutoff: datetime | None) -> Iterator[Sequence[Row | Rejected]]:
        return previewing.would_move(self._database, self._tables(endpoint), cutoff)

    @override
    @contextmanager
    def lock(self, endpoint: str, holder: str) -> Iterator[None]:
        """Locks the endpoint's table. The lock ends with the connection, or with the process (SQLite)."""
        tables = self._tables(endpoint)
        with self._database.exclusive(self._database.key_of(tables.source), holder) as other:
            if other is not None:
                named = runs.noted_holder(self._database, tables) or other
                raise MigrationLockedError(
                    f"{tables.source.name!r} is being migrated by {named}; wait until it ends, or stop it"
                )
            self._holder = holder
            with checking.naming_missing_grants(self._database, tables):
                runs.note_holder(self._database, tables, holder)
            yield

    @override
    def runs(self, endpoint: str) -> Sequence[Run]:
        tables = self._tables(endpoint)
        with checking.naming_missing_grants(self._database, tables):
            return runs.remembered(self._database, tables)

    @override
    def begin(self, parameters: RunParameters) -> Run:
        """The rows of earlier runs stay in the side table until each run is cleaned up.

        Raises MigrationError for an unfinished run, tables of another layout, rows of an unknown run;
        StorePermissionError saying what to grant.
        """
        self._known.pop(parameters.endpoint, None)
        tables = self._tables(parameters.endpoint)
        with checking.naming_missing_grants(self._database, tables):
            return runs.begin(self._database, tables, parameters, self._holder)

    @override
    def prepare(self, run: Run) -> Iterator[Batch]:
        """What a dispatcher has claimed in each of three passes stays with it."""
        tables = self._tables_of(run)
        with checking.naming_missing_grants(self._database, tables):
            left, refused = (found.setdefault(run.run_id, {}) for found in (self._left, self._refused))
            yield from preparing.prepare(self._database, tables, run, ChainMap(left, refused))

    @override
    def left(self, run: Run) -> Sequence[Rejected]:
        return list(self._left.get(run.run_id, {}).values())

    @override
    def set_status(self, run: Run, status: RunStatus) -> Run:
        return runs.set_status(self._database, self._tables_of(run), run, status)

    @override
    def batches(self, run: Run, *statuses: BatchStatus) -> Sequence[Batch]:
        """Counts leave out what was rejected or given back."""
        return batches.batches(self._database, self._tables_of(run), run, statuses)

    @override
    def stage(self, run: Run, batch: Batch) -> Sequence[Row | Rejected]:
        """Raises MigrationError for a batch that is COMPLETED."""
        return batches.stage(self._database, self._tables_of(run), run, batch)

    @override
    def complete(self, run: Run, batch: Batch, rejected: Sequence[Rejected]) -> None:
        """Raises MigrationError for a batch that is not STAGED, or a row that is not in it."""
        batches.complete(self._database, self._tables_of(run), run, batch, rejected)
        if rejected and self.leaves_rejected:
            self._refused.setdefault(run.run_id, {}).update((one.row_id, one) for one in rejected)

    @override
    def give_back(self, run: Run, *, rejected: bool) -> Iterator[int]:
        """A row whose id waits in the table again stays, as rejected."""
        tables = self._tables_of(run)
        with checking.naming_missing_grants(self._database, tables):
            yield from returning.give_back(self._database, tables, run, rejected=rejected)

    @override
    def counts(self, run: Run) -> RunCounts:
        return batches.counts(self._database, self._tables_of(run), run)

    @override
    def in_flight(self, run: Run) -> int:
        return batches.in_flight(self._database, self._tables_of(run), run)

    @override
    def rejections(self, run: Run, limit: int | None) -> Sequence[Rejected]:
        return batches.rejections(self._database, self._tables_of(run), run, limit)

    @override
    def moved_checksum(self, run: Run) -> Checksum:
        """Reads the rows again."""
        return reading.moved_checksum(self._database, self._tables_of(run), run)

    @override
    def moved(self, run: Run) -> Iterator[Sequence[Identity]]:
        """A page for each batch."""
        return reading.moved(self._database, self._tables_of(run), run)

    @override
    def clean_up(self, run: Run) -> None:
        """While other runs are not cleaned up, only the run's own rows are deleted. Runs without a row are forgotten.

        Rejected rows are deleted, too. MigrationError while rows have neither moved nor gone back.
        """
        tables = self._tables_of(run)
        with checking.naming_missing_grants(self._database, tables):
            runs.clean_up(self._database, tables, run)
        self._known.clear()

    @override
    def now(self) -> datetime:
        return self._database.now()

    @override
    def close(self) -> None:
        self._database.close()

    def _tables_of(self, run: Run) -> RunTables:
        return self._tables(run.parameters.endpoint)

    def _tables(self, endpoint: str) -> RunTables:
        """Looked up once for a run."""
        if endpoint not in self._known:
            with self._database.reading() as connection:
                self._known[endpoint] = run_tables(connection, self._shape, endpoint, self._schema)
        return self._known[endpoint]


def url_parameter(url: URL, name: str) -> str | None:
    """The value of a parameter of a URL's query; None: it is not there. ConfigurationError where it is twice."""
    value = url.query.get(name)
    if isinstance(value, tuple):
        raise ConfigurationError(f"the parameter {name} is given twice")
    return value
