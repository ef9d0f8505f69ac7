"""Loads: how far each is, and cancel, pause and resume."""

from starlette.requests import Request
from starlette.responses import Response

from delaystore.operations import Operations
from delaystore.server.web._changes import (
    PauseChange,
    begin_change,
    follow,
    load_paused,
    load_resumed,
    pause_notice,
)
from delaystore.server.web._site import site_of
from delaystore.server.web.forms import fields_of, id_of, text_of, time_of

_SHOWN = 50


async def listed(request: Request) -> Response:
    """The last loads."""
    site = site_of(request)
    loads = await site.run(request, lambda operations: operations.loads.list(_SHOWN))
    jobs = [each for each in site.jobs.running() if each.path == "/loads"]
    return site.pages.page(request, "loads.html", here="/loads", loads=loads, jobs=jobs)


async def one(request: Request) -> Response:
    """One load, counted."""
    site, load_id = site_of(request), request.query_params.get("id", "")
    load = await site.run(request, lambda operations: operations.loads.get(load_id))
    return site.pages.page(request, "load.html", here="/loads", load=load)


async def cancel(request: Request) -> Response:
    """Cancel its waiting messages, as an operation."""
    site, load_id = site_of(request), id_of(await fields_of(request))
    site.jobs.check_room()

    def begin(operations: Operations) -> str:
        return follow(site, operations, operations.loads.begin_cancel(load_id)).operation_id

    return site.pages.then(request, "/operation", {"id": await site.run(request, begin)})


async def pause(request: Request) -> Response:
    """Pause it; due messages are parked in the background."""
    fields = await fields_of(request)
    load_id = id_of(fields)
    return await _change(request, load_id, load_paused(load_id, time_of(text_of(fields, "until"), "until")))


async def resume(request: Request) -> Response:
    """Let it go on; parked messages are shown in the background."""
    load_id = id_of(await fields_of(request))
    return await _change(request, load_id, load_resumed(load_id))


async def _change(request: Request, load_id: str, change: PauseChange) -> Response:
    job = await begin_change(request, change)
    return site_of(request).pages.then(request, "/load", {"id": load_id}, pause_notice(change, job))
