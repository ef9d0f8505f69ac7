"""When the messages of a load are due, beside waiting messages and the limits of the same destinations."""

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.bulk.rejects import check_writable
from delaystore.bulk.values import EARLIEST, MICROSECOND
from delaystore.errors import ConfigurationError
from delaystore.message import LATEST_DUE_TIME
from delaystore.registry import needed_for
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.documents import instant
from delaystore.stores.operable import StoreWithLoads
from delaystore.stores.shared import number_of, start_of
from delaystore.text import duration_text

MINUTE: Final = timedelta(minutes=1)
MINUTES: Final = ("destination", "minute")
"""Columns of counts; a minute is its number after 1970."""
_MINUTE: Final = MINUTE // MICROSECOND
MOST_DESTINATIONS: Final = 1_000
"""Destinations that are shown on their own."""
_STEPS: Final = (1, 5, 15, 60, 360, 1_440, 7 * 1_440, 30 * 1_440, 365 * 1_440, 3_650 * 1_440)
"""Lengths of a bar, in minutes."""

Counts = Mapping[str, Mapping[int, int]]
"""How many messages are due, by destination and minute."""


def minutes_of(due: pa.Array) -> pa.Array:
    """The number of the minute of each due time."""
    since = pc.divide(pc.subtract(due.cast(pa.int64()), EARLIEST), _MINUTE)  # rounded down, as none is negative
    return pc.add(since, EARLIEST // _MINUTE)


class DueCounts:
    """Counts the messages of a load, batch by batch, in Arrow."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []

    def add(self, staged: pa.RecordBatch) -> None:
        """Count the messages of a batch of the schema STAGED."""
        columns = [staged.column("destination"), minutes_of(staged.column("due_time"))]
        table = pa.table(columns, names=MINUTES).group_by(MINUTES, use_threads=False)
        self._parts.append(table.aggregate([([], "count_all")]))

    def counts(self) -> Counts:
        """The numbers of all batches."""
        if not self._parts:
            return {}
        together = pa.concat_tables(self._parts).group_by(MINUTES, use_threads=False).aggregate([("count_all", "sum")])
        return counts_of(zip(*together.to_pydict().values(), strict=True))


def counts_of(rows: Iterable[tuple[str, int, int]]) -> Counts:
    """Counts from rows of a destination, a minute and a number."""
    counts: dict[str, Counter[int]] = {}
    for destination, minute, number in rows:
        counts.setdefault(destination, Counter())[minute] += number
    return counts


# The load's messages beside those that wait already.


@dataclass(frozen=True, slots=True)
class DueSpan:
    """A span of time: its beginning, and how many messages of the load and how many waiting ones are due in it."""

    start: datetime
    rows: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DueMessages:
    """When messages of a load are due, and waiting messages beside them.

    Attributes:
        destination: Their destination; None: all destinations of the load together.
        rows: How many messages of the load are due, by minute.
        waiting: How many waiting messages have their next attempt, by minute; None: the store cannot count them.
        max_rate: The destination's limit in messages a second; None: it has none.

    """

    destination: str | None = None
    rows: Mapping[int, int] = field(default_factory=dict)
    waiting: Mapping[int, int] | None = None
    max_rate: float | None = None

    def spans(self, minutes: int = 1) -> Sequence[DueSpan]:
        """The spans of that length with messages, in order."""
        of_load, of_store = Counter[int](), Counter[int]()
        for counter, numbers in ((of_load, self.rows), (of_store, self.waiting or {})):
            for minute, number in numbers.items():
                counter[minute // minutes] += number
        both = sorted({*of_load, *of_store})
        return [DueSpan(start_of(at, minutes * MINUTE), of_load[at], of_store[at]) for at in both]

    def bars(self, most: int) -> tuple[timedelta, Sequence[DueSpan]]:
        """The shortest length of a span that gives no more than `most` of them, if there is one, and these."""
        used = {*self.rows, *(self.waiting or ())}
        step = next((step for step in _STEPS if len({minute // step for minute in used}) <= most), _STEPS[-1])
        return step * MINUTE, self.spans(step)

    @property
    def exceeded(self) -> DueSpan | None:
        """The first minute with more messages than the limit lets go; None: there is none."""
        if self.max_rate is None:
            return None
        return next((span for span in self.spans() if span.rows + span.waiting > self.max_rate * 60), None)


@dataclass(frozen=True, slots=True)
class LoadPreview:
    """When the messages of a load are due: all together, and by destination.

    Limited destinations come first, then those with the most rows; up to 1,000 of them.
    """

    every: DueMessages = field(default_factory=DueMessages)
    destinations: Sequence[DueMessages] = ()

    def document(self) -> dict[str, Any]:
        """The preview as JSON, with every minute."""

        def shown(span: DueSpan | None) -> dict[str, Any] | None:
            if span is None:
                return None
            waiting = None if self.every.waiting is None else span.waiting
            return {"start": instant(span.start), "rows": span.rows, "waiting": waiting}

        return {
            "minutes": [shown(span) for span in self.every.spans()],
            "destinations": [
                {
                    "destination": each.destination,
                    "max_rate": each.max_rate,
                    "first_exceeded": shown(each.exceeded),
                    "minutes": [shown(span) for span in each.spans()],
                }
                for each in self.destinations
            ],
        }


def preview_of(counts: Counts, store: DelayedMessageStore | None) -> LoadPreview:
    """The preview of a load with these messages.

    Args:
        counts: Its messages.
        store: The store, open; None: there is none yet, and no message waits.

    Raises:
        StoreError: The store fails.

    """
    rows = _together(counts)
    limits: Mapping[str, float | None] = {}
    waiting: Counts | None = {}
    operable = store if isinstance(store, StoreWithLoads) and store.is_operable else None
    if operable is not None:
        limits = {each.name: each.max_rate for each in operable.destinations()}
    names = sorted(counts, key=lambda name: (limits.get(name) is None, -sum(counts[name].values()), name))
    names = names[:MOST_DESTINATIONS]
    if operable is None:
        waiting = {} if store is None else None
    elif names:
        until = min(start_of(max(rows) + 1, MINUTE), LATEST_DUE_TIME)
        found = operable.count_between_by_destination(start_of(min(rows), MINUTE), until, MINUTE, names)
        waiting = {
            name: {number_of(start, MINUTE): number for start, number in starts.items()}
            for name, starts in found.items()
        }
    destinations = [
        DueMessages(
            destination=name,
            rows=counts[name],
            waiting=None if waiting is None else waiting.get(name, {}),
            max_rate=limits.get(name),
        )
        for name in names
    ]
    return LoadPreview(DueMessages(rows=rows, waiting=None if waiting is None else _together(waiting)), destinations)


def _together(counts: Counts) -> Mapping[int, int]:
    total = Counter[int]()
    for numbers in counts.values():
        total.update(numbers)
    return total


# A picture of it, by matplotlib.

_MOST_BARS: Final = 400


def check_plot(path: Path) -> None:
    """Raise ConfigurationError for a file that cannot be written, MissingDependencyError without matplotlib."""
    with needed_for("--plot"):
        import matplotlib.figure  # noqa: F401 - what draws
    if path.is_dir():
        raise ConfigurationError(f"--plot {str(path)!r} is a folder; name a file in it")
    if path.suffix.lower() != ".png":
        raise ConfigurationError(f"--plot {str(path)!r} does not end with .png; name a PNG file")
    if not path.parent.is_dir():
        raise ConfigurationError(f"--plot {str(path)!r} cannot be written: its folder does not exist; create it first")
    check_writable(str(path.parent), f"--plot {str(path)!r}")


def draw(preview: LoadPreview, path: Path) -> None:
    """Write a picture of the preview as PNG. Raises ConfigurationError where the file cannot be written."""
    from matplotlib.dates import date2num
    from matplotlib.figure import Figure

    step, bars = preview.every.bars(_MOST_BARS)
    starts, rows, waiting = ([getattr(bar, name) for bar in bars] for name in ("start", "rows", "waiting"))
    figure = Figure(figsize=(12, 4), layout="constrained")
    axes, width = figure.add_subplot(), step / timedelta(days=1)  # the unit of matplotlib's dates
    axes.bar(starts, waiting, width=width, align="edge", color="silver", label="waiting")
    axes.bar(starts, rows, width=width, align="edge", color="steelblue", bottom=waiting, label="rows of the load")
    if len(preview.destinations) == 1 and (limit := preview.destinations[0].max_rate) is not None:
        axes.axhline(limit * step.total_seconds(), color="firebrick", linestyle="dashed", label="limit")
    if bars:  # matplotlib's own margins may reach beyond the calendar
        first, last, end = date2num([starts[0], starts[-1], LATEST_DUE_TIME])  # type: ignore[no-untyped-call]
        axes.set_xlim(first, min(last + width, end + 1))
    axes.set_title(f"messages due in each {duration_text(step, spaced=True)}, UTC")
    axes.legend()
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    try:
        path.write_bytes(drawn.getvalue())
    except OSError as error:
        raise ConfigurationError(
            f"--plot {str(path)!r} cannot be written: {error.strerror}; name another file"
        ) from None
