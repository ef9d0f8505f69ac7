"""Recurring schedules: list, one of them, its form with the next runs, and its actions."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, InvalidMessageError, InvalidScheduleError
from delaystore.message import DelayedMessage
from delaystore.schedules import CatchUp, IfWaiting, PutResult, Schedule, Schedules, ScheduleState
from delaystore.server.web._changes import next_runs
from delaystore.server.web._site import site_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.formatting import as_text, field_time
from delaystore.server.web.forms import Fields, fields_of, flag_of, id_of, text_of, time_of, typed, whole_number
from delaystore.stores.documents import plain
from delaystore.stores.history import HistoryEntry
from delaystore.stores.schedules import OCCURRENCES, occurrence_id
from delaystore.text import JsonError, duration_text, parse_duration, parse_json

PAGE: Final = 50
_RUNS: Final = 10
"""Next and last runs on the screen of a schedule."""
_PREVIEWED: Final = 5
_EDITABLE: Final = 32 * 1024
"""Bytes of a body that the form shows; a larger one is kept, or replaced."""
_TEXTS: Final = ("cron", "every", "at", "zone")
_TIMES: Final = ("starts", "ends")
RULE: Final = (*_TEXTS, *_TIMES, "max_runs", "both_days")
"""The fields of the form that decide the runs."""
_SPANS: Final = ("every", "max_late", "jitter")
_OPTIONS: Final = ("destination", "catch_up", "max_late", "jitter", "if_waiting")
_MAPPINGS: Final = ("headers", "properties")
FORM: Final = (*RULE, *_OPTIONS, *_MAPPINGS, "body")
_MOST_RUNS: Final = 10**9
_AGO: Final = timedelta(days=3660)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Run:
    """An occurrence that was due. `message`: it still waits; `entry`: it has left. Both None: nothing is known."""

    message: DelayedMessage | None
    entry: HistoryEntry | None

    @property
    def is_known(self) -> bool:
        """Whether it waits, or the history has it."""
        return self.message is not None or self.entry is not None


async def listed(request: Request) -> Response:
    """A page of them, by name, with their next and last runs."""
    site, query = site_of(request), request.query_params
    prefix, after = text_of(query, "prefix"), id_of(query, "after") or None

    def look(schedules: Schedules) -> tuple[Sequence[ScheduleState], Mapping[str, Run], datetime]:
        found = schedules.list(prefix, after=after, limit=PAGE + 1)
        last = [each.last_id for each in found[:PAGE] if each.last_id is not None]
        return found, _runs(site.delivery, last), site.delivery.operations.now()

    found, runs, now = await site.run_schedules(request, look)
    return site.pages.page(
        request,
        "schedules.html",
        here="/schedules",
        schedules=found[:PAGE],
        following=found[PAGE - 1].name if len(found) > PAGE else None,
        runs=runs,
        now=now,
        prefix=prefix,
        is_first=after is None,
    )


async def one(request: Request) -> Response:
    """One of them: its definition, its next runs, and its last ones."""
    site, name = site_of(request), id_of(request.query_params, "name")

    def look(schedules: Schedules) -> dict[str, Any] | None:
        state = schedules.get(name)
        if state is None:
            return None
        times = {occurrence_id(name, each): each for each in _last_times(state)}
        runs = {message_id: run for message_id, run in _runs(site.delivery, list(times)).items() if run.is_known}
        return {
            "state": state,
            "upcoming": schedules.upcoming(name, _RUNS),
            "runs": runs,
            "times": times,
            "now": site.delivery.operations.now(),
        }

    found = await site.run_schedules(request, look)
    if found is None:
        raise _unknown(name)
    schedule = found["state"].schedule
    return site.pages.page(
        request,
        "schedule.html",
        here="/schedules",
        schedule=schedule,
        typed=_typed_of(schedule, show_body=False),
        body=schedule.body[:_EDITABLE].decode(errors="backslashreplace") if site.show_bodies else None,
        ids=f"{OCCURRENCES}{name}/",
        **found,
    )


async def edit(request: Request) -> Response:
    """The form of a schedule, or of a new one."""
    site, name = site_of(request), id_of(request.query_params, "name")
    if not name:
        return await _form(request, name, {}, None)
    before = await site.run_schedules(request, Schedules.get, name)
    if before is None:
        raise _unknown(name)
    show_body = _is_editable(before.schedule, show_bodies=site.show_bodies)
    return await _form(request, name, _typed_of(before.schedule, show_body=show_body), before)


async def preview(request: Request) -> Response:
    """The next runs of a rule that is being typed, or why it has none, as a part of the form."""
    site, fields = site_of(request), request.query_params
    text = site.pages.fragment(request, "_runs.html", **await _next_runs(request, fields))
    return Response(text.encode(errors="backslashreplace"), media_type="text/html")


async def put(request: Request) -> Response:
    """Create a schedule, or change it. 400: the form has an invalid value; it is shown again with the reason."""
    site, fields = site_of(request), await fields_of(request)
    name, before = id_of(fields, "name"), None
    try:
        before = await site.run_schedules(request, Schedules.get, name)
        _check_version(name, text_of(fields, "version"), before)
        schedule = Schedule.of_document(_document_of(fields, before, show_bodies=site.show_bodies), name)
        if flag_of(fields, "only_preview"):
            return await _form(request, name, typed(fields, FORM), before)
        result = await site.run_schedules(request, Schedules.put_schedule, schedule)
    except (ConfigurationError, InvalidMessageError, InvalidScheduleError) as error:
        return await _form(request, name, typed(fields, FORM), before, str(error), text_of(fields, "version"))
    done = "is the same as before" if result is PutResult.UNCHANGED else f"is {result}"
    return _then(request, name, f"The schedule {name} {done}.")


async def pause(request: Request) -> Response:
    """Make no more occurrences."""
    return await _switch(request, Schedules.pause, "is paused", "was paused already")


async def resume(request: Request) -> Response:
    """Make occurrences again."""
    return await _switch(request, Schedules.resume, "is resumed", "was not paused")


async def trigger(request: Request) -> Response:
    """Make an occurrence now."""
    name = id_of(await fields_of(request), "name")
    message_id = await site_of(request).run_schedules(request, Schedules.trigger, name)
    return _then(request, name, f"The message {message_id} is due now.")


async def skip(request: Request) -> Response:
    """Leave out one occurrence."""
    fields = await fields_of(request)
    name, at = id_of(fields, "name"), time_of(text_of(fields, "at"), "at")
    if at is None:
        raise Refusal(400, "The form does not name a run.")
    if await site_of(request).run_schedules(request, Schedules.skip, name, at):
        return _then(request, name, "The run is skipped.")
    return _then(request, name, "Nothing was changed, because a dispatcher is sending this run.")


async def delete(request: Request) -> Response:
    """Delete it, and its waiting occurrences."""
    name = id_of(await fields_of(request), "name")
    if not await site_of(request).run_schedules(request, Schedules.delete, name):
        raise _unknown(name)
    site_of(request).cached.forget()
    return site_of(request).pages.then(request, "/schedules", None, f"The schedule {name} is deleted.")


async def _switch(request: Request, do: Callable[[Schedules, str], bool], done: str, already: str) -> Response:
    name = id_of(await fields_of(request), "name")
    is_changed = await site_of(request).run_schedules(request, do, name)
    return _then(request, name, f"The schedule {name} {done if is_changed else already}.")


def _then(request: Request, name: str, notice: str) -> Response:
    site_of(request).cached.forget()
    return site_of(request).pages.then(request, "/schedule", {"name": name}, notice)


def _unknown(name: str) -> Refusal:
    return Refusal(404, f"There is no schedule {name!r}.")


def _last_times(state: ScheduleState) -> Sequence[datetime]:
    """The nominal times of the last runs by the present rule, the last one first."""
    found: list[datetime] = []
    time = state.last_time
    while time is not None and len(found) < _RUNS:
        found.append(time)
        time = state.schedule.last_between(time - _AGO, time - _SECOND)
    return found


def _runs(delivery: DelayedDelivery, message_ids: Sequence[str]) -> Mapping[str, Run]:
    """The waiting messages, or the entries of the history, of these occurrences."""
    waiting = delivery.get_many(message_ids) if message_ids else {}
    gone = [each for each in message_ids if each not in waiting]
    entries = {each: delivery.operations.history_of(each, limit=1) for each in gone}
    return {each: Run(waiting.get(each), next(iter(entries.get(each, ())), None)) for each in message_ids}


# The form: texts of its fields, and the definition that they mean.


async def _form(
    request: Request,
    name: str,
    given: Mapping[str, str],
    before: ScheduleState | None,
    problem: str | None = None,
    version: str | None = None,
) -> Response:
    """The form with the texts `given`. `before`: the schedule as it is; None: there is none of that name."""
    site = site_of(request)
    is_kept = before is not None and not _is_editable(before.schedule, show_bodies=site.show_bodies)
    known = "" if before is None else str(before.version)
    return site.pages.page(
        request,
        "schedule_edit.html",
        here="/schedules",
        status=200 if problem is None else 400,
        name=name,
        typed={**dict.fromkeys(FORM, ""), **given},
        is_kept=is_kept,
        size=0 if before is None else len(before.schedule.body),
        edited=known if version is None else version,
        catch_ups=[*CatchUp],
        if_waitings=[*IfWaiting],
        refused=problem,
        **await _next_runs(request, given),
    )


async def _next_runs(request: Request, given: Mapping[str, str] | Fields) -> dict[str, Any]:
    """The next runs by the rule of a form for `_runs.html`, or why there are none."""
    fields = Fields({name: given.get(name, "") for name in RULE})
    nothing = {"previewed": None, "next_times": (), "problem": None}
    if not text_of(fields, "cron") and not text_of(fields, "every"):
        return nothing
    try:
        found, times = await site_of(request).run_schedules(request, next_runs, _rule_of(fields), _PREVIEWED)
    except (InvalidMessageError, InvalidScheduleError) as error:
        return {**nothing, "problem": str(error)}
    return {**nothing, "previewed": found, "next_times": times}


def _check_version(name: str, version: str, before: ScheduleState | None) -> None:
    """Raise ConfigurationError where the form is of another state of the schedule than the present one."""
    if before is None and version:
        raise ConfigurationError(f"the schedule {name!r} was deleted meanwhile; open a new form to create it again")
    if before is not None and not version:
        raise ConfigurationError(f"there is a schedule {name!r} already; choose another name, or edit that one")
    if before is not None and version != str(before.version):
        raise ConfigurationError(
            f"{before.changed_by} has changed the schedule {name!r} meanwhile; open its form again"
        )


def _rule_of(fields: Fields) -> dict[str, Any]:
    """The members of a definition that decide the runs. Raises InvalidMessageError."""
    most = text_of(fields, "max_runs")
    return {
        **{name: text_of(fields, name) or None for name in _TEXTS},
        **{name: time_of(text_of(fields, name), name) for name in _TIMES},
        "max_runs": whole_number(most, "max_runs", 1, _MOST_RUNS) if most else None,
        "both_days": flag_of(fields, "both_days") or None,
    }


def _document_of(fields: Fields, before: ScheduleState | None, *, show_bodies: bool) -> dict[str, Any]:
    """The definition that the form means, for `Schedule.of_document`. Raises InvalidMessageError."""
    kept = None if before is None else before.schedule
    return {
        **_rule_of(fields),
        **{name: text_of(fields, name) or None for name in _OPTIONS},
        **{name: _mapping(fields, name, kept) for name in _MAPPINGS},
        **_body(id_of(fields, "body").replace("\r\n", "\n"), kept, show_bodies=show_bodies),
    }


def _mapping(fields: Fields, name: str, kept: Schedule | None) -> Mapping[str, Any] | None:
    """Headers or properties of the form; untouched ones stay as they are, as JSON has fewer types."""
    text = text_of(fields, name)
    if kept is not None and text == _mapping_text(getattr(kept, name)):
        found: Mapping[str, Any] = getattr(kept, name)
        return found
    try:
        given = parse_json(text) if text else {}
    except JsonError as error:
        raise InvalidMessageError(f"the field {name} {error}") from None
    if not isinstance(given, dict):
        raise InvalidMessageError(f'the field {name} must be a JSON object, such as {{"tenant": "north"}}')
    return given


def _body(text: str, kept: Schedule | None, *, show_bodies: bool) -> dict[str, str]:
    """The body of the form. A body that the form does not show stays, unless another one is typed."""
    if kept is not None:
        is_shown = _is_editable(kept, show_bodies=show_bodies)
        if text == (_body_text(kept).replace("\r\n", "\n") if is_shown else ""):
            return {"body_base64": b64encode(kept.body).decode()}
    return {"body": text}


def _is_editable(schedule: Schedule, *, show_bodies: bool) -> bool:
    """Whether the form shows the body."""
    return show_bodies and len(schedule.body) <= _EDITABLE and as_text(schedule.body) is not None


def _body_text(schedule: Schedule) -> str:
    return as_text(schedule.body) or ""


def _typed_of(schedule: Schedule, *, show_body: bool) -> dict[str, str]:
    """The fields of a schedule's form as texts."""
    known = schedule.as_document()
    return {
        **{name: str(known.get(name, "")) for name in ("cron", "at", "zone", "max_runs", *_OPTIONS)},
        **{name: _span_text(known.get(name)) for name in _SPANS},
        **{name: field_time(getattr(schedule, name)) for name in _TIMES},
        **{name: _mapping_text(getattr(schedule, name)) for name in _MAPPINGS},
        "both_days": "yes" if known.get("both_days") else "",
        "body": _body_text(schedule) if show_body else "",
    }


def _mapping_text(values: Mapping[str, Any]) -> str:
    return json.dumps(plain(values), ensure_ascii=False) if values else ""


def _span_text(seconds: float | None) -> str:
    """A duration as `parse_duration` reads it, to the millisecond."""
    if seconds is None:
        return ""
    text = duration_text(timedelta(seconds=seconds))
    return text if parse_duration(text, "it") == timedelta(seconds=seconds) else str(seconds)
