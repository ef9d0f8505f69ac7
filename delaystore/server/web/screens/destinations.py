"""Destinations: how many messages wait, how fast they are delivered, and whether it is paused or limited."""

from starlette.requests import Request
from starlette.responses import Response

from delaystore.errors import ConfigurationError
from delaystore.operations import Operations
from delaystore.server.web._changes import PauseChange, begin_change, pause_notice, paused, resumed, rows_of
from delaystore.server.web._site import site_of
from delaystore.server.web.forms import fields_of, id_of, text_of, time_of


async def listed(request: Request) -> Response:
    """Destinations with waiting messages, recent deliveries or a changed state."""
    site = site_of(request)
    rows, overview = await rows_of(request)
    return site.pages.page(
        request,
        "destinations.html",
        here="/destinations",
        rows=rows,
        counted=not rows or rows[0].waiting is not None,
        jobs=[each for each in site.jobs.running() if each.path == "/destinations"],
        now=overview.now,
        chosen=text_of(request.query_params, "name"),
    )


async def pause(request: Request) -> Response:
    """Pause it; due messages are parked in the background."""
    fields = await fields_of(request)
    return await _change(request, paused(id_of(fields, "name"), time_of(text_of(fields, "until"), "until")))


async def resume(request: Request) -> Response:
    """Let it go on; parked messages are shown in the background."""
    return await _change(request, resumed(id_of(await fields_of(request), "name")))


async def limit(request: Request) -> Response:
    """Limit how many go there a second; an empty field: any number."""
    site, fields = site_of(request), await fields_of(request)
    name, rate = id_of(fields, "name"), _rate(text_of(fields, "max_rate"))
    await site.run(request, Operations.limit_rate, name, rate)
    site.cached.forget()
    notice = f"{name} no longer has a limit." if rate is None else f"{name} gets at most {rate:g} messages a second."
    return site.pages.then(request, "/destinations", None, notice)


async def _change(request: Request, change: PauseChange) -> Response:
    job = await begin_change(request, change)
    return site_of(request).pages.then(request, "/destinations", None, pause_notice(change, job))


def _rate(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"the limit {text!r} is not a number of messages a second") from None
