"""Recurring schedules: list, put, delete, pause, resume, skip, trigger, backfill, preview, apply."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore.operations.json_requests import NullFieldError, RequestFieldError, read_fields, time_in
from delaystore.schedules import PutResult, Schedule, Schedules, ScheduleState
from delaystore.server.web._changes import next_runs
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
    ScheduleFields,
    Skip,
    ends_in_id,
    fields_of,
    refusal,
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
    query = request.query_params
    limit, after = limit_of(query, 100), id_of(query, "after") or None
    found = await site_of(request).run_schedules(
        request, Schedules.list, id_of(query, "prefix"), after=after, limit=limit + 1
    )
    shown, with_body = found[:limit], site_of(request).show_bodies
    return JSONResponse(
        {
            "schedules": [_document(each, with_body=with_body) for each in shown],
            "next": shown[-1].name if len(found) > limit else None,
        }
    )


async def get(request: Request) -> Response:
    """One of them."""
    return JSONResponse(_document(await _asked_for(request), with_body=site_of(request).show_bodies))


async def put(request: Request) -> Response:
    """Create it, or change it."""
    name, given = request.path_params["name"], await fields_of(request, NewSchedule)
    result = await site_of(request).run_schedules(
        request, Schedules.put_schedule, Schedule.of_document(msgspec.structs.asdict(given), name)
    )
    return JSONResponse({"name": name, "result": result}, 201 if result is PutResult.CREATED else 200)


async def delete(request: Request) -> Response:
    """Delete it, and its waiting occurrences."""
    name = request.path_params["name"]
    if not await site_of(request).run_schedules(request, Schedules.delete, name):
        raise _unknown(name)
    return _changed(name, is_changed=True)


async def pause(request: Request) -> Response:
    """Make no more occurrences."""
    name = await _name_for(request)
    return _changed(name, is_changed=await site_of(request).run_schedules(request, Schedules.pause, name))


async def resume(request: Request) -> Response:
    """Make occurrences again."""
    name = await _name_for(request)
    return _changed(name, is_changed=await site_of(request).run_schedules(request, Schedules.resume, name))


async def skip(request: Request) -> Response:
    """Leave out one occurrence."""
    name, given = _name(request), await fields_of(request, Skip)
    if not await site_of(request).run_schedules(request, Schedules.skip, name, time_in(given.at, "at")):
        raise Refusal(409, f"Nothing was changed, because a dispatcher is sending this occurrence of {name!r}.")
    return _changed(name, is_changed=True)


async def trigger(request: Request) -> Response:
    """Make an occurrence now."""
    message_id = await site_of(request).run_schedules(request, Schedules.trigger, await _name_for(request))
    return JSONResponse({"message_id": message_id}, 201)


async def backfill(request: Request) -> Response:
    """Make the occurrences of a past time."""
    name, given = _name(request), await fields_of(request, Backfill)
    since, until = time_in(given.since, "since"), time_in(given.until, "until")
    return JSONResponse(
        {"count": await site_of(request).run_schedules(request, Schedules.backfill, name, since, until)}
    )


async def upcoming(request: Request) -> Response:
    """Its next occurrences."""
    if ends_in_id(request):
        request.path_params["name"] += "/upcoming"
        return await get(request)
    count = limit_of(request.query_params, _SHOWN, "count")
    state = await _asked_for(request)
    return _times(state.schedule, await site_of(request).run_schedules(request, Schedules.upcoming, state.name, count))


async def preview(request: Request) -> Response:
    """The occurrences that a schedule would have. It writes nothing."""
    given = await fields_of(request, ScheduleFields)
    return _times(*await site_of(request).run_schedules(request, next_runs, msgspec.structs.asdict(given), _SHOWN))


async def apply(request: Request) -> Response:
    """Make the schedules below a prefix those of the request."""
    given = await fields_of(request, ApplySchedules)
    wanted = [_in_list(each, number) for number, each in enumerate(given.schedules, 1)]
    done = await site_of(request).run_schedules(
        request, Schedules.put_all, wanted, prefix=given.prefix, dry_run=bool(given.dry_run)
    )
    return JSONResponse(done.as_dict())


def _in_list(given: dict[str, Any], number: int) -> Schedule:
    try:
        return Schedule.of_document(msgspec.structs.asdict(read_fields(NamedSchedule, given)))
    except RequestFieldError as error:
        raise refusal(f"in schedule {number}: {error}", 422 if isinstance(error, NullFieldError) else 400) from None


async def _asked_for(request: Request) -> ScheduleState:
    name = request.path_params["name"]
    found = await site_of(request).run_schedules(request, Schedules.get, name)
    if found is None:
        raise _unknown(name)
    return found


def _name(request: Request) -> str:
    """The schedule that an action is for. Raises Refusal for an address that has no action behind the name."""
    if ends_in_id(request):
        raise Refusal(404, "This address does not exist.")
    name: str = request.path_params["name"]
    return name


async def _name_for(request: Request) -> str:
    """As `_name`, for a request that has no fields."""
    await fields_of(request, NoFields)
    return _name(request)


def _document(state: ScheduleState, *, with_body: bool) -> dict[str, Any]:
    hidden = () if with_body else ("body", "body_base64")
    return {name: value for name, value in state.as_dict().items() if name not in hidden}


def _times(schedule: Schedule, times: Sequence[datetime]) -> Response:
    zone = schedule.rule.zone
    local = [each.astimezone(zone_of(zone)).isoformat() for each in times]
    pairs = [{"utc": instant(each), "local": shown} for each, shown in zip(times, local, strict=True)]
    return JSONResponse({"zone": zone, "times": pairs})


def _changed(name: str, *, is_changed: bool) -> Response:
    return JSONResponse({"name": name, "changed": is_changed})


def _unknown(name: str) -> Refusal:
    return Refusal(404, f"There is no schedule {name!r}.")


def _action(path: str, name: str, summary: str, do: Callable[[Request], Any], **more: Any) -> ApiCall:
    """A call that changes one schedule."""
    named = {"method": "POST", "body": NoFields, "answer": answers.ScheduleChanged, "refusals": (404,), **more}
    return ApiCall(path=f"/schedules/{{name}}{path}", name=name, summary=summary, do=do, **named)


_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": 1000}
CALLS: Final = (
    ApiCall(
        method="GET",
        path="/schedules",
        name="schedules",
        summary="A page of recurring schedules, by name; their bodies only where the server shows bodies.",
        do=listed,
        query={
            "prefix": {**TEXT, "description": "The beginning of their names."},
            "after": {**TEXT, "description": "The `next` of the page before."},
            "limit": _LIMIT,
        },
        answer=answers.SchedulesAnswer,
    ),
    ApiCall(
        method="POST",
        path="/schedules/preview",
        name="previewSchedule",
        summary="The next five times that a schedule would have, in UTC and in its time zone. Changes nothing.",
        do=preview,
        body=ScheduleFields,
        answer=answers.ScheduleTimes,
    ),
    ApiCall(
        method="POST",
        path="/schedules/apply",
        name="applySchedules",
        summary=(
            "Make the schedules whose names begin with `prefix` those of the request, in one transaction: create, "
            "change and delete. With `dry_run` nothing is changed."
        ),
        do=apply,
        body=ApplySchedules,
        answer=answers.ScheduleChangesAnswer,
    ),
    ApiCall(  # before `get`, whose name may hold slashes
        method="GET",
        path="/schedules/{name}/upcoming",
        name="upcomingOccurrences",
        summary="The next times of a schedule, in UTC and in its time zone, without skipped ones.",
        do=upcoming,
        query={"count": _LIMIT},
        answer=answers.ScheduleTimes,
        refusals=(404,),
    ),
    ApiCall(
        method="GET",
        path="/schedules/{name}",
        name="schedule",
        summary="A schedule, and the numbers of its occurrences.",
        do=get,
        answer=answers.ScheduleAnswer,
        refusals=(404,),
    ),
    _action(
        "",
        "putSchedule",
        "Create a schedule (201), or change it. If it is the same already, nothing is written.",
        put,
        method="PUT",
        body=NewSchedule,
        answer=answers.SchedulePut,
        status=(201, 200),
        refusals=(),
    ),
    ApiCall(
        method="DELETE",
        path="/schedules/{name}",
        name="deleteSchedule",
        summary="Delete a schedule and its waiting occurrences.",
        do=delete,
        answer=answers.ScheduleChanged,
        refusals=(404,),
    ),
    _action("/pause", "pauseSchedule", "Make no more occurrences of a schedule. The body is {}.", pause),
    _action("/resume", "resumeSchedule", "Make occurrences again, from the next one on. The body is {}.", resume),
    _action("/skip", "skipOccurrence", "Leave out one occurrence.", skip, body=Skip, refusals=(404, 409)),
    _action(
        "/trigger",
        "triggerSchedule",
        "Make one occurrence now, besides those of the rule. The body is {}.",
        trigger,
        answer=answers.MessageId,
        status=(201,),
    ),
    _action(
        "/backfill",
        "backfillSchedule",
        "Make the occurrences from `since` to `until`, both past, due now.",
        backfill,
        body=Backfill,
        answer=answers.Backfilled,
    ),
)
