"""The first screen: how it is, now; it refreshes itself by server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from delaystore.errors import DelaystoreError
from delaystore.web.charts import bars_of, lateness_of, rate_of
from delaystore.web.readings import FRESH
from delaystore.web.site import Site, site_of

STREAM_SECONDS: Final = 15.0
"""How long one stream of events lasts: so long it may hold up the end of a host application. Browsers ask again."""
_TICK: Final = 0.25
_PATIENCE: Final = 6.0
_DUE_PATIENCE: Final = 1.5
"""Of the chart by hours: what is counted later is there at the next look."""
_HEADERS: Final = {"X-Accel-Buffering": "no"}  # nginx would keep the events


async def show(request: Request) -> Response:
    """The whole page. 503: the store does not answer."""
    content = await _content(site_of(request))
    status = 503 if content["overview"].problem is not None else 200
    return site_of(request).pages.page(request, "overview.html", here="/", status=status, **content)


async def events(request: Request) -> Response:
    """What is in the page, as it changes."""
    return StreamingResponse(_stream(request), media_type="text/event-stream", headers=_HEADERS)


async def _stream(request: Request) -> AsyncIterator[str]:
    site, before = site_of(request), ""
    yield f"retry: {int(FRESH * 1000)}\n\n"
    loop = asyncio.get_running_loop()
    end, due = loop.time() + STREAM_SECONDS, loop.time()
    while loop.time() < end and not site.stopping:
        if loop.time() >= due:
            try:
                text = site.pages.fragment(request, "_overview.html", **await _content(site))
            except DelaystoreError as error:
                text = site.pages.fragment(request, "_no_answer.html", sentence=str(error))
            if text != before:
                yield "event: overview\n" + "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"
            before, due = text, loop.time() + FRESH
        await asyncio.sleep(_TICK)


async def _content(site: Site) -> dict[str, Any]:
    overview, due = await asyncio.gather(
        site.readings.overview(_PATIENCE), site.readings.due(_DUE_PATIENCE), return_exceptions=True
    )
    if isinstance(overview, BaseException):
        raise overview
    if isinstance(due, BaseException) and not isinstance(due, DelaystoreError):
        raise due
    return {
        "overview": overview,
        "bars": None if isinstance(due, BaseException) else bars_of(due),
        "lateness": lateness_of(overview),
        "rate": rate_of(overview),
    }
