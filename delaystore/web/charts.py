"""Charts as plain numbers, from which templates draw SVG: bars by the hour, lines by the minute."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from math import floor, log10
from typing import Final

from delaystore.operations import Overview
from delaystore.stores.operable import Activity

_HOUR: Final = timedelta(hours=1)
_MINUTE: Final = timedelta(minutes=1)
MINUTES: Final = 60


@dataclass(frozen=True, slots=True)
class Bar:
    """The messages of one hour. `x`, `width`, `height`: percent of the chart."""

    begin: datetime
    end: datetime
    count: int
    x: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Day:
    """The messages of one day, UTC, as far as the chart has it. `x`: where it begins, in percent."""

    begin: datetime
    end: datetime
    count: int
    x: float
    wide: bool
    """Whether there is room for its name."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars, the value at the top, and the days below."""

    bars: Sequence[Bar]
    days: Sequence[Day]
    top: int
    total: int


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines through the last hour, as SVG's `points` in a box of MINUTES by 100, by their names.

    `last`: the last value of each. `top`: the value at the top.
    """

    points: Mapping[str, Sequence[str]]
    last: Mapping[str, float | None]
    top: float

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(self.points.values())


def bars_of(counts: Mapping[datetime, int]) -> Bars:
    """A bar for each hour."""
    top = nice(max(counts.values(), default=0))
    width = 100 / max(1, len(counts))
    bars = [
        Bar(hour, hour + _HOUR, count, n * width, width, max(100 * count / top, 1.5) if count else 0.0)
        for n, (hour, count) in enumerate(counts.items())
    ]
    days = [list(group) for _, group in groupby(bars, key=lambda bar: bar.begin.date())]
    return Bars(
        bars,
        [
            Day(day[0].begin, day[-1].end, sum(bar.count for bar in day), day[0].x, len(day) > len(counts) / 14)
            for day in days
        ],
        int(top),
        sum(counts.values()),
    )


def lateness_of(overview: Overview) -> Lines:
    """p50 and p99 of what was delivered in each minute, in seconds."""
    return _lines(
        overview,
        {"p50": lambda each: each.lateness.percentile(50), "p99": lambda each: each.lateness.percentile(99)},
        idle=None,
    )


def rate_of(overview: Overview) -> Lines:
    """Messages delivered a second, in each minute."""
    return _lines(overview, {"rate": lambda each: each.delivered / _MINUTE.total_seconds()}, idle=0.0)


def nice(value: float) -> float:
    """The next higher number of 1, 2 or 5 times a power of ten; 1 for 0."""
    if value <= 0:
        return 1
    power: float = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)


def _lines(overview: Overview, values: Mapping[str, Callable[[Activity], float | None]], idle: float | None) -> Lines:
    if overview.activity is None or overview.now is None:
        return Lines({}, {}, 1)
    this_minute = overview.now.replace(second=0, microsecond=0)
    first = this_minute - MINUTES * _MINUTE
    found = {each.minute: each for each in overview.activity if first <= each.minute < this_minute}
    minutes = [first + n * _MINUTE for n in range(MINUTES)] if found else []
    series = {
        name: [value(found[minute]) if minute in found else idle for minute in minutes]
        for name, value in values.items()
    }
    top = nice(max((each for line in series.values() for each in line if each is not None), default=0))
    return Lines(
        {name: _pieces(line, top) for name, line in series.items()},
        {name: next((each for each in reversed(line) if each is not None), None) for name, line in series.items()},
        top,
    )


def _pieces(values: Sequence[float | None], top: float) -> Sequence[str]:
    """The points of each stretch without a gap; one alone becomes a short line."""
    pieces: list[str] = []
    for known, group in groupby(enumerate(values), key=lambda each: each[1] is not None):
        if known:
            points = [(float(n), 100 - 100 * (value or 0.0) / top) for n, value in group]
            if len(points) == 1:
                points = [(points[0][0] - 0.4, points[0][1]), (points[0][0] + 0.4, points[0][1])]
            pieces.append(" ".join(f"{x:g},{y:.1f}" for x, y in points))
    return pieces
