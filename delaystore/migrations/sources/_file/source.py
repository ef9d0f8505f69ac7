"""A file of messages, as a migration's source."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from typing_extensions import override

from delaystore.errors import MigrationError
from delaystore.migrations.abc import Problem, Rejected, Row, Run, RunParameters, Waiting
from delaystore.migrations.sources._file import contents
from delaystore.migrations.sources._file.options import file_options
from delaystore.migrations.sources._file.shape import LinesShape
from delaystore.migrations.sources._file.state import Input, State, digest_of, reading_of
from delaystore.migrations.sources._sql.source import SqlSource
from delaystore.records.delays import PluginDelays


class FileSource(SqlSource):
    """Messages in a file of JSON lines or a Parquet file, which is never changed.

    `url`: file:///PATH?FIELD=COLUMN&..., see `options`. When a run begins, the lines are loaded into
    `FILE.migration.sqlite`, beside the file: from then on they are the rows of a SQL table like any other, and that
    file stays when the run is cleaned up, since it records what was moved. Until then the file is read anew for each
    question, a line at a time.

    Raises ConfigurationError for a URL that cannot work.
    """

    def __init__(self, url: str) -> None:
        self._options = file_options(url)
        self._state = State(self._options)
        super().__init__(self._options.state_url, LinesShape(by_endpoint=self._options.by_endpoint))

    @property
    @override
    def label(self) -> str:
        """The file's path."""
        return f"the file {self._options.path}"

    @override
    def endpoints(self) -> Sequence[str]:
        """The endpoints that its lines name; its own name, without the ending, if no column has them."""
        return contents.endpoints(self._options)

    @override
    def check(self, endpoint: str) -> Sequence[Problem]:
        """Lines that are no messages, or were delivered; a state that cannot be written; a file that has changed."""
        loaded = self._state.loaded()
        overdue = list(self._overdue(endpoint, loaded))
        if loaded is None:
            return [*contents.check(self._options, endpoint), *overdue, *self._unwritable()]
        delivered = contents.left_out(self._options.path.name, self._state.delivered(endpoint))
        return [*self._changes(loaded), *super().check(endpoint), *delivered, *overdue]

    @override
    def waiting(self, endpoint: str, cutoff: datetime | None) -> Waiting:
        """Counts the file's lines; once they are loaded, the rows that have not moved."""
        if self._state.loaded() is None:
            return contents.waiting(self._options, endpoint, cutoff)
        return super().waiting(endpoint, cutoff)

    @override
    def late(self, endpoint: str, due_after: datetime) -> int:
        """Counts the file's lines; once they are loaded, the rows that have not moved."""
        if self._state.loaded() is None:
            return contents.late(self._options, endpoint, due_after)
        return super().late(endpoint, due_after)

    @override
    def would_move(self, endpoint: str, cutoff: datetime | None) -> Iterator[Sequence[Row | Rejected]]:
        """Until the file is loaded without lines that are no messages, of which `check` tells."""
        if self._state.loaded() is None:
            return contents.would_move(self._options, endpoint, cutoff)
        return super().would_move(endpoint, cutoff)

    @override
    @contextmanager
    def lock(self, endpoint: str, holder: str) -> Iterator[None]:
        """Locks the whole file, whatever the endpoint."""
        self._state.create()
        with super().lock(endpoint, holder):
            yield

    @override
    def runs(self, endpoint: str) -> Sequence[Run]:
        return [] if self._state.loaded() is None else super().runs(endpoint)

    @override
    def begin(self, parameters: RunParameters) -> Run:
        """Loads the file, unless it is loaded. Raises MigrationError where it has changed, or is read differently."""
        self._state.create()
        loaded = self._state.load(parameters.endpoint, parameters.cutoff or self.now())
        for problem in self._changes(loaded):
            raise MigrationError(problem.text)
        return super().begin(parameters)

    @override
    def now(self) -> datetime:
        """The clock of this computer, as the SQLite file may not exist yet."""
        return datetime.now(UTC)

    def _changes(self, loaded: Input) -> Iterator[Problem]:
        path, state = self._options.path, self._options.state.name
        if loaded.reading != reading_of(self._options.mapping):
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

    def _overdue(self, endpoint: str, loaded: Input | None) -> Iterator[Problem]:
        """A warning where what waited in the plugin has been due by now."""
        if self._options.mapping.delays.name != PluginDelays.name:
            return
        before = self.now()
        count = (
            contents.earlier(self._options, endpoint, before)
            if loaded is None
            else self._state.earlier(endpoint, before)
        )
        if count:
            many = "1 message was" if count == 1 else f"{count:,} messages were"
            text = f"{many} due by now: the plugin has delivered what it did not lose; --cutoff-time leaves them out"
            yield Problem(self._options.path.name, text, fatal=False)

    def _unwritable(self) -> Iterator[Problem]:
        """A problem where the state cannot be written. Creates nothing."""
        folder, state = self._options.path.parent, self._options.state
        if not os.access(state if state.exists() else folder, os.W_OK):
            yield Problem(
                self._options.path.name,
                f"{state.name!r} cannot be written in {str(folder)!r}; allow it, or copy the file",
            )
