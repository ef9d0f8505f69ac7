"""Destinations: list, pause, resume, limit."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore.operations import Operations
from delaystore.operations.json_requests import time_in
from delaystore.server.web._changes import Row, begin_change, paused, resumed, rows_of
from delaystore.server.web._site import BackgroundJob, site_of
from delaystore.server.web.api import answers
from delaystore.server.web.api._fields import ApiCall, DestinationFields, Limit, Pause, fields_of
from delaystore.stores import documents


async def listed(request: Request) -> Response:
    """All that is known."""
    rows, _ = await rows_of(request)
    return JSONResponse({"destinations": [_document(row) for row in rows]})


async def pause(request: Request) -> Response:
    """Have every dispatcher keep messages for it."""
    given = await fields_of(request, Pause)
    until = None if given.until is None else time_in(given.until, "until")
    return changed(await begin_change(request, paused(given.destination, until)))


async def resume(request: Request) -> Response:
    """Let them go again."""
    given = await fields_of(request, DestinationFields)
    return changed(await begin_change(request, resumed(given.destination)))


async def limit(request: Request) -> Response:
    """Limit how many go there a second; null: any number."""
    given = await fields_of(request, Limit)
    await site_of(request).run(request, Operations.limit_rate, given.destination, given.max_rate)
    site_of(request).cached.forget()
    return JSONResponse({"destination": given.destination, "max_rate": given.max_rate})


def changed(job: BackgroundJob) -> Response:
    """The answer to a call that pauses or resumes."""
    return JSONResponse({"count": job.done, "complete": not job.running}, 202 if job.running else 200)


def _document(row: Row) -> dict[str, Any]:
    state = {"paused": False, "paused_until": None, "resuming": False, "max_rate": None, "changed": None, "by": None}
    known_state = {} if row.state is None else documents.record(row.state)
    return {**state, **known_state, "name": row.name, "waiting": row.waiting, "rate": row.rate}


CALLS: Final = (
    ApiCall(
        method="GET",
        path="/destinations",
        name="destinations",
        summary="Destinations with waiting messages, recent deliveries, a pause or a limit.",
        do=listed,
        answer=answers.Destinations,
    ),
    ApiCall(
        method="POST",
        path="/destinations/pause",
        name="pause",
        summary="Pause a destination for every dispatcher. 202: still in progress.",
        do=pause,
        body=Pause,
        answer=answers.Changed,
        status=(200, 202),
    ),
    ApiCall(
        method="POST",
        path="/destinations/resume",
        name="resume",
        summary="Resume a destination. 202: still in progress.",
        do=resume,
        body=DestinationFields,
        answer=answers.Changed,
        status=(200, 202),
    ),
    ApiCall(
        method="POST",
        path="/destinations/limit",
        name="limit",
        summary="Limit the messages a second to a destination; null: no limit.",
        do=limit,
        body=Limit,
        answer=answers.Limited,
    ),
)
