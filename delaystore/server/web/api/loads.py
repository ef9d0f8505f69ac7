"""Loads: list, count, cancel, pause, resume."""

from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore.operations import Operations
from delaystore.operations.json_requests import time_in
from delaystore.server.web._changes import begin_change, follow, load_paused, load_resumed
from delaystore.server.web._site import site_of
from delaystore.server.web.api import answers
from delaystore.server.web.api._fields import ApiCall, LoadFields, PauseLoad, fields_of
from delaystore.server.web.api.bulk import accepted
from delaystore.server.web.api.destinations import changed
from delaystore.stores import documents
from delaystore.stores.records import Operation


async def listed(request: Request) -> Response:
    """The last ones."""
    found = await site_of(request).run(request, lambda operations: operations.loads.list())
    return JSONResponse({"loads": documents.field(found)})


async def get(request: Request) -> Response:
    """One of them, counted."""
    load_id = request.path_params["load_id"]
    found = await site_of(request).run(request, lambda operations: operations.loads.get(load_id))
    return JSONResponse(documents.record(found))


async def cancel(request: Request) -> Response:
    """Cancel its waiting messages in the background."""
    given, site = await fields_of(request, LoadFields), site_of(request)
    site.jobs.check_room()

    def begin(operations: Operations) -> Operation:
        return follow(site, operations, operations.loads.begin_cancel(given.load_id))

    return accepted(request, await site.run(request, begin))


async def pause(request: Request) -> Response:
    """Have every dispatcher keep its messages."""
    given = await fields_of(request, PauseLoad)
    until = None if given.until is None else time_in(given.until, "until")
    return changed(await begin_change(request, load_paused(given.load_id, until)))


async def resume(request: Request) -> Response:
    """Let them go again."""
    given = await fields_of(request, LoadFields)
    return changed(await begin_change(request, load_resumed(given.load_id)))


CALLS: Final = (
    ApiCall(
        method="GET",
        path="/loads",
        name="loads",
        summary="The last loads of files, DataFrames and streams, the newest first.",
        do=listed,
        answer=answers.LoadsAnswer,
    ),
    ApiCall(
        method="GET",
        path="/loads/{load_id}",
        name="load",
        summary="A load, with the numbers of its messages.",
        do=get,
        answer=answers.LoadAnswer,
        refusals=(404,),
    ),
    ApiCall(
        method="POST",
        path="/loads/cancel",
        name="cancelLoad",
        summary="Cancel all waiting messages of a load, in the background.",
        do=cancel,
        body=LoadFields,
        answer=answers.OperationAnswer,
        status=(202,),
        refusals=(404,),
    ),
    ApiCall(
        method="POST",
        path="/loads/pause",
        name="pauseLoad",
        summary="Pause a load for every dispatcher. 202: still in progress.",
        do=pause,
        body=PauseLoad,
        answer=answers.Changed,
        status=(200, 202),
        refusals=(404,),
    ),
    ApiCall(
        method="POST",
        path="/loads/resume",
        name="resumeLoad",
        summary="Resume a load. 202: still in progress.",
        do=resume,
        body=LoadFields,
        answer=answers.Changed,
        status=(200, 202),
        refusals=(404,),
    ),
)
