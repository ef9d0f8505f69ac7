"""APScheduler's recurring jobs become recurring schedules, one after the other.

A job moves in three steps: it loses its next run time, as a paused job has none; its schedule is put; its row is
deleted. If a process dies between two steps, its scheduler does not run the job, and the next run goes on: a job
that was paused by its program has no next run time in its job_state either.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from sqlalchemy import Row, Table, delete, select, update

from delaystore.errors import InvalidMessageError, InvalidScheduleError
from delaystore.migrations.abc import Rejected
from delaystore.migrations.records.pickles import Foreign
from delaystore.migrations.sources._sql.source import SqlSource
from delaystore.migrations.sources.legacy._apscheduler import DATE, PROPERTIES, body_of, read_job
from delaystore.schedules import Schedule, Schedules
from delaystore.text import zone

PREFIX: Final = "apscheduler/"
"""The beginning of the schedules' names, before the ids of the jobs."""
_PAGE: Final = 1000
_CRON: Final = "apscheduler.triggers.cron.CronTrigger"
_INTERVAL: Final = "apscheduler.triggers.interval.IntervalTrigger"
_DEFAULT_GRACE: Final = 1
"""APScheduler's default `misfire_grace_time` in seconds: no run is made up for."""
_LAST: Final = {"day_of_week": 7, "month": 12, "day": 31, "hour": 23, "minute": 59, "second": 59}
"""The last value of each field. Weekdays are 1 to 7 here, from Monday; APScheduler counts them from 0."""


@dataclass(frozen=True, slots=True)
class MovedSchedules:
    """The result of moving jobs. `moved`: the names of schedules; `rejected`: jobs that stay with their program."""

    moved: Sequence[str]
    rejected: Sequence[Rejected]


class ApschedulerSource(SqlSource):
    """APScheduler's table of jobs."""

    def move_schedules(self, endpoint: str, schedules: Schedules, *, dry_run: bool = False) -> MovedSchedules:
        """Make the recurring jobs schedules, and delete the jobs. Paused jobs, and date triggers, stay.

        Args:
            endpoint: The endpoint, whose table is locked meanwhile.
            schedules: Where they move to.
            dry_run: Change nothing.

        Returns:
            The names of schedules that were put, or with `dry_run` would be put; and rejected jobs.

        Raises:
            MigrationLockedError: Another process migrates the endpoint.
            StoreError: A database fails. Call it again: no job is lost.

        """
        moved: list[str] = []
        rejected: list[Rejected] = []
        with self.lock(endpoint, self._holder):
            table = self._tables(endpoint).source
            for row in self._jobs(table):
                try:
                    schedule = self._schedule_of(row)
                    if schedule is None:
                        continue
                    self._move(table, row, schedule, schedules, dry_run=dry_run)
                    moved.append(schedule.name)
                except (InvalidMessageError, InvalidScheduleError) as error:
                    rejected.append(Rejected(row.id, str(error)))
        return MovedSchedules(moved, rejected)

    def _jobs(self, table: Table) -> Iterator[Row[Any]]:
        columns, last = table.c, None
        search = select(columns.id, columns.next_run_time, columns.job_state).order_by(columns.id)
        while True:
            statement = search if last is None else search.where(columns.id > last)
            with self._database.reading() as connection:
                rows = connection.execute(self._database.dialect.limited(statement, _PAGE)).all()
            yield from rows
            if len(rows) < _PAGE:
                return
            last = rows[-1].id

    def _schedule_of(self, row: Row[Any]) -> Schedule | None:
        """None: the job runs once, or is paused."""
        job, trigger = read_job(row.job_state)
        if trigger.name == DATE or job.get("next_run_time") is None:
            return None
        try:
            return _schedule(f"{PREFIX}{row.id}", job, trigger, self._layout.destination(None))
        except (InvalidMessageError, InvalidScheduleError):
            raise
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise InvalidMessageError("its trigger cannot be read") from None

    def _move(self, table: Table, row: Row[Any], schedule: Schedule, target: Schedules, *, dry_run: bool) -> None:
        begun, there = row.next_run_time is None, target.get(schedule.name) is not None
        if there and not begun:
            raise InvalidScheduleError(f"another schedule {schedule.name!r} is at the target; delete that, or this job")
        if dry_run:
            return
        unchanged = (table.c.id == row.id) & (table.c.job_state == row.job_state)
        if not begun and not self._change(update(table).where(unchanged).values(next_run_time=None)):
            raise InvalidScheduleError(_CHANGED)
        if not there:
            try:
                target.put_schedule(schedule)
            except InvalidScheduleError:
                due = _instant(read_job(row.job_state)[0]["next_run_time"])
                self._change(update(table).where(unchanged).values(next_run_time=due))
                raise
        if not self._change(delete(table).where(unchanged)):  # a scheduler has run it at this very moment
            target.delete(schedule.name)
            raise InvalidScheduleError(_CHANGED)

    def _change(self, statement: Any) -> bool:
        with self._database.writing() as connection:
            return connection.execute(statement).rowcount == 1


_CHANGED: Final = "its program has run or changed it meanwhile; stop that, and move the job again"


def _schedule(name: str, job: Mapping[str, Any], trigger: Foreign, destination: str) -> Schedule:
    state = trigger.state
    if trigger.name not in (_CRON, _INTERVAL):
        found = trigger.name.rpartition(".")[2]
        raise InvalidScheduleError(f"it has the trigger {found}; only cron and interval triggers become schedules")
    grace, jitter = job.get("misfire_grace_time"), state.get("jitter") or 0
    none_missed = grace == _DEFAULT_GRACE
    is_cron = trigger.name == _CRON
    next_run = _instant(job["next_run_time"]) - timedelta(seconds=jitter if is_cron else 0)
    return Schedule.of(
        name,
        destination=destination,
        body=body_of(job),
        properties=PROPERTIES,
        starts=next_run + timedelta(microseconds=-next_run.microsecond % 1_000_000),  # not earlier than the job
        ends=None if state["end_date"] is None else _instant(state["end_date"]),
        jitter=jitter,
        catch_up="none" if none_missed else "last" if job.get("coalesce") else "all",
        max_late=None if none_missed else grace,
        **(_cron(state) if is_cron else {"every": timedelta(*state["interval"].arguments)}),
    )


def _cron(state: Mapping[str, Any]) -> dict[str, Any]:
    found = {each.state["name"]: each.state["expressions"] for each in state["fields"]}
    for name in ("year", "week"):
        if any(_kind(each) != "AllExpression" or each.state["step"] for each in found[name]):
            raise InvalidScheduleError(f"its cron trigger restricts the {name}, which no cron expression can")
    positions = [each for each in found["day"] if _kind(each) == "WeekdayPositionExpression"]
    field = {name: ",".join(_text(name, each) for each in found[name] if each not in positions) for name in _LAST}
    if positions:
        if field["day"] or field["day_of_week"] != "*":
            raise InvalidScheduleError(
                "its cron trigger combines days such as '2nd fri' with other days, which no cron expression can"
            )
        field |= {"day": "*", "day_of_week": ",".join(map(_position, positions))}
    fields = [field[name] for name in ("second", "minute", "hour", "day", "month", "day_of_week")]
    return {
        "cron": " ".join(fields[1:] if fields[0] == "0" else fields),
        "zone": _zone_name(state["timezone"]),
        "both_days": "*" not in (field["day"], field["day_of_week"]),
    }


def _kind(expression: Foreign) -> str:
    return expression.name.rpartition(".")[2]


def _text(name: str, expression: Foreign) -> str:
    """An expression of APScheduler's in a cron expression."""
    kind, state, shift = _kind(expression), expression.state, int(name == "day_of_week")
    step = f"/{state['step']}" if state["step"] else ""
    if kind == "LastDayOfMonthExpression":
        return "L"
    if kind == "AllExpression":
        return f"1-7{step}" if step and shift else f"*{step}"
    if kind not in ("RangeExpression", "MonthRangeExpression", "WeekdayRangeExpression"):
        raise InvalidScheduleError(f"its cron trigger has a {kind}, which no cron expression can")
    first, last = state["first"] + shift, _LAST[name] if state["last"] is None else state["last"] + shift
    return f"{first}{step}" if first == last else f"{first}-{last}{step}"


def _position(expression: Foreign) -> str:
    """Such as 5#2 for the second Friday of the month, and 5L for the last one."""
    weekday, number = expression.state["weekday"] + 1, expression.state["option_num"] + 1
    return f"{weekday}L" if number > 5 else f"{weekday}#{number}"


def _instant(value: Foreign) -> datetime:
    """A datetime of a pickle: its ten bytes, which old protocols hold as text, and its time zone."""
    data, where = value.arguments
    if isinstance(data, Foreign):
        data = data.arguments[0].encode("latin-1")
    month, microsecond = data[2] & 0x7F, int.from_bytes(data[7:10], "big")
    naive = datetime(data[0] * 256 + data[1], month, data[3], data[4], data[5], data[6], microsecond)  # noqa: DTZ001
    return naive.replace(tzinfo=_zone(where), fold=data[2] >> 7).astimezone(UTC)


def _zone(where: Foreign) -> Any:
    """A fixed offset of datetime or pytz, or a zone."""
    if where.name == "datetime.timezone":
        return timezone(timedelta(*where.arguments[0].arguments))
    if where.name == "pytz._p" and len(where.arguments) > 1:
        return timezone(timedelta(seconds=where.arguments[1]))
    return zone(_zone_name(where))


def _zone_name(where: Foreign) -> str:
    """The name of a time zone of zoneinfo or pytz."""
    if where.name == "pytz._UTC" or (where.name == "datetime.timezone" and not _zone(where).utcoffset(None)):
        return "UTC"
    name = where.arguments[0] if where.arguments else None
    if not isinstance(name, str):
        raise InvalidScheduleError(f"its time zone is a {where.name}, which has no name such as Europe/Berlin")
    return name
