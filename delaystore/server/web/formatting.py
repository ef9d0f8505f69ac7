"""Values and charts as pages show them to people; templates draw the charts as SVG."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from math import floor, log10
from typing import Any, Final

from markupsafe import Markup

from delaystore.cascades.status import span_text
from delaystore.message import are_same_time
from delaystore.operations import Overview
from delaystore.stores.abc import Count
from delaystore.stores.operable import Activity
from delaystore.text import counted, parse_json, roughly

NOTHING: Final = "\N{EN DASH}"
"""In place of what is not known."""
_HEX_WIDTH: Final = 16
_LONGEST_JSON: Final = 2**18
_INDENTED: Final = json.JSONEncoder(indent=2, ensure_ascii=False)


def number(value: float | Count | None) -> str:
    """`1,234`, `about 1,230,000`, `12.5`; NOTHING for None."""
    if value is None:
        return NOTHING
    if isinstance(value, Count):
        return f"{value.messages:,}" if value.exact else roughly(value.messages)
    if isinstance(value, int):
        return f"{value:,}"
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 1 else 2
    return f"{value:,.{digits}f}"


def span(value: timedelta | float | None) -> str:
    """`2 d 3 h`, `1.8 s`, `512 ms`; NOTHING for None. A float: seconds."""
    if value is None:
        return NOTHING
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if 1 <= seconds < 10:
        return f"{round(seconds, 1):g} s"
    return span_text(round(seconds * 1000) if seconds < 1 else round(seconds) * 1000)


def instant(value: datetime | None) -> str | Markup:
    """`2026-11-24 05:30:12`, UTC, for people and for programs."""
    if value is None:
        return NOTHING
    time = value.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(time.isoformat(), f"{time:%Y-%m-%d %H:%M:%S}")


def from_now(value: datetime | None, now: datetime | None) -> str:
    """`in 2 h 3 min`, `5 s ago`, `now`."""
    if value is None or now is None:
        return ""
    distance = value - now
    if abs(distance) < timedelta(seconds=1):
        return "now"
    return f"in {span(distance)}" if distance > timedelta(0) else f"{span(-distance)} ago"


def field_time(value: datetime | None) -> str:
    """For a field of the type datetime-local."""
    return "" if value is None else f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def as_text(body: bytes) -> str | None:
    """The body as text; None: it is none."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def as_json(body: bytes) -> str | None:
    """The body as JSON with line breaks; None: it is none, or has more than _LONGEST_JSON characters then.

    What is nested deeply is indented so far that 64 KiB would become 60 MB.
    """
    parts, size = [], 0
    try:
        found = parse_json(body)
        if not isinstance(found, dict | list):
            return None
        for part in _INDENTED.iterencode(found):
            size += len(part)
            if size > _LONGEST_JSON:
                return None
            parts.append(part)
    except (ValueError, RecursionError):
        return None
    return "".join(parts)


def as_hex(body: bytes) -> str:
    """The body in hexadecimal, with its printable characters beside."""
    lines = (body[begin : begin + _HEX_WIDTH] for begin in range(0, len(body), _HEX_WIDTH))
    return "\n".join(
        f"{n * _HEX_WIDTH:06x}  {line.hex(' '):<{3 * _HEX_WIDTH}} "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        for n, line in enumerate(lines)
    )


def bodies(body: bytes, most: int) -> dict[str, str]:
    """The first `most` bytes as each of what they can be shown as, the best first."""
    start = body[:most]
    cuts = (start, start[:-1], start[:-2], start[:-3]) if len(body) > most else (start,)  # within a character, perhaps
    text = next((text for text in map(as_text, cuts) if text is not None), None)
    found = {"JSON": as_json(body) if len(body) <= most else None, "Text": text, "Hex": as_hex(start)}
    return {name: text for name, text in found.items() if text is not None}


def value_text(value: Any) -> str:
    """A header's or property's value on one line."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime):
        return value.isoformat()
    return str(dict(value) if isinstance(value, Mapping) else value)


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "number": number,
    "counted": counted,
    "span": span,
    "instant": instant,
    "from_now": from_now,
    "field_time": field_time,
    "value_text": value_text,
    "is_same_time": are_same_time,
}
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
