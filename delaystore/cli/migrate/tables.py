"""What the commands of `delaystore migrate` print for people."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from delaystore.cli.output import counted, print_table, say

if TYPE_CHECKING:
    from delaystore.migrations.abc import Problem, Rejected, RunCounts
    from delaystore.migrations.runner import Examination

_DESTINATIONS_SHOWN: Final = 20


def print_examinations(found: "Sequence[Examination]") -> None:
    """A table of the endpoints, and one of their destinations."""
    rows = [
        (
            one.endpoint,
            "?" if one.preview is None else f"{one.preview.count:,}",
            "?" if one.preview is None else f"{one.preview.staying:,}",
            f"{one.immovable:,}",
            "" if one.preview is None else time_text(one.preview.earliest),
            "" if one.preview is None else time_text(one.preview.latest),
        )
        for one in found
    ]
    columns = ("endpoint", "to move", "staying", "cannot move", "earliest", "latest")
    print_table(columns, rows, right=columns[1:4], unbroken=columns[4:])
    destinations = [
        (one.endpoint, destination, f"{count:,}")
        for one in found
        if one.preview is not None
        for destination, count in _most(one.preview.destinations)
    ]
    if destinations:
        print_table(("endpoint", "destination", "messages"), destinations, right=("messages",))


def print_problems(problems: "Sequence[Problem]") -> None:
    """A table, where there are any."""
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


def print_counts(rows: "Sequence[tuple[str, RunCounts]]", titles: Sequence[str] = ("endpoint",)) -> None:
    """A table of what became of the rows."""
    columns = (*titles, "prepared", "moved", "rejected", "returned", "pending")
    print_table(
        columns,
        [
            (
                name,
                *(
                    f"{count:,}"
                    for count in (counts.prepared, counts.moved, counts.rejected, counts.returned, counts.pending)
                ),
            )
            for name, counts in rows
        ],
        right=columns[len(titles) :],
    )


def say_rejections(rejections: "Sequence[Rejected]", count: int) -> None:
    """A line for each of the first, and how many more there are."""
    for one in rejections:
        say(f"rejected: {one.row_id}: {one.reason}")
    if count > len(rejections):
        say(f"rejected: and {count - len(rejections):,} more")


def time_text(instant: datetime | None) -> str:
    """To the second, in UTC."""
    return "" if instant is None else f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _most(destinations: Mapping[str, int]) -> list[tuple[str, int]]:
    ordered = sorted(destinations.items(), key=lambda item: (-item[1], item[0]))
    shown, more = ordered[:_DESTINATIONS_SHOWN], ordered[_DESTINATIONS_SHOWN:]
    return shown + ([(f"and {counted(len(more), 'more')}", sum(count for _, count in more))] if more else [])
