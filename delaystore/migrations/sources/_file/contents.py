"""What is in a file, found by reading it once, a line at a time."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from delaystore.amounts import counted
from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import Problem, Row, Waiting
from delaystore.migrations.sources._file.lines import read_lines
from delaystore.migrations.sources._file.options import FileOptions
from delaystore.records.delays import NO_DELAY, DeliveredAtOnceError

_SHOWN: Final = 5
"""Bad lines that are named."""
_PAGE: Final = 1000


def endpoints(options: FileOptions) -> list[str]:
    """The endpoints that lines name; the file's own name, without its ending, if no column has them."""
    if not options.by_endpoint:
        return [options.path.stem]
    return sorted({line.endpoint for line in read_lines(options) if line.endpoint})


def waiting(options: FileOptions, endpoint: str, cutoff: datetime | None) -> Waiting:
    """What would move; lines that are no messages, or whose messages have arrived, are left out."""
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


def earlier(options: FileOptions, endpoint: str, due_before: datetime) -> int:
    """How many messages are due before `due_before`."""
    return sum(message.due_time < due_before for message in messages(options, endpoint))


def would_move(options: FileOptions, endpoint: str, cutoff: datetime | None) -> Iterator[Sequence[Row]]:
    """Pages of the lines that are messages and would move, each with its number."""
    rows = (
        Row(f"line {line.number}", line.message)
        for line in read_lines(options)
        if isinstance(line.message, DelayedMessage) and _is_of(options, line.endpoint, endpoint)
        if cutoff is None or line.message.due_time >= cutoff
    )
    while page := list(islice(rows, _PAGE)):
        yield page


def check(options: FileOptions, endpoint: str) -> list[Problem]:
    """Lines that are no messages; the whole run is hindered if no line of the endpoint is one, or none has a delay."""
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
        return [Problem(options.path.name, f"no line of {endpoint!r} has a delay in {options.delay_column!r}")]
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
