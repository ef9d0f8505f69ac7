"""What is in a file, found by reading it once, a line at a time."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import Problem, Waiting
from delaystore.migrations.sources._file.lines import read_lines
from delaystore.migrations.sources._file.options import FileOptions

_SHOWN: Final = 5
"""Bad lines that are named."""


@dataclass(slots=True)
class Bad:
    """Lines that are no messages: how many, and the first of them."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, number: int, error: InvalidMessageError) -> None:
        """Count one more."""
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(f"line {number}: {error}")


def endpoints(options: FileOptions) -> list[str]:
    """The endpoints that lines name; the file's own name, without its ending, if no column has them."""
    if not options.by_endpoint:
        return [options.path.stem]
    return sorted({line.endpoint for line in read_lines(options) if line.endpoint})


def waiting(options: FileOptions, endpoint: str, cutoff: datetime | None) -> Waiting:
    """What would move; lines that are no messages are left out."""
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
    return Waiting(
        endpoint=endpoint,
        count=destinations.total(),
        earliest=earliest,
        latest=latest,
        destinations=dict(sorted(destinations.items())),
        staying=staying,
    )


def late(options: FileOptions, endpoint: str, due_after: datetime) -> int:
    """How many messages are due later than `due_after`."""
    return sum(message.due_time > due_after for message in messages(options, endpoint))


def check(options: FileOptions, endpoint: str) -> list[Problem]:
    """Lines that are no messages: a warning; fatal if no line of the endpoint is a message."""
    bad, good = Bad(), 0
    for line in read_lines(options):
        if isinstance(line.message, InvalidMessageError):
            bad.add(line.number, line.message)
        elif _is_of(options, line.endpoint, endpoint):
            good += 1
    if not bad.count:
        return []
    if not good:
        return [Problem(options.path.name, f"no line of {endpoint!r} is a message; {bad.first[0]}")]
    many = "1 line is no message" if bad.count == 1 else f"{bad.count:,} lines are no messages"
    text = f"{many}, and will be rejected; {'; '.join(bad.first)}"
    return [Problem(options.path.name, text, fatal=False, messages=bad.count)]


def messages(options: FileOptions, endpoint: str) -> Iterator[DelayedMessage]:
    """The endpoint's messages."""
    for line in read_lines(options):
        if isinstance(line.message, DelayedMessage) and _is_of(options, line.endpoint, endpoint):
            yield line.message


def _is_of(options: FileOptions, named: str | None, endpoint: str) -> bool:
    return not options.by_endpoint or named == endpoint
