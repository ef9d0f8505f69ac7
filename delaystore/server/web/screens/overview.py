"""Screens that only show: the overview with its stream of events, changes, the cascade, and a background job."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from math import log2
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from delaystore.cascades.status import span_text
from delaystore.errors import DelaystoreError
from delaystore.operations import Operations, Overview
from delaystore.server.web._site import WebSite, site_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.formatting import bars_of, lateness_of, rate_of
from delaystore.server.web.forms import text_of, time_of
from delaystore.server.web.http import prefix_of
from delaystore.server.web.store_calls import FRESH

Due = Mapping[datetime, int]
"""Messages due by the hour."""

STREAM_SECONDS: Final = 15.0
"""How long one stream of events lasts: so long it may hold up the end of a host application. Browsers ask again."""
_TICK: Final = 0.25
_PATIENCE: Final = 6.0
_DUE_PATIENCE: Final = 1.5
"""Of the chart by hours: what is counted later is there at the next look."""
_HEADERS: Final = {"X-Accel-Buffering": "no"}  # nginx would keep the events


async def show_overview(request: Request) -> Response:
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


PAGE: Final = 50


async def show_changes(request: Request) -> Response:
    """The last changes, the newest first; `before`: older ones."""
    site = site_of(request)
    before = time_of(text_of(request.query_params, "before"), "before")
    now, changes, kept = await site.ask(
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


_CASCADE_PATIENCE: Final = 15.0


async def show_cascade(request: Request) -> Response:
    """How full each level is, and what is wrong."""
    site = site_of(request)
    if site.cascade is None:
        raise Refusal(404, "No cascade is configured: give the page a broker, and its management API.")
    status = await site.calls(site.cascade.status, _CASCADE_PATIENCE)
    counts = [level.messages if level.messages is not None else level.ready for level in status.levels]
    most = max((count for count in counts if count), default=0)
    rows = [
        (level, count, span_text(level.ttl), _width(count, most))
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
        raise Refusal(404, "This process knows of no such job; the changes say what was done.")
    return site.pages.page(request, "job.html", here=job.path, job=job)
