"""The first screen: how it is, now; it refreshes itself by server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from delaystore.errors import DelaystoreError
from delaystore.operations import Overview
from delaystore.web.cached_overview import FRESH
from delaystore.web.charts import bars_of, lateness_of, rate_of
from delaystore.web.paths import prefix_of
from delaystore.web.site import Site, site_of

Due = Mapping[datetime, int]
"""Messages due by the hour."""

STREAM_SECONDS: Final = 15.0
"""How long one stream of events lasts: so long it may hold up the end of a host application. Browsers ask again."""
_TICK: Final = 0.25
_PATIENCE: Final = 6.0
_DUE_PATIENCE: Final = 1.5
"""Of the chart by hours: what is counted later is there at the next look."""
_HEADERS: Final = {"X-Accel-Buffering": "no"}  # nginx would keep the events


async def show(request: Request) -> Response:
    """The whole page. 503: the store does not answer."""
    overview, due = await _read(site_of(request))
    status = 503 if overview.problem is not None else 200
    return site_of(request).pages.page(request, "overview.html", here="/", status=status, **_content(overview, due))


async def events(request: Request) -> Response:
    """What is in the page, as it changes."""
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


async def _event(request: Request, site: Site) -> bytes:
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


async def _read(site: Site) -> tuple[Overview, Due | None]:
    overview, due = await asyncio.gather(
        site.cached.overview(_PATIENCE), site.cached.due(_DUE_PATIENCE), return_exceptions=True
    )
    if isinstance(overview, BaseException):
        raise overview
    if isinstance(due, BaseException) and not isinstance(due, DelaystoreError):
        raise due
    return overview, None if isinstance(due, BaseException) else due


def _content(overview: Overview, due: Due | None) -> dict[str, Any]:
    return {
        "overview": overview,
        "bars": None if due is None else bars_of(due),
        "lateness": lateness_of(overview),
        "rate": rate_of(overview),
    }
