"""Recurring schedules: list, put, delete, pause, resume, skip, trigger, backfill, preview, apply."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore.operations.json_requests import time_in
from delaystore.schedules import PutResult, Schedule, Schedules, ScheduleState
from delaystore.schedules.editing import unknown
from delaystore.server.web._site import site_of
from delaystore.server.web.api import answers
from delaystore.server.web.api._fields import (
    TEXT,
    ApiCall,
    ApplySchedules,
    Backfill,
    NamedSchedule,
    NewSchedule,
    NoFields,
    Skip,
    ends_in_id,
    fields_of,
)
from delaystore.server.web.api.messages import limit_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.forms import id_of
from delaystore.stores.documents import instant
from delaystore.text import zone as zone_of

_SHOWN: Final = 5
"""Times of a preview, and of `upcoming` unless the caller says how many."""


async def listed(request: Request) -> Response:
    """A page of them, by name; `next` is null at the end only."""
    site, query = site_of(request), request.query_params
    prefix, after, limit = id_of(query, "prefix"), id_of(query, "after") or None, limit_of(query, 100)
    found = await site.run_schedules(request, Schedules.list, prefix, after=after, limit=limit + 1)
    shown = [_document(each, with_body=site.show_bodies) for each in found[:limit]]
    return JSONResponse({"schedules": shown, "next": shown[-1]["name"] if len(found) > limit else None})


async def get(request: Request) -> Response:
    """One of them."""
    return JSONResponse(_document(await _asked_for(request), with_body=site_of(request).show_bodies))


async def put(request: Request) -> Response:
    """Create it, or change it."""
    name, given = request.path_params["name"], await fields_of(request, NewSchedule)
    schedule = Schedule.of_document(msgspec.structs.asdict(given), name)
    result = await site_of(request).run_schedules(request, Schedules.put_schedule, schedule)
    return JSONResponse({"name": name, "result": result}, 201 if result is PutResult.CREATED else 200)


async def delete(request: Request) -> Response:
    """Delete it, and its waiting occurrences."""
    name = request.path_params["name"]
    if not await site_of(request).run_schedules(request, Schedules.delete, name):
        raise unknown(name)
    return JSONResponse({"name": name, "changed": True})


async def pause(request: Request) -> Response:
    """Make no more occurrences."""
    return await _switch(request, Schedules.pause)


async def resume(request: Request) -> Response:
    """Make occurrences again."""
    return await _switch(request, Schedules.resume)


async def skip(request: Request) -> Response:
    """Leave out one occurrence."""
    name, given = request.path_params["name"], await fields_of(request, Skip)
    if not await site_of(request).run_schedules(request, Schedules.skip, name, time_in(given.at, "at")):
        raise Refusal(409, f"Nothing was changed, because a dispatcher is sending this occurrence of {name!r}.")
    return JSONResponse({"name": name, "changed": True})


async def trigger(request: Request) -> Response:
    """Make an occurrence now."""
    name, _ = request.path_params["name"], await fields_of(request, NoFields)
    return JSONResponse({"message_id": await site_of(request).run_schedules(request, Schedules.trigger, name)}, 201)


async def backfill(request: Request) -> Response:
    """Make the occurrences of a past time."""
    name, given = request.path_params["name"], await fields_of(request, Backfill)
    times = time_in(given.since, "since"), time_in(given.until, "until")
    return JSONResponse({"count": await site_of(request).run_schedules(request, Schedules.backfill, name, *times)})


async def upcoming(request: Request) -> Response:
    """Its next occurrences."""
    if ends_in_id(request):
        request.path_params["name"] += "/upcoming"
        return await get(request)
    count, state = limit_of(request.query_params, _SHOWN, "count"), await _asked_for(request)
    return _times(state.schedule, await site_of(request).run_schedules(request, Schedules.upcoming, state.name, count))


async def preview(request: Request) -> Response:
    """The occurrences that a schedule would have. It writes nothing."""
    schedule = Schedule.of_document(msgspec.structs.asdict(await fields_of(request, NamedSchedule)))
    return _times(schedule, await site_of(request).run_schedules(request, Schedules.preview, schedule, _SHOWN))


async def apply(request: Request) -> Response:
    """Make the schedules below a prefix those of the request."""
    given = await fields_of(request, ApplySchedules)
    wanted, dry_run = [Schedule.of_document(each) for each in given.schedules], bool(given.dry_run)
    put_all = site_of(request).run_schedules(request, Schedules.put_all, wanted, prefix=given.prefix, dry_run=dry_run)
    return JSONResponse((await put_all).as_dict())


async def _switch(request: Request, do: Callable[[Schedules, str], bool]) -> Response:
    name, _ = request.path_params["name"], await fields_of(request, NoFields)
    return JSONResponse({"name": name, "changed": await site_of(request).run_schedules(request, do, name)})


async def _asked_for(request: Request) -> ScheduleState:
    name = request.path_params["name"]
    found = await site_of(request).run_schedules(request, Schedules.get, name)
    if found is None:
        raise unknown(name)
    return found


def _document(state: ScheduleState, *, with_body: bool) -> dict[str, Any]:
    hidden = () if with_body else ("body", "body_base64")
    return {name: value for name, value in state.as_dict().items() if name not in hidden}


def _times(schedule: Schedule, times: Sequence[datetime]) -> Response:
    zone = schedule.rule.zone
    both = [{"utc": instant(each), "local": each.astimezone(zone_of(zone)).isoformat()} for each in times]
    return JSONResponse({"zone": zone, "times": both})


def _call(called: str, name: str, summary: str, do: Callable[[Request], Any], answer: Any, **more: Any) -> ApiCall:
    """A call; `called`: its method, and its path below /schedules."""
    method, _, path = called.partition(" ")
    known = {"refusals": (404,)} if "{" in path and method != "PUT" else {}
    return ApiCall(
        method=method, path=f"/schedules{path}", name=name, summary=summary, do=do, answer=answer, **{**known, **more}
    )


_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": 1000}
_PAGE: Final = {"prefix": TEXT, "after": {**TEXT, "description": "The `next` of the page before."}, "limit": _LIMIT}
_LIST: Final = "A page of recurring schedules, by name; their bodies only where the server shows bodies."
_PREVIEW: Final = "The next five times of a definition, in UTC and in its time zone. Changes nothing."
_APPLY: Final = (
    "In one transaction make the schedules whose names begin with `prefix` those of the request: create, change and "
    "delete them. With `dry_run` nothing is changed."
)
_UPCOMING: Final = "The next times of a schedule, in UTC and in its time zone, without skipped ones."
_ONE: Final = "A schedule, and the numbers of its occurrences."
_PUT: Final = "Create a schedule (201), or change it. If it is the same already, nothing is written."
_PAUSE: Final = "Make no more occurrences of a schedule. The body is {}."
_RESUME: Final = "Make occurrences of a paused schedule again, from the next one on. The body is {}."
_TRIGGER: Final = "Make one occurrence now, besides those of the rule. The body is {}."
_BACKFILL: Final = "Make the occurrences from `since` to `until`, both past, due now."
_CHANGED, _TIMES = answers.ScheduleChanged, answers.ScheduleTimes
CALLS: Final = (
    _call("GET ", "schedules", _LIST, listed, answers.SchedulesAnswer, query=_PAGE),
    _call("POST /preview", "previewSchedule", _PREVIEW, preview, _TIMES, body=NamedSchedule),
    _call("POST /apply", "applySchedules", _APPLY, apply, answers.ScheduleChangesAnswer, body=ApplySchedules),
    # before `get`, whose name may hold slashes
    _call("GET /{name}/upcoming", "upcomingTimes", _UPCOMING, upcoming, _TIMES, query={"count": _LIMIT}),
    _call("GET /{name}", "schedule", _ONE, get, answers.ScheduleAnswer),
    _call("PUT /{name}", "putSchedule", _PUT, put, answers.SchedulePut, body=NewSchedule, status=(201, 200)),
    _call("DELETE /{name}", "deleteSchedule", "Delete a schedule and its waiting occurrences.", delete, _CHANGED),
    _call("POST /{name}/pause", "pauseSchedule", _PAUSE, pause, _CHANGED, body=NoFields),
    _call("POST /{name}/resume", "resumeSchedule", _RESUME, resume, _CHANGED, body=NoFields),
    _call(
        "POST /{name}/skip",
        "skipOccurrence",
        "Leave out one occurrence.",
        skip,
        _CHANGED,
        body=Skip,
        refusals=(404, 409),
    ),
    _call(
        "POST /{name}/trigger", "triggerSchedule", _TRIGGER, trigger, answers.MessageId, body=NoFields, status=(201,)
    ),
    _call("POST /{name}/backfill", "backfillSchedule", _BACKFILL, backfill, answers.Backfilled, body=Backfill),
)
