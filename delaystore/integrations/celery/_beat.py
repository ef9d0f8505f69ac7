"""The entries of Celery's `beat_schedule` as recurring schedules, with the messages that beat would publish."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from numbers import Real
from typing import Any, Final

from celery.beat import BeatLazyFunc, ScheduleEntry, Scheduler, SchedulingError
from celery.schedules import BaseSchedule, crontab, schedule
from kombu.exceptions import EncodeError

from delaystore.errors import ConfigurationError, InvalidMessageError, InvalidScheduleError
from delaystore.integrations.celery._wire import Envelope, envelope, time_to_live
from delaystore.schedules.definition import OWN_ID, Schedule

_NOT_OF_EACH: Final = ("countdown", "eta", "task_id", "reply_to", "producer", "publisher", "connection", "chord")
"""Options of one task: no entry may have them, as each of its tasks would get the same."""
_STAR: Final = re.compile(r"\*(?:/\d+)?", re.ASCII)
_ORIGIN: Final = "delaystore"
"""The header `origin` of tasks; Celery writes the process id there, with which a schedule would change at each put."""


@dataclass(frozen=True, slots=True)
class BeatEntry:
    """An entry's schedule. `declare`: the queues of its tasks, as Celery declares them."""

    schedule: Schedule
    declare: Collection[Any]


def beat_entries(app: Any, prefix: str) -> list[BeatEntry]:
    """The app's entries, and the entry that beat adds. Reads the app's modules, as beat does.

    Raises ConfigurationError for settings with which no entry can be read, and one InvalidScheduleError that names
    all entries that cannot be schedules.
    """
    app.loader.import_default_modules()
    app.finalize()
    if app.conf.task_protocol != 2:
        raise ConfigurationError(
            "schedules need task_protocol=2, because tasks of protocol 1 have their id in the body"
        )
    if app.conf.task_always_eager:
        raise ConfigurationError("task_always_eager runs tasks here, so they have no message; unset it for schedules")
    scheduler = Scheduler(app, schedule={}, lazy=True)
    scheduler.install_default_entries(app.conf.beat_schedule)
    found: list[BeatEntry] = []
    refused: list[str] = []
    for name, given in {**app.conf.beat_schedule, **scheduler.schedule}.items():
        try:
            found.append(_converted(scheduler, _read(scheduler, name, given), f"{prefix}{name}"))
        except (InvalidMessageError, InvalidScheduleError, SchedulingError, EncodeError) as error:
            refused.append(f"the beat entry {name!r} cannot be a schedule: {' '.join(str(error).split())}")
    if refused:
        raise InvalidScheduleError("; ".join(refused))
    return found


def _read(scheduler: Scheduler, name: str, given: Any) -> ScheduleEntry:
    """Make a value of `beat_schedule` an entry of Celery. Raises InvalidScheduleError."""
    if isinstance(given, Mapping):
        when = given.get("schedule")
        if not isinstance(when, BaseSchedule | timedelta | int | float):
            raise InvalidScheduleError(f"schedule must be a crontab, a timedelta, or seconds, not {when!r:.80}")
    elif not isinstance(given, ScheduleEntry):
        raise InvalidScheduleError(f"it must be a dict with the keys task and schedule, not {given!r:.80}")
    try:
        scheduler.update_from_dict({name: given})
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise InvalidScheduleError(f"Celery cannot read it: {error}") from None
    entry = scheduler.schedule[name]
    if not entry.task:
        raise InvalidScheduleError("it needs a task, the name of a task")
    if not isinstance(entry.task, str):
        raise InvalidScheduleError(f"it needs a task, the name of a task, not {entry.task!r:.80}")
    if not isinstance(entry.args or (), list | tuple):
        raise InvalidScheduleError(f"args must be a list or a tuple, not {entry.args!r:.80}")
    for key, value in (("kwargs", entry.kwargs), ("options", entry.options)):
        if not isinstance(value, Mapping):
            raise InvalidScheduleError(f"{key} must be a dict, not {value!r:.80}")
    return entry


def _converted(scheduler: Scheduler, entry: ScheduleEntry, name: str) -> BeatEntry:
    rule = _rule(entry.schedule)
    options = dict(entry.options)
    expires = options.pop("expires", getattr(scheduler.app.tasks.get(entry.task), "expires", None))
    if expires is not None and not isinstance(expires, Real):
        raise InvalidScheduleError(f"expires must be seconds, not {expires!r:.80}, because tasks expire one by one")
    for option in _NOT_OF_EACH:
        if options.get(option) is not None:
            raise InvalidScheduleError(f"the option {option} would be the same for all its tasks; leave it out")
    if any(isinstance(each, BeatLazyFunc) for each in (*(entry.args or ()), *entry.kwargs.values())):
        raise InvalidScheduleError("BeatLazyFunc is computed at each run by beat; compute the value in the task")
    entry.options = {**options, "expires": None, "task_id": OWN_ID}
    message, declare = _published(scheduler, entry)
    lives = None if expires is None else time_to_live(float(expires))
    late = [expires, scheduler.app.conf.beat_cron_starting_deadline if "cron" in rule else None]
    return BeatEntry(
        Schedule.of(
            name,
            destination=message.destination,
            body=message.body,
            headers={**message.headers, "root_id": OWN_ID, "parent_id": None, "origin": _ORIGIN},
            properties={
                **{key: value for key, value in message.properties.items() if key != "reply_to"},
                **({} if lives is None else {"expiration": lives}),
            },
            max_late=min((float(each) for each in late if each is not None), default=None),
            **rule,
        ),
        declare,
    )


class _Captured(BaseException):
    """Ends the publication of a task. No Exception: beat's scheduler would make another one of it."""

    def __init__(self, body: Any, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.body, self.options = body, options


class _Capturing:
    """Stands in for a `kombu.Producer`; nothing is published, and no signal says that it was."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **options: Any) -> Any:
        raise _Captured(body, options)


def _published(scheduler: Scheduler, entry: ScheduleEntry) -> tuple[Envelope, Collection[Any]]:
    """What beat would publish for an entry now, and the queues that Celery would declare for it."""
    with scheduler.app.producer_or_acquire(None) as producer:
        try:
            scheduler.apply_async(entry, producer=_Capturing(producer), advance=False)
        except _Captured as published:
            declare = published.options.get("declare") or ()
            return envelope(producer, published.body, None, 0, **published.options), declare
    raise InvalidScheduleError(f"its task {entry.task!r} publishes no message when it is applied")


def _rule(of: Any) -> dict[str, Any]:
    """The arguments of `Schedule.of` for the times of an entry; a subclass may compute any others."""
    if type(of) not in (crontab, schedule):
        kind = f"{type(of).__module__}.{type(of).__qualname__}"
        raise InvalidScheduleError(f"its schedule is a {kind}; only crontab and intervals can be rules, so take it out")
    if of.nowfun is not None:
        raise InvalidScheduleError("its schedule has a clock of its own (nowfun); leave it out")
    return _cron(of) if type(of) is crontab else _interval(of)


def _cron(of: crontab) -> dict[str, Any]:
    day = _field(of._orig_day_of_month, of.day_of_month, 31)
    weekday = _field(of._orig_day_of_week, of.day_of_week, 7)
    fields = (
        _field(of._orig_minute, of.minute, 60),
        _field(of._orig_hour, of.hour, 24),
        day,
        _field(of._orig_month_of_year, of.month_of_year, 12),
        weekday,
    )
    return {"cron": " ".join(fields), "zone": str(of.tz), "both_days": "*" not in (day[0], weekday[0])}


def _field(given: Any, values: Collection[int], count: int) -> str:
    """A field of a cron expression. A star stays: such minutes and hours go by elapsed time when clocks change."""
    if isinstance(given, str) and _STAR.fullmatch(given):
        return given
    if len(values) == count:
        return "*"
    runs = groupby(enumerate(sorted(values)), lambda each: each[1] - each[0])
    ends = [(found[0][1], found[-1][1]) for found in (list(run) for _, run in runs)]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def _interval(of: schedule) -> dict[str, Any]:
    """With `relative`, beat rounds times down: to days if the interval is a day or longer, or to hours, or minutes."""
    every: timedelta = of.run_every
    unit = next((each for each in _UNITS if every >= each), None) if of.relative else None
    if unit is None:
        return {"every": every}
    if every % unit:
        raise InvalidScheduleError(f"its relative interval {every} is no whole number of {unit}; use a crontab")
    round_time = {"every": every, "starts": datetime(2000, 1, 1, tzinfo=of.tz or UTC)}
    return {**round_time, "at": "00:00", "zone": str(of.tz)} if unit == _UNITS[0] else round_time


_UNITS: Final = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1))
