"""A file of messages, as a migration's source."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import URL

from delaystore.errors import MigrationError
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
from delaystore.migrations.sources.file import survey
from delaystore.migrations.sources.file.options import FileOptions, file_options
from delaystore.migrations.sources.file.shape import LinesShape
from delaystore.migrations.sources.file.state import Input, State, digest_of, reading_of
from delaystore.migrations.sources.sql.source import SqlSource


class FileSource(MigrationSource):
    """Messages in a file of JSON lines or a Parquet file, which is never changed.

    `url`: file:///PATH?FIELD=COLUMN&..., see `options`. The lines are loaded into `FILE.migration.sqlite`, beside it,
    when a run begins; there they are moved as from any SQL table, and there stays known what was moved. Until then the
    file is read anew for each question, a line at a time.

    Raises ConfigurationError for a URL that cannot work.
    """

    def __init__(self, url: str) -> None:
        self._options = file_options(url)
        state_url = _sqlite_url(self._options)
        self._state = State(self._options, state_url)
        self._lines = SqlSource(state_url, LinesShape(by_endpoint="endpoint" in self._options.columns))

    @property
    def label(self) -> str:
        """The file's path."""
        return f"the file {self._options.path}"

    def endpoints(self) -> Sequence[str]:
        """Those that its lines name; its own name, less the ending, where no column says it."""
        return survey.endpoints(self._options)

    def check(self, endpoint: str) -> Sequence[Problem]:
        """Lines that are no messages; a place that cannot be written; a file that changed since it was loaded."""
        loaded = self._state.loaded()
        if loaded is None:
            return [*survey.check(self._options, endpoint), *self._place()]
        return [*self._changes(loaded), *self._lines.check(endpoint)]

    def preview(self, endpoint: str, cutoff: datetime | None) -> EndpointPreview:
        """Of the file; once it is loaded, of what has not moved."""
        if self._state.loaded() is None:
            return survey.preview(self._options, endpoint, cutoff)
        return self._lines.preview(endpoint, cutoff)

    def late(self, endpoint: str, due_after: datetime) -> int:
        """Of the file; once it is loaded, of what has not moved."""
        if self._state.loaded() is None:
            return survey.late(self._options, endpoint, due_after)
        return self._lines.late(endpoint, due_after)

    @contextmanager
    def lock(self, endpoint: str, holder: str) -> Iterator[None]:
        """Of the whole file, whatever the endpoint."""
        self._state.create()
        with self._lines.lock(endpoint, holder):
            yield

    def run(self, endpoint: str) -> Run | None:
        """See the contract."""
        return None if self._state.loaded() is None else self._lines.run(endpoint)

    def begin(self, parameters: RunParameters) -> Run:
        """Loads the file, if it was not. Raises MigrationError where it changed since, or is now read differently."""
        self._state.create()
        at = parameters.cutoff or self.now()
        self._state.load(parameters.endpoint, at)
        loaded = self._state.loaded()
        assert loaded is not None
        for problem in self._changes(loaded):
            raise MigrationError(problem.text)
        return self._lines.begin(parameters)

    def prepare(self, run: Run) -> Iterator[Batch]:
        """See the contract."""
        return self._lines.prepare(run)

    def set_status(self, run: Run, status: RunStatus) -> Run:
        """See the contract."""
        return self._lines.set_status(run, status)

    def batches(self, run: Run, *statuses: BatchStatus) -> Sequence[Batch]:
        """See the contract."""
        return self._lines.batches(run, *statuses)

    def stage(self, run: Run, batch: Batch) -> Sequence[Row | Rejected]:
        """See the contract."""
        return self._lines.stage(run, batch)

    def complete(self, run: Run, batch: Batch, rejected: Sequence[Rejected]) -> None:
        """See the contract."""
        self._lines.complete(run, batch, rejected)

    def give_back(self, run: Run, *, rejected: bool) -> Iterator[int]:
        """To the lines that have not moved."""
        return self._lines.give_back(run, rejected=rejected)

    def counts(self, run: Run) -> RunCounts:
        """See the contract."""
        return self._lines.counts(run)

    def rejections(self, run: Run, limit: int) -> Sequence[Rejected]:
        """By line."""
        return self._lines.rejections(run, limit)

    def moved_checksum(self, run: Run) -> Checksum:
        """See the contract."""
        return self._lines.moved_checksum(run)

    def moved_ids(self, run: Run) -> Iterator[Sequence[str]]:
        """See the contract."""
        return self._lines.moved_ids(run)

    def clean_up(self, run: Run) -> None:
        """The file of the state stays: it knows that what was moved is not to be moved again."""
        self._lines.clean_up(run)

    def now(self) -> datetime:
        """The clock of this computer."""
        return datetime.now(UTC)

    def close(self) -> None:
        """See the contract."""
        self._lines.close()

    def _changes(self, loaded: Input) -> Iterator[Problem]:
        path, state = self._options.path, self._options.state.name
        if loaded.reading != reading_of(self._options):
            yield Problem(
                path.name,
                f"{path.name!r} was loaded into {state!r} by other columns or parameters; give the same as then, or "
                f"delete {state!r} if nothing of it was moved",
            )
        if not path.exists():
            return
        found = path.stat()
        if (found.st_size, found.st_mtime_ns) != (loaded.size, loaded.modified) and digest_of(path) != loaded.digest:
            yield Problem(
                path.name,
                f"{path.name!r} has changed since it was loaded into {state!r}; put the old one back, and migrate what "
                "is new from a file of its own",
            )

    def _place(self) -> Iterator[Problem]:
        """Whether the state can be made, without making it."""
        folder = self._options.path.parent
        if not _writable(self._options.state if self._options.state.exists() else folder):
            yield Problem(
                self._options.path.name,
                f"{self._options.state.name!r} cannot be written in {str(folder)!r}; allow it, or copy the file",
            )


def _sqlite_url(options: FileOptions) -> str:
    return URL.create("sqlite", database=str(options.state)).render_as_string()


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)
