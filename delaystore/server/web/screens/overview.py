"""Screens that only show: the overview with its stream of events, changes, the cascade, and a background job."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from math import floor, log2, log10
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from delaystore.errors import DelaystoreError
from delaystore.operations import Operations, Overview
from delaystore.server.web import formatting
from delaystore.server.web._site import WebSite, site_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.forms import text_of, time_of
from delaystore.server.web.http import prefix_of
from delaystore.server.web.store_calls import FRESH
from delaystore.stores.records import Activity

Due = Mapping[datetime, int]
"""Messages due by the hour."""

STREAM_SECONDS: Final = 15.0
"""How long one stream of events lasts: so long it may hold up the end of a host application. Browsers ask again."""
_TICK: Final = 0.25
_TIMEOUT: Final = 6.0
_DUE_TIMEOUT: Final = 1.5
"""Of the chart by hours: later counts are there at the next reload."""
_HEADERS: Final = {"X-Accel-Buffering": "no"}  # nginx would keep the events


async def show_overview(request: Request) -> Response:
    """The whole page. 503: the store does not answer."""
    overview, due = await _read(site_of(request))
    status = 503 if overview.problem is not None else 200
    return site_of(request).pages.page(request, "overview.html", here="/", status=status, **_content(overview, due))


async def events(request: Request) -> Response:
    """The page's data, as they change."""
    return StreamingResponse(_stream(request), media_type="text/event-stream", headers=_HEADERS)


async def _stream(request: Request) -> AsyncIterator[bytes]:
    site, before = site_of(request), b""
    yield f"retry: {int(FRESH * 1000)}\n\n".encode()
    loop = asyncio.get_running_loop()
    end, due = loop.time() + STREAM_SECONDS, loop.time()
    while loop.time() < end and not site.stopping:
        if loop.time() >= due:
            event = await _event(request, site)
            if event != before:
                yield event
            before, due = event, loop.time() + FRESH
        await asyncio.sleep(_TICK)


async def _event(request: Request, site: WebSite) -> bytes:
    """How it is now; drawn once for all who look at the same address, as that takes some 10 ms."""
    try:
        overview, due = await _read(site)
    except DelaystoreError as error:
        return _as_event(site.pages.fragment(request, "_no_answer.html", sentence=str(error)))
    shows = (prefix_of(request.scope), overview, due)
    if site.drawn is None or site.drawn[0] != shows:
        text = site.pages.fragment(request, "_overview.html", **_content(overview, due))
        site.drawn = (shows, _as_event(text))
    return site.drawn[1]


def _as_event(text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: overview\n{lines}\n".encode(errors="backslashreplace")


async def _read(site: WebSite) -> tuple[Overview, Due | None]:
    overview, due = await asyncio.gather(
        site.cached.overview(_TIMEOUT), site.cached.due(_DUE_TIMEOUT), return_exceptions=True
    )
    if isinstance(overview, BaseException):
        raise overview
    if isinstance(due, BaseException) and not isinstance(due, DelaystoreError):
        raise due
    return overview, None if isinstance(due, BaseException) else due


def _content(overview: Overview, due: Due | None) -> dict[str, Any]:
    return {
        "overview": overview,
        "bars": None if due is None else _bars_of(due),
        "lateness": _lateness_of(overview),
        "rate": _rate_of(overview),
    }


# The charts of the first screen, which templates draw as SVG.

_HOUR: Final = timedelta(hours=1)
_MINUTE: Final = timedelta(minutes=1)
_MINUTES: Final = 60


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
    """Lines through the last hour, as SVG's `points` in a box of _MINUTES by 100, by their names.

    `last`: the last value of each. `top`: the value at the top.
    """

    points: Mapping[str, Sequence[str]]
    last: Mapping[str, float | None]
    top: float

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(self.points.values())


def _bars_of(counts: Mapping[datetime, int]) -> Bars:
    """A bar for each hour."""
    top = _nice(max(counts.values(), default=0))
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


def _lateness_of(overview: Overview) -> Lines:
    """p50 and p99 of the messages delivered in each minute, in seconds."""
    return _lines(
        overview,
        {"p50": lambda each: each.lateness.percentile(50), "p99": lambda each: each.lateness.percentile(99)},
        idle=None,
    )


def _rate_of(overview: Overview) -> Lines:
    """Messages delivered a second, in each minute."""
    return _lines(overview, {"rate": lambda each: each.delivered / _MINUTE.total_seconds()}, idle=0.0)


def _nice(value: float) -> float:
    """The next higher number of 1, 2 or 5 times a power of ten; 1 for 0."""
    if value <= 0:
        return 1
    power: float = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)


def _lines(overview: Overview, values: Mapping[str, Callable[[Activity], float | None]], idle: float | None) -> Lines:
    if overview.activity is None or overview.now is None:
        return Lines({}, {}, 1)
    this_minute = overview.now.replace(second=0, microsecond=0)
    first = this_minute - _MINUTES * _MINUTE
    found = {each.minute: each for each in overview.activity if first <= each.minute < this_minute}
    minutes = [first + n * _MINUTE for n in range(_MINUTES)] if found else []
    series = {
        name: [value(found[minute]) if minute in found else idle for minute in minutes]
        for name, value in values.items()
    }
    top = _nice(max((each for line in series.values() for each in line if each is not None), default=0))
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


PAGE: Final = 50


async def show_changes(request: Request) -> Response:
    """The last changes, the newest first; `before`: older ones."""
    site = site_of(request)
    before = time_of(text_of(request.query_params, "before"), "before")
    now, changes, kept = await site.run(
        request,
        lambda operations: (operations.now(), Operations.changes(operations, PAGE, before), operations.audit_kept()),
    )
    older = changes[-1].at.isoformat() if len(changes) == PAGE else None
    return site.pages.page(
        request,
        "changes.html",
        here="/changes",
        changes=changes,
        now=now,
        older=older,
        is_first=before is None,
        kept=str(kept),
    )


_CASCADE_TIMEOUT: Final = 15.0


async def show_cascade(request: Request) -> Response:
    """How full each level is, and its faults."""
    site = site_of(request)
    if site.cascade is None:
        raise Refusal(404, "No cascade is configured. Give the page a broker and its management API.")
    status = await site.calls(site.cascade.status, _CASCADE_TIMEOUT)
    counts = [level.messages if level.messages is not None else level.ready for level in status.levels]
    most = max((count for count in counts if count), default=0)
    rows = [
        (level, count, formatting.span(timedelta(milliseconds=level.ttl)), _width(count, most))
        for level, count in zip(status.levels, counts, strict=True)
    ]
    return site.pages.page(
        request,
        "cascade.html",
        here="/cascade",
        cascade=status,
        rows=rows,
        name=site.cascade.name,
        total=sum(count or 0 for count in counts),
    )


def _width(count: int | None, most: int) -> float:
    """Percent of the widest bar, by the logarithm: one message is seen beside a million."""
    return 100 * log2(1 + (count or 0)) / log2(1 + most) if count and most else 0.0


async def show_job(request: Request) -> Response:
    """One job of this process."""
    site = site_of(request)
    job = site.jobs.get(request.query_params.get("id", ""))
    if job is None:
        raise Refusal(404, "This process does not know the job. See its changes in the audit trail.")
    return site.pages.page(request, "job.html", here=job.path, job=job)
