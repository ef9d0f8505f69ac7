"""Destinations: list, pause, resume, limit."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore import documents
from delaystore.operations import Operations
from delaystore.web.api.call import Call
from delaystore.web.api.given import given_with
from delaystore.web.api.schemas import NUMBER, TEXT, TIME, known, ref, shape, some
from delaystore.web.destinations import Row, begin_change, paused, resumed, rows_of
from delaystore.web.site import site_of
from delaystore.web.works import Work


async def listed(request: Request) -> Response:
    """All that is known."""
    rows, _ = await rows_of(request)
    return JSONResponse({"destinations": [_document(row) for row in rows]})


async def pause(request: Request) -> Response:
    """Have every dispatcher keep messages for it."""
    given = (await given_with(request)).only("destination", "until")
    change = paused(given.required_text("destination"), given.time("until"))
    return _changed(await begin_change(request, change))


async def resume(request: Request) -> Response:
    """Let them go again."""
    given = (await given_with(request)).only("destination")
    return _changed(await begin_change(request, resumed(given.required_text("destination"))))


async def limit(request: Request) -> Response:
    """Limit how many go there a second; null: any number."""
    given = (await given_with(request)).only("destination", "max_rate", nullable="max_rate")
    name, rate = given.required_text("destination"), given.required_number("max_rate")
    await site_of(request).ask(request, Operations.limit_rate, name, rate)
    site_of(request).readings.forget()
    return JSONResponse({"destination": name, "max_rate": rate})


def _changed(work: Work) -> Response:
    return JSONResponse({"count": work.done, "complete": not work.running}, 202 if work.running else 200)


def _document(row: Row) -> dict[str, Any]:
    state = {"paused": False, "paused_until": None, "resuming": False, "max_rate": None, "changed": None, "by": None}
    known_state = {} if row.state is None else documents.record(row.state)
    return {**state, **known_state, "name": row.name, "waiting": row.waiting, "rate": row.rate}


CALLS: Final = (
    Call(
        method="GET",
        path="/destinations",
        name="destinations",
        summary="What messages wait for, or were delivered to lately, and what is paused or limited.",
        do=listed,
        answer=shape({"destinations": some(ref("Destination"))}),
    ),
    Call(
        method="POST",
        path="/destinations/pause",
        name="pause",
        summary="Have every dispatcher keep messages for a destination. 202: it goes on.",
        do=pause,
        body=shape({"destination": TEXT, "until": TIME}, optional=("until",), closed=True),
        answer=ref("Changed"),
        status=(200, 202),
    ),
    Call(
        method="POST",
        path="/destinations/resume",
        name="resume",
        summary="Let messages for a destination go again. 202: it goes on.",
        do=resume,
        body=shape({"destination": TEXT}, closed=True),
        answer=ref("Changed"),
        status=(200, 202),
    ),
    Call(
        method="POST",
        path="/destinations/limit",
        name="limit",
        summary="Let at most so many messages a second go to a destination; null: any number.",
        do=limit,
        body=shape({"destination": TEXT, "max_rate": known(NUMBER)}, closed=True),
        answer=shape({"destination": TEXT, "max_rate": known(NUMBER)}),
    ),
)
