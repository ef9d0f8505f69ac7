"""Recurring schedules: list, one of them, its form with the next runs, and its actions."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, InvalidMessageError, InvalidScheduleError
from delaystore.message import DelayedMessage
from delaystore.schedules import PutResult, Schedule, Schedules, ScheduleState
from delaystore.schedules.editing import unknown
from delaystore.schedules.making import newest
from delaystore.server.web._site import site_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.forms import Fields, fields_of, id_of, text_of, time_of, typed, whole_number
from delaystore.stores.history import HistoryEntry
from delaystore.stores.schedules import OCCURRENCES, occurrence_id
from delaystore.text import JsonError, duration_text, parse_duration, parse_json

PAGE: Final = 50
_RUNS: Final = 10
"""Next and last runs on the screen of a schedule."""
_PREVIEWED: Final = 5
_EDITABLE: Final = 32 * 1024
"""Bytes of a body that a screen shows; the form keeps a larger one, unless another one is typed."""
_AGO: Final = timedelta(days=36_600)
_SECOND: Final = timedelta(seconds=1)


async def listed(request: Request) -> Response:
    """A page of them, by name, with their next and last runs."""
    site, prefix = site_of(request), text_of(request.query_params, "prefix")
    after = id_of(request.query_params, "after") or None

    def look(schedules: Schedules) -> dict[str, Any]:
        found = schedules.list(prefix, after=after, limit=PAGE + 1)
        runs = _runs(site.delivery, [each.last_id for each in found[:PAGE] if each.last_id is not None])
        following = found[PAGE - 1].name if len(found) > PAGE else None
        now = site.delivery.operations.now()
        return {"schedules": found[:PAGE], "following": following, "runs": runs, "now": now}

    content = await site.run_schedules(request, look)
    content |= {"here": "/schedules", "prefix": prefix, "is_first": after is None}
    return site.pages.page(request, "schedules.html", **content)


async def one(request: Request) -> Response:
    """One of them: its definition, its next runs, and its last ones."""
    site, name = site_of(request), id_of(request.query_params, "name")

    def look(schedules: Schedules) -> dict[str, Any]:
        state = _known(schedules, name)
        times = {occurrence_id(name, each): each for each in _last_times(state)}
        return {
            "state": state,
            "schedule": state.schedule,
            "typed": _typed_of(state.schedule, show_body=site.show_bodies),
            "upcoming": schedules.upcoming(name, _RUNS),
            "times": times,
            "runs": _runs(site.delivery, list(times)),
            "now": site.delivery.operations.now(),
        }

    content = await site.run_schedules(request, look)
    return site.pages.page(request, "schedule.html", here="/schedules", ids=f"{OCCURRENCES}{name}/", **content)


async def edit(request: Request) -> Response:
    """The form of a schedule, or of a new one."""
    site, name = site_of(request), id_of(request.query_params, "name")
    before = await site.run_schedules(request, _known, name) if name else None
    given = {} if before is None else _typed_of(before.schedule, show_body=site.show_bodies)
    version = "" if before is None else str(before.version)
    return await _form(request, name, given, version)


async def preview(request: Request) -> Response:
    """The next runs of a rule that is being typed, or why it has none, as a part of the form."""
    runs = await _next_runs(request, request.query_params)
    text = site_of(request).pages.fragment(request, "_runs.html", **runs)
    return Response(text.encode(errors="backslashreplace"), media_type="text/html")


async def put(request: Request) -> Response:
    """Create a schedule, or change it. 400: the form has an invalid value; it is shown again with the reason."""
    site, fields = site_of(request), await fields_of(request)
    name, version = id_of(fields, "name"), text_of(fields, "version")
    expected = whole_number(version or "0", "version", 0, 10**9)

    def change(schedules: Schedules) -> PutResult:
        before = schedules.get(name)
        document = _document_of(fields, None if before is None else before.schedule, show_body=site.show_bodies)
        return schedules.put_schedule(Schedule.of_document(document, name), version=expected)

    try:
        result = await site.run_schedules(request, change)
    except (ConfigurationError, InvalidMessageError, InvalidScheduleError) as error:
        return await _form(request, name, typed(fields, FORM), version, str(error))
    return _then(request, name, f"is {result}")


async def pause(request: Request) -> Response:
    """Make no more occurrences."""
    return await _change(request, Schedules.pause, "is paused")


async def resume(request: Request) -> Response:
    """Make occurrences again."""
    return await _change(request, Schedules.resume, "is resumed")


async def trigger(request: Request) -> Response:
    """Make an occurrence now."""
    return await _change(request, Schedules.trigger, "has one more run, which is due now")


async def delete(request: Request) -> Response:
    """Delete it, and its waiting occurrences."""
    return await _change(request, Schedules.delete, "is deleted", "/schedules")


async def skip(request: Request) -> Response:
    """Leave out one occurrence."""
    fields = await fields_of(request)
    name, at = id_of(fields, "name"), time_of(text_of(fields, "at"), "at")
    if at is None:
        raise Refusal(400, "The form does not name a run.")
    is_skipped = await site_of(request).run_schedules(request, Schedules.skip, name, at)
    return _then(request, name, "skips the run" if is_skipped else "is unchanged: a dispatcher is sending the run")


async def _change(request: Request, do: Callable[[Schedules, str], object], done: str, path: str = "") -> Response:
    name = id_of(await fields_of(request), "name")
    await site_of(request).run_schedules(request, do, name)
    return _then(request, name, done, path)


def _then(request: Request, name: str, done: str, path: str = "") -> Response:
    """Go on to the screen of the schedule, or to `path`."""
    site_of(request).cached.forget()
    where, query = (path, None) if path else ("/schedule", {"name": name})
    return site_of(request).pages.then(request, where, query, f"The schedule {name} {done}.")


def _known(schedules: Schedules, name: str) -> ScheduleState:
    found = schedules.get(name)
    if found is None:
        raise unknown(name)
    return found


def _last_times(state: ScheduleState) -> Sequence[datetime]:
    """The nominal times of the last runs by the present rule, the last one first."""
    last = state.last_time
    return [] if last is None else [last, *reversed(newest(state.schedule, last - _AGO, last - _SECOND, _RUNS - 1))]


def _runs(delivery: DelayedDelivery, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage | HistoryEntry]:
    """The waiting messages of these ids, and the entries of the others, if there are any."""
    waiting = delivery.get_many(message_ids) if message_ids else {}
    gone = [each for each in message_ids if each not in waiting]
    entries = [entry for each in gone for entry in delivery.operations.history_of(each, limit=1)]
    return {**waiting, **{each.message_id: each for each in entries}}


def _object_of(text: str, name: str) -> dict[str, Any]:
    try:
        given = parse_json(text)
    except JsonError as error:
        raise InvalidMessageError(f"the field {name} {error}") from None
    if not isinstance(given, dict):
        raise InvalidMessageError(f'the field {name} must be a JSON object, such as {{"tenant": "north"}}')
    return given


def _count_of(text: str, name: str) -> int:
    return whole_number(text, name, 1, 10**9)


_RULE: Final[Mapping[str, Callable[[str, str], Any]]] = {
    **dict.fromkeys(("cron", "every", "at", "zone"), lambda text, _: text),
    **dict.fromkeys(("starts", "ends"), time_of),
    "max_runs": _count_of,
    "both_days": lambda text, _: text == "yes",
}
"""The fields of the form that decide the runs, and how their texts are read."""
_FIELDS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    **_RULE,
    **dict.fromkeys(("destination", "catch_up", "max_late", "jitter", "if_waiting"), lambda text, _: text),
    **dict.fromkeys(("headers", "properties"), _object_of),
}
FORM: Final = (*_FIELDS, "body")


async def _form(
    request: Request, name: str, given: Mapping[str, str], version: str, problem: str | None = None
) -> Response:
    """The form with the texts `given`. `version`: of the schedule as it was when the form was opened; empty: none."""
    content = {"name": name, "typed": {**dict.fromkeys(FORM, ""), **given}, "edited": version, "refused": problem}
    content |= await _next_runs(request, Fields(given))
    status = 200 if problem is None else 400
    return site_of(request).pages.page(request, "schedule_edit.html", here="/schedules", status=status, **content)


async def _next_runs(request: Request, fields: Fields) -> dict[str, Any]:
    """The next runs by the rule of a form for `_runs.html`, or why there are none."""

    def look(schedules: Schedules) -> dict[str, Any]:
        name = "being typed"
        try:
            schedule = Schedule.of_document({**_read(fields, _RULE), "destination": "any", "body": ""}, name)
            runs = schedules.preview(schedule, _PREVIEWED)
        except (InvalidMessageError, InvalidScheduleError) as error:
            return {"problem": str(error).removeprefix(f"the schedule {name!r} is invalid: "), "zone": None}
        return {"problem": None, "zone": schedule.rule.zone, "next_times": runs}

    if not text_of(fields, "cron") and not text_of(fields, "every"):
        return {"problem": None, "zone": None}
    return await site_of(request).run_schedules(request, look)


def _read(fields: Fields, how: Mapping[str, Callable[[str, str], Any]]) -> dict[str, Any]:
    """The members of a definition that are not empty. Raises InvalidMessageError."""
    given = {name: text_of(fields, name) for name in how}
    return {name: how[name](text, name) for name, text in given.items() if text}


def _document_of(fields: Fields, before: Schedule | None, *, show_body: bool) -> dict[str, Any]:
    """The definition that the form means, for `Schedule.of_document`. Raises InvalidMessageError.

    An untouched body stays, shown or not; so do untouched headers and properties, as JSON has fewer types.
    """
    found, body = _read(fields, _FIELDS), id_of(fields, "body").replace("\r\n", "\n")
    if before is None:
        return {**found, "body": body}
    shown = _typed_of(before, show_body=show_body)
    unchanged = [name for name in ("headers", "properties") if text_of(fields, name) == shown[name]]
    found |= {name: getattr(before, name) for name in unchanged}
    if body == shown["body"].replace("\r\n", "\n"):
        return {**found, "body_base64": b64encode(before.body).decode()}
    return {**found, "body": body}


def _typed_of(schedule: Schedule, *, show_body: bool) -> dict[str, str]:
    """The fields of a schedule's form as texts. The body is empty if it is no text, too long, or not to be shown."""
    known = schedule.as_document()
    if not show_body or len(schedule.body) > _EDITABLE:
        known.pop("body", None)
    known |= {name: _span_text(known[name]) for name in ("every", "max_late", "jitter") if name in known}
    return {name: _text(known.get(name)) for name in FORM}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else "yes" if value is True else str(value)


def _span_text(seconds: float) -> str:
    """A duration as `parse_duration` reads it."""
    text = duration_text(timedelta(seconds=seconds))
    return text if parse_duration(text, "it").total_seconds() == seconds else str(seconds)
