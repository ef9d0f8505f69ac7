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
from delaystore.registry import needed_for
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.documents import instant
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.shared import number_of, start_of
from delaystore.text import duration_text

MINUTE: Final = timedelta(minutes=1)
MINUTES: Final = ("destination", "minute")
"""Columns of counts; a minute is its number after 1970."""
_MINUTE: Final = MINUTE // MICROSECOND
_MOST_DESTINATIONS: Final = 1_000
"""Destinations that are shown on their own."""
_MOST_PARTS: Final = 100
"""Tables of counts that are kept until they are added up."""
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
        table = pa.table(columns, names=MINUTES).group_by(MINUTES, use_threads=False).aggregate([([], "count_all")])
        self._parts.append(table.rename_columns([*MINUTES, "count"]))
        if len(self._parts) >= _MOST_PARTS:
            self._parts = [self._sum()]

    def counts(self) -> Counts:
        """The numbers of all batches."""
        return counts_of(zip(*self._sum().to_pydict().values(), strict=True)) if self._parts else {}

    def _sum(self) -> pa.Table:
        together = pa.concat_tables(self._parts).group_by(MINUTES, use_threads=False).aggregate([("count", "sum")])
        return together.rename_columns([*MINUTES, "count"])


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
class DestinationPreview:
    """A destination of the load.

    Attributes:
        name: The destination.
        rows: How many messages of the load are due, by minute.
        waiting: How many waiting messages have their next attempt, by minute; None: the store cannot count them.
        max_rate: The destination's limit in messages a second; None: it has none.

    """

    name: str
    rows: Mapping[int, int]
    waiting: Mapping[int, int] | None = None
    max_rate: float | None = None

    @property
    def exceeded(self) -> DueSpan | None:
        """The first minute with more messages than the limit lets go; None: there is none."""
        if self.max_rate is None:
            return None
        return next((bar for bar in self.minutes if bar.rows + bar.waiting > self.max_rate * 60), None)

    @property
    def minutes(self) -> Sequence[DueSpan]:
        """Every minute with messages."""
        return _bars(self.rows, self.waiting, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPreview:
    """When the messages of a load are due.

    Attributes:
        rows: How many messages of the load are due, by minute.
        waiting: How many messages wait already for its destinations, by minute of the next attempt; None: the store
            cannot count them.
        destinations: Limited destinations first, then those with the most rows; up to 1,000 of them.

    """

    rows: Mapping[int, int] = field(default_factory=dict)
    waiting: Mapping[int, int] | None = None
    destinations: Sequence[DestinationPreview] = ()

    @property
    def minutes(self) -> Sequence[DueSpan]:
        """Every minute with messages."""
        return _bars(self.rows, self.waiting, 1)

    def bars(self, most: int) -> tuple[timedelta, Sequence[DueSpan]]:
        """The length of a bar, the shortest that gives no more than `most` bars, and the bars with messages."""
        used = {*self.rows, *(self.waiting or ())}
        step = next((step for step in _STEPS if len({minute // step for minute in used}) <= most), _STEPS[-1])
        return step * MINUTE, _bars(self.rows, self.waiting, step)


def document_of(preview: LoadPreview) -> dict[str, Any]:
    """The preview as JSON: every minute, of the whole load and of each destination."""

    def bar(each: DueSpan, waiting: object) -> dict[str, Any]:
        return {"start": instant(each.start), "rows": each.rows, "waiting": None if waiting is None else each.waiting}

    return {
        "minutes": [bar(each, preview.waiting) for each in preview.minutes],
        "destinations": [
            {
                "destination": each.name,
                "max_rate": each.max_rate,
                "first_exceeded": None if each.exceeded is None else bar(each.exceeded, each.waiting),
                "minutes": [bar(minute, each.waiting) for minute in each.minutes],
            }
            for each in preview.destinations
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
    if isinstance(store, OperableDelayedMessageStore) and store.is_operable:
        limits = {each.name: each.max_rate for each in store.destinations()}
    names = sorted(counts, key=lambda name: (limits.get(name) is None, -sum(counts[name].values()), name))
    names = names[:_MOST_DESTINATIONS]
    waiting = _waiting(names, rows, store)
    destinations = [
        DestinationPreview(
            name=name,
            rows=counts[name],
            waiting=None if waiting is None else waiting.get(name, {}),
            max_rate=limits.get(name),
        )
        for name in names
    ]
    return LoadPreview(rows=rows, waiting=None if waiting is None else _together(waiting), destinations=destinations)


def _together(counts: Counts) -> Mapping[int, int]:
    total = Counter[int]()
    for numbers in counts.values():
        total.update(numbers)
    return total


def _waiting(names: Sequence[str], rows: Mapping[int, int], store: DelayedMessageStore | None) -> Counts | None:
    if store is None or not rows:
        return {}
    if not isinstance(store, OperableDelayedMessageStore) or not store.is_operable:
        return None
    since, until = start_of(min(rows), MINUTE), start_of(max(rows) + 1, MINUTE)
    found = store.count_between_by_destination(since, until, MINUTE, names)
    return {
        name: {number_of(start, MINUTE): number for start, number in starts.items()} for name, starts in found.items()
    }


def _bars(rows: Mapping[int, int], waiting: Mapping[int, int] | None, step: int) -> Sequence[DueSpan]:
    of_load, of_store = Counter[int](), Counter[int]()
    for counter, numbers in ((of_load, rows), (of_store, waiting or {})):
        for minute, number in numbers.items():
            counter[minute // step] += number
    return [DueSpan(start_of(at, step * MINUTE), of_load[at], of_store[at]) for at in sorted({*of_load, *of_store})]


# A picture of it, by matplotlib.

_MOST_BARS: Final = 400


def check_plot(path: Path) -> None:
    """Raise ConfigurationError for a file that cannot be written, MissingDependencyError without matplotlib."""
    with needed_for("--plot"):
        import matplotlib.figure  # noqa: F401 - what draws
    if path.is_dir():
        raise ConfigurationError(f"--plot {str(path)!r} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ConfigurationError(f"--plot {str(path)!r} cannot be written: its folder does not exist; create it first")
    check_writable(str(path.parent), f"--plot {str(path)!r}")


def draw(preview: LoadPreview, path: Path) -> None:
    """Write a picture of the preview as PNG. Raises ConfigurationError where the file cannot be written."""
    from matplotlib.figure import Figure

    step, bars = preview.bars(_MOST_BARS)
    starts, rows, waiting = ([getattr(bar, name) for bar in bars] for name in ("start", "rows", "waiting"))
    figure = Figure(figsize=(12, 4), layout="constrained")
    axes, width = figure.add_subplot(), step / timedelta(days=1)  # the unit of matplotlib's dates
    axes.bar(starts, waiting, width=width, align="edge", color="silver", label="waiting")
    axes.bar(starts, rows, width=width, align="edge", color="steelblue", bottom=waiting, label="rows of the load")
    if len(preview.destinations) == 1 and (limit := preview.destinations[0].max_rate) is not None:
        axes.axhline(limit * step.total_seconds(), color="firebrick", linestyle="dashed", label="limit")
    axes.set_title(f"messages due in each {duration_text(step)}, UTC")
    axes.legend()
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    try:
        path.write_bytes(drawn.getvalue())
    except OSError as error:
        raise ConfigurationError(
            f"--plot {str(path)!r} cannot be written: {error.strerror}; name another file"
        ) from None
