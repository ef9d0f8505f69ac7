"""What the commands of `delaystore migrate` print for people."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from delaystore.cli._output import counted, print_table, say

if TYPE_CHECKING:
    from delaystore.migrations.abc import Problem, Rejected, RunCounts
    from delaystore.migrations.runner import RunCheck

COUNTS: Final = ("prepared", "moved", "rejected", "returned", "pending")
_DESTINATIONS_SHOWN: Final = 20


def print_checks(found: "Sequence[RunCheck]") -> None:
    """A table of the endpoints, and one of their destinations."""
    rows = [
        (
            one.endpoint,
            "?" if one.waiting is None else f"{one.waiting.count:,}",
            "?" if one.waiting is None else f"{one.waiting.staying:,}",
            f"{one.immovable:,}",
            "" if one.waiting is None else time_text(one.waiting.earliest),
            "" if one.waiting is None else time_text(one.waiting.latest),
        )
        for one in found
    ]
    columns = ("endpoint", "to move", "staying", "cannot move", "earliest", "latest")
    print_table(columns, rows, right=columns[1:4], unbroken=columns[4:])
    destinations = [
        (one.endpoint, destination, f"{count:,}")
        for one in found
        if one.waiting is not None
        for destination, count in _most(one.waiting.destinations)
    ]
    if destinations:
        print_table(("endpoint", "destination", "messages"), destinations, right=("messages",))


def print_problems(problems: "Sequence[Problem]") -> None:
    """A table of the problems, where there are any."""
    rows = [
        (
            "hinders" if one.fatal else "warning",
            one.subject,
            one.text + (f" ({counted(one.messages, 'message')})" if one.messages else ""),
        )
        for one in problems
    ]
    if rows:
        print_table(("problem", "of", "what"), rows, unbroken=("problem",))


def print_counts(rows: "Sequence[tuple[str, RunCounts]]") -> None:
    """A table of what became of the rows of each endpoint."""
    cells = [(endpoint, *count_cells(counts)) for endpoint, counts in rows]
    print_table(("endpoint", *COUNTS), cells, right=COUNTS)


def count_cells(counts: "RunCounts") -> list[str]:
    """The cells of the columns `COUNTS`."""
    return [f"{getattr(counts, name):,}" for name in COUNTS]


def say_rejections(rejections: "Sequence[Rejected]", count: int) -> None:
    """A line for each, and one for how many more of `count` there are."""
    for one in rejections:
        say(f"rejected: {one.row_id}: {one.reason}")
    if count > len(rejections):
        say(f"rejected: and {count - len(rejections):,} more")


def time_text(instant: datetime | None) -> str:
    """The time to the second, in UTC; nothing for None."""
    return "" if instant is None else f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _most(destinations: Mapping[str, int]) -> list[tuple[str, int]]:
    ordered = sorted(destinations.items(), key=lambda item: (-item[1], item[0]))
    shown, more = ordered[:_DESTINATIONS_SHOWN], ordered[_DESTINATIONS_SHOWN:]
    return shown + ([(f"and {counted(len(more), 'more')}", sum(count for _, count in more))] if more else [])
