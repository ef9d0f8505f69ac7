"""A file of messages, as a migration's source."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Any, ClassVar, Final

from sqlalchemy import ColumnElement, Inspector, Table
from sqlalchemy.types import TypeEngine
from typing_extensions import override

from delaystore.errors import InvalidMessageError, MigrationError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import (
    Identity,
    MigrationRow,
    MigrationRun,
    Problem,
    Rejected,
    RunParameters,
    WaitingCounts,
)
from delaystore.migrations.records.times import NO_DELAY, DeliveredAtOnceError, PluginDelays
from delaystore.migrations.sources._file.lines import FileOptions, file_options, read_lines
from delaystore.migrations.sources._file.state import MESSAGES, Input, State, digest_of, reading_of
from delaystore.migrations.sources._sql.source import SqlSource
from delaystore.migrations.sources._sql.tables import TableLayout
from delaystore.stores.sql.codec import completed
from delaystore.stores.sql.rows import to_readable_message
from delaystore.text import counted

# What is in a file, found by reading it once, a line at a time.

_SHOWN: Final = 5
"""Bad lines that are named."""
_PAGE: Final = 1000


def waiting_lines(options: FileOptions, endpoint: str, cutoff: datetime | None) -> WaitingCounts:
    """Messages that would move; lines that are no messages, or whose messages have arrived, are left out."""
    destinations: Counter[str] = Counter()
    earliest = latest = None
    staying = 0
    for message in messages(options, endpoint):
        due = message.due_time
        if cutoff is not None and due < cutoff:
            staying += 1
            continue
        destinations[message.destination] += 1
        earliest = due if earliest is None else min(earliest, due)
        latest = due if latest is None else max(latest, due)
    return WaitingCounts(
        endpoint=endpoint,
        count=destinations.total(),
        earliest=earliest,
        latest=latest,
        destinations=dict(sorted(destinations.items())),
        staying=staying,
    )


def count_late(options: FileOptions, endpoint: str, due_after: datetime) -> int:
    """How many messages are due later than `due_after`."""
    return sum(message.due_time > due_after for message in messages(options, endpoint))


def count_earlier(options: FileOptions, endpoint: str, due_before: datetime) -> int:
    """How many messages are due before `due_before`."""
    return sum(message.due_time < due_before for message in messages(options, endpoint))


def pages_of(options: FileOptions, endpoint: str, cutoff: datetime | None) -> Iterator[Sequence[MigrationRow]]:
    """Pages of the lines that are messages and would move, each with its number."""
    rows = (
        MigrationRow(f"line {line.number}", line.message)
        for line in read_lines(options)
        if isinstance(line.message, DelayedMessage) and _is_of(options, line.endpoint, endpoint)
        if cutoff is None or line.message.due_time >= cutoff
    )
    while page := list(islice(rows, _PAGE)):
        yield page


def check_lines(options: FileOptions, endpoint: str) -> list[Problem]:
    """Lines that are no messages; the whole run is blocked if no line of the endpoint is one, or none has a delay."""
    good = bad = 0
    delivered = Counter[str]()
    first: list[str] = []
    for line in read_lines(options):
        if isinstance(line.message, InvalidMessageError):
            bad += 1
            if bad <= _SHOWN:
                first.append(f"line {line.number}: {line.message}")
        elif not _is_of(options, line.endpoint, endpoint):
            continue
        elif isinstance(line.message, DeliveredAtOnceError):
            delivered[str(line.message)] += 1
        else:
            good += 1
    if delivered.keys() == {NO_DELAY} and not good:
        column = options.mapping.columns.get("delay_ms", "")
        return [Problem(options.path.name, f"no line of {endpoint!r} has a delay in {column!r}")]
    return [*_bad(options, endpoint, bad, good + delivered.total(), first), *left_out(options.path.name, delivered)]


def left_out(subject: str, delivered: Mapping[str, int]) -> Iterator[Problem]:
    """A warning where messages of lines were delivered at once: how many for each reason."""
    if not delivered:
        return
    many, they = sum(delivered.values()), "its message" if sum(delivered.values()) == 1 else "their messages"
    reasons = ", ".join(f"{count:,} with {reason}" for reason, count in sorted(delivered.items()))
    text = f"{counted(many, 'line')} left out, as the plugin delivered {they} at once: {reasons}"
    yield Problem(subject, text, fatal=False)


def _bad(options: FileOptions, endpoint: str, bad: int, good: int, first: Sequence[str]) -> list[Problem]:
    if not bad:
        return []
    if not good:
        return [Problem(options.path.name, f"no line of {endpoint!r} is a message; {first[0]}")]
    many = "1 line is no message" if bad == 1 else f"{bad:,} lines are no messages"
    return [Problem(options.path.name, f"{many}; {'; '.join(first)}", messages=bad)]


def messages(options: FileOptions, endpoint: str) -> Iterator[DelayedMessage]:
    """The endpoint's messages."""
    for line in read_lines(options):
        if isinstance(line.message, DelayedMessage) and _is_of(options, line.endpoint, endpoint):
            yield line.message


def _is_of(options: FileOptions, named: str | None, endpoint: str) -> bool:
    return not options.by_endpoint or named == endpoint


# The table of a file's lines.


class LinesLayout(TableLayout):
    """A file's lines. `by_endpoint`: each names its endpoint. False: all belong to any requested endpoint."""

    kind: ClassVar[str] = "a file's lines"
    columns: ClassVar[Mapping[str, str]] = {column.name: f"the line's {column.name}" for column in MESSAGES.columns}
    id_column: ClassVar[str] = "line"
    time_column: ClassVar[str] = "due_time"
    destination_column: ClassVar[str] = "destination"
    identity_columns = ("message_id", "destination", "due_time")

    def __init__(self, *, by_endpoint: bool) -> None:
        self._by_endpoint = by_endpoint

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """Empty: the lines of the file name its endpoints."""
        return {}

    @override
    def table_name(self, endpoint: str) -> str:
        return MESSAGES.name

    @override
    def of_endpoint(self, table: Table, endpoint: str) -> ColumnElement[bool] | None:
        return table.c.endpoint == endpoint if self._by_endpoint else None

    @override
    def row_id(self, row: Mapping[str, Any]) -> str:
        return f"line {row['line']}"

    @override
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        """As the line was read. Raises InvalidMessageError for a line that could not be read."""
        if row["error"] is not None:
            raise InvalidMessageError(row["error"])
        return to_readable_message(completed(row, int))

    @override
    def destination(self, value: Any) -> str:
        return value or ""

    @override
    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        return row["message_id"], row["destination"], row["due_time"]

    @override
    def types(self) -> Mapping[str, TypeEngine[Any]]:
        return {column.name: column.type for column in MESSAGES.columns}


# A file of messages, as a migration's source.


class FileSource(SqlSource):
    """Messages in a file of JSON lines or a Parquet file, which is never changed.

    `url`: file:///PATH?FIELD=COLUMN&..., see `options`. When a run begins, the lines are loaded into
    `FILE.migration.sqlite`, beside the file: from then on they are the rows of a SQL table like any other, and that
    file stays when the run is cleaned up, since it records moved messages. Until then the file is read again for
    each question, a line at a time.

    Raises ConfigurationError for a URL that cannot work.
    """

    def __init__(self, url: str) -> None:
        self._options = file_options(url)
        self._state = State(self._options)
        super().__init__(self._options.state_url, LinesLayout(by_endpoint=self._options.by_endpoint))

    @property
    @override
    def label(self) -> str:
        """The file's path."""
        return f"the file {self._options.path}"

    @override
    def endpoints(self) -> Sequence[str]:
        """The endpoints that its lines name; its own name, without the ending, if no column has them."""
        if not self._options.by_endpoint:
            return [self._options.path.stem]
        return sorted({line.endpoint for line in read_lines(self._options) if line.endpoint})

    @override
    def check(self, endpoint: str) -> Sequence[Problem]:
        """Lines that are no messages, or were delivered; a state that cannot be written; a file that has changed."""
        loaded = self._state.loaded()
        overdue = list(self._overdue(endpoint, loaded))
        if loaded is None:
            return [*check_lines(self._options, endpoint), *overdue, *self._unwritable()]
        delivered = left_out(self._options.path.name, self._state.delivered(endpoint))
        return [*self._changes(loaded), *super().check(endpoint), *delivered, *overdue]

    @override
    def waiting(self, endpoint: str, cutoff: datetime | None) -> WaitingCounts:
        """Counts the file's lines; once they are loaded, the rows that have not moved."""
        if self._state.loaded() is None:
            return waiting_lines(self._options, endpoint, cutoff)
        return super().waiting(endpoint, cutoff)

    @override
    def late(self, endpoint: str, due_after: datetime) -> int:
        """Counts the file's lines; once they are loaded, the rows that have not moved."""
        if self._state.loaded() is None:
            return count_late(self._options, endpoint, due_after)
        return super().late(endpoint, due_after)

    @override
    def would_move(self, endpoint: str, cutoff: datetime | None) -> Iterator[Sequence[MigrationRow | Rejected]]:
        """Until the file is loaded without lines that are no messages, which `check` reports."""
        if self._state.loaded() is None:
            return pages_of(self._options, endpoint, cutoff)
        return super().would_move(endpoint, cutoff)

    @override
    @contextmanager
    def lock(self, endpoint: str, holder: str) -> Iterator[None]:
        """Locks the whole file, for any endpoint."""
        self._state.create()
        with super().lock(endpoint, holder):
            yield

    @override
    def runs(self, endpoint: str) -> Sequence[MigrationRun]:
        return [] if self._state.loaded() is None else super().runs(endpoint)

    @override
    def begin(self, parameters: RunParameters) -> MigrationRun:
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
        """A warning where messages in the plugin have been due by now."""
        if self._options.mapping.delays.name != PluginDelays.name:
            return
        before = self.now()
        count = (
            count_earlier(self._options, endpoint, before) if loaded is None else self._state.earlier(endpoint, before)
        )
        if count:
            many = "1 message was" if count == 1 else f"{count:,} messages were"
            text = f"{many} due by now: the plugin has delivered what it did not lose; --due-after leaves them out"
            yield Problem(self._options.path.name, text, fatal=False)

    def _unwritable(self) -> Iterator[Problem]:
        """A problem where the state cannot be written. Creates nothing."""
        folder, state = self._options.path.parent, self._options.state
        if not os.access(state if state.exists() else folder, os.W_OK):
            yield Problem(
                self._options.path.name,
                f"{state.name!r} cannot be written in {str(folder)!r}; allow it, or copy the file",
            )
