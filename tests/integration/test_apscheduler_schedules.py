"""APScheduler's recurring jobs become schedules with the times of their triggers; no job is lost, or in both places."""

import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy import text

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.errors import InvalidScheduleError, StoreUnavailableError
from delaystore.migrations.sources import open_source
from delaystore.migrations.sources.legacy import ApschedulerSource, MovedSchedules
from delaystore.schedules import PutResult, Schedule, Schedules
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import connected
from tests.integration.test_apscheduler import NOON, TABLE, Trap, add, of_jobs, remind, rows_of, scheduler
from tests.integration.test_documents import blocks

YEAR = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["postgresql_url", "mariadb_url", "sqlite_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@contextmanager
def target(url: str) -> Iterator[DelayedDelivery]:
    with DelayedDelivery("app", SqlDelayedMessageStore(url)) as delivery:
        yield delivery


def move(url: str, schedules: Schedules, *, dry_run: bool = False, **parameters: str) -> MovedSchedules:
    with closing(open_source(of_jobs(url, **parameters))) as source:
        assert isinstance(source, ApschedulerSource)
        return source.move_schedules("app", schedules, dry_run=dry_run)


def reasons(moved: MovedSchedules) -> dict[str, str]:
    return {each.row_id: each.reason for each in moved.rejected}


def found(delivery: DelayedDelivery, job: str) -> Schedule:
    state = delivery.schedules.get(f"apscheduler/{job}")
    assert state is not None
    return state.schedule


CRONS: Mapping[str, Mapping[str, Any]] = {
    "hourly": {"minute": 7},
    "daily": {"hour": 9, "minute": 30},
    "steps": {"minute": "*/15", "hour": "8-17/3"},
    "from a minute on": {"minute": "20/10"},
    "seconds": {"second": "*/20"},
    "a second": {"hour": 3, "second": 30},
    "weekdays by number": {"day_of_week": "0-4", "hour": 4},
    "sunday by number": {"day_of_week": 6, "hour": 12},
    "weekdays by name": {"day_of_week": "sat,sun", "hour": 12},
    "a span of names": {"day_of_week": "fri-sun", "hour": 12},
    "steps of weekdays": {"day_of_week": "*/2", "hour": 1},
    "months": {"month": "jan,apr-jun", "day": 15},
    "quarters": {"month": "*/3"},
    "the last day": {"day": "last", "hour": 23},
    "the first and the last day": {"day": "1,last"},
    "the second friday": {"day": "2nd fri", "hour": 8},
    "the last sunday": {"day": "last sun", "hour": 8},
    "two weekdays": {"day": "1st mon,3rd mon"},
    "both days": {"day": "1-7", "day_of_week": "mon", "hour": 9},
    "a step and a weekday": {"day": "*/3", "day_of_week": "fri"},
    "friday the 13th": {"day": 13, "day_of_week": "fri", "hour": 13, "minute": 13},
    "leap day": {"month": 2, "day": 29},
}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_cron_trigger_is_due_when_apscheduler_says(sqlite_url: str, tmp_path: Path, zone: str) -> None:
    """From times all over a year, except for those near a change of the clocks."""
    triggers = {name: CronTrigger(**fields, timezone=zone) for name, fields in CRONS.items()}
    with scheduler(sqlite_url) as one:
        for name, trigger in triggers.items():
            one.add_job(remind, trigger, id=name, next_run_time=YEAR)
    with target(f"sqlite:///{tmp_path / 'target.db'}") as delivery:
        delivery.setup_infrastructure()
        assert reasons(move(sqlite_url, delivery.schedules)) == {}
        compared = 0
        for name, trigger in triggers.items():
            schedule, time = found(delivery, name), YEAR
            while time < YEAR + timedelta(days=365):
                theirs = trigger.get_next_fire_time(None, time.astimezone(ZoneInfo(zone)))
                if theirs.utcoffset() == time.astimezone(ZoneInfo(zone)).utcoffset():
                    assert schedule.after(time - timedelta(seconds=1)) == theirs, (name, time)
                    compared += 1
                time += timedelta(days=3, hours=7, minutes=17)
    assert compared > 100 * len(CRONS) - 800
    assert rows_of(sqlite_url) == []


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_interval_goes_on_from_the_next_run(sqlite_url: str, tmp_path: Path, protocol: int) -> None:
    trigger = IntervalTrigger(hours=7, start_date=NOON, end_date=NOON + timedelta(days=3), timezone="Europe/Berlin")
    with scheduler(sqlite_url, pickle_protocol=protocol) as one:
        one.add_job(remind, trigger, id="one")
        one.add_job(remind, CronTrigger(hour=5, timezone="Europe/Berlin"), id="two")
    with target(f"sqlite:///{tmp_path / 'target.db'}") as delivery:
        delivery.setup_infrastructure()
        assert reasons(move(sqlite_url, delivery.schedules)) == {}
        interval, cron = found(delivery, "one"), found(delivery, "two")
    theirs = trigger.get_next_fire_time(None, datetime.now(UTC))
    expected = []
    while theirs is not None:
        expected.append(theirs.replace(microsecond=0).astimezone(UTC) + timedelta(seconds=1))
        theirs = trigger.get_next_fire_time(theirs, theirs)
    assert list(interval.between(YEAR, NOON + timedelta(days=30))) == expected, "a second is the smallest unit"
    assert len(expected) > 5
    assert cron.rule.as_dict() == {"cron": "0 5 * * *", "zone": "Europe/Berlin"}


def test_the_options_of_a_job(url: str, tmp_path: Path) -> None:
    with scheduler(url) as one:
        add(one, "plain", "cron", args=["ada"], kwargs={"days": 3})
        add(one, "lasting", "cron", misfire_grace_time=600, coalesce=True)
        add(one, "each", "cron", misfire_grace_time=None, coalesce=False)
        add(one, "jitter", "cron", jitter=30)
    with target(f"sqlite:///{tmp_path / 'target.db'}") as delivery:
        delivery.setup_infrastructure()
        assert move(url, delivery.schedules).moved == [
            f"apscheduler/{job}" for job in ("each", "jitter", "lasting", "plain")
        ]
        plain, lasting, each = (found(delivery, job) for job in ("plain", "lasting", "each"))
        assert found(delivery, "jitter").jitter == timedelta(seconds=30)
    call = {"func": "tests.integration.test_apscheduler:remind", "args": ["ada"], "kwargs": {"days": 3}}
    assert json.loads(plain.body) == call
    assert (plain.destination, plain.properties) == ("jobs", {"content_type": "application/json"})
    assert (plain.catch_up, plain.max_late) == ("none", None)
    assert (lasting.catch_up, lasting.max_late) == ("last", timedelta(minutes=10))
    assert (each.catch_up, each.max_late) == ("all", None)
    assert rows_of(url) == []


REJECTED: Mapping[str, tuple[Any, str]] = {
    "year": (CronTrigger(year="2030-2040"), "its cron trigger restricts the year, which no cron expression can"),
    "week": (CronTrigger(week="*/2"), "its cron trigger restricts the week, which no cron expression can"),
    "mixed": (CronTrigger(day="1,2nd fri"), "its cron trigger combines days such as '2nd fri' with other days"),
    "both": (CronTrigger(day="last fri", day_of_week="fri"), "its cron trigger combines days such as"),
    "or": (OrTrigger([IntervalTrigger(hours=1)]), "it has the trigger OrTrigger; only cron and interval triggers"),
    "fraction": (IntervalTrigger(seconds=1.5), "is out of range; give whole seconds"),
    "x" * 191: (CronTrigger(hour=1), "use a shorter name"),
}


def test_other_jobs_stay_and_say_why(sqlite_url: str, tmp_path: Path) -> None:
    with scheduler(sqlite_url) as one:
        for name, (trigger, _) in REJECTED.items():
            one.add_job(remind, trigger, id=name)
        one.add_job(remind, "cron", hour=1, id="trap", args=[Trap()])
        one.add_job(remind, DateTrigger(NOON), id="once")
        one.add_job(remind, "cron", hour=1, id="paused").pause()
    before = rows_of(sqlite_url)
    with target(f"sqlite:///{tmp_path / 'target.db'}") as delivery:
        delivery.setup_infrastructure()
        moved = move(sqlite_url, delivery.schedules)
        assert delivery.schedules.list() == []
    assert moved.moved == []
    said = reasons(moved)
    assert said.pop("trap") == "its arguments hold a value of the type _pytest.outcomes._Fail, which JSON cannot carry"
    assert said.keys() == REJECTED.keys()
    assert [name for name, reason in said.items() if REJECTED[name][1] not in reason] == []
    assert rows_of(sqlite_url) == before


def test_nothing_moves_in_a_dry_run_or_over_another_schedule(url: str, tmp_path: Path) -> None:
    with scheduler(url) as one:
        add(one, "one", "cron")
        add(one, "taken", "interval")
    before = rows_of(url)
    with target(f"sqlite:///{tmp_path / 'target.db'}") as delivery:
        delivery.setup_infrastructure()
        delivery.schedules.put("apscheduler/taken", every=60, destination="elsewhere", body=b"")
        taken = {"taken": "another schedule 'apscheduler/taken' is at the target; delete that, or this job"}
        dry = move(url, delivery.schedules, dry_run=True)
        assert (dry.moved, reasons(dry)) == (["apscheduler/one"], taken)
        assert rows_of(url) == before
        moved = move(url, delivery.schedules)
        assert (moved.moved, reasons(moved)) == (["apscheduler/one"], taken)
        assert found(delivery, "taken").destination == "elsewhere"
    assert rows_of(url) == [row for row in before if row["id"] == "taken"]


@pytest.mark.parametrize("puts", [False, True])
def test_a_killed_move_goes_on(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, puts: bool) -> None:
    """It ends before it has put the schedule, or after that."""
    put = Schedules.put_schedule

    def die(schedules: Schedules, schedule: Schedule) -> PutResult:
        if puts:
            put(schedules, schedule)
        raise StoreUnavailableError("killed")

    with scheduler(url) as one:
        add(one, "one", "cron")
    with target(f"sqlite:///{tmp_path / 'target.db'}") as delivery:
        delivery.setup_infrastructure()
        with monkeypatch.context() as patch, pytest.raises(StoreUnavailableError):
            patch.setattr(Schedules, "put_schedule", die)
            move(url, delivery.schedules)
        assert [row["next_run_time"] for row in rows_of(url)] == [None], "its scheduler does not run it"
        assert (delivery.schedules.get("apscheduler/one") is not None) == puts
        if puts:
            delivery.schedules.put("apscheduler/one", every=60, destination="edited since", body=b"")
        assert move(url, delivery.schedules).moved == ["apscheduler/one"]
        state = delivery.schedules.get("apscheduler/one")
        assert state is not None
        assert state.schedule.destination == ("edited since" if puts else "jobs"), "it is not put again"
        assert rows_of(url) == []
        assert move(url, delivery.schedules) == MovedSchedules([], [])


def test_a_job_that_its_program_changes_meanwhile_stays_there(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Schedules.put_schedule

    def put_while_it_changes(schedules: Schedules, schedule: Schedule) -> PutResult:
        with scheduler(url) as one:
            one.modify_job("one", args=["changed"])
            one.get_job("one").reschedule("interval", hours=2)
        return put(schedules, schedule)

    with scheduler(url) as one:
        add(one, "one", "interval")
    with target(f"sqlite:///{tmp_path / 'target.db'}") as delivery:
        delivery.setup_infrastructure()
        with monkeypatch.context() as patch:
            patch.setattr(Schedules, "put_schedule", put_while_it_changes)
            moved = move(url, delivery.schedules)
        assert reasons(moved) == {
            "one": "its program has run or changed it meanwhile; stop that, and move the job again"
        }
        assert delivery.schedules.list() == []
        assert move(url, delivery.schedules).moved == ["apscheduler/one"]
        assert json.loads(found(delivery, "one").body)["args"] == ["changed"]


def test_a_job_that_the_target_refuses_goes_back_to_its_scheduler(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a transport that cannot carry its message."""

    def refuse(_schedules: Schedules, schedule: Schedule) -> PutResult:
        raise InvalidScheduleError(f"{schedule.name} is not taken")

    monkeypatch.setattr(Schedules, "put_schedule", refuse)
    with scheduler(url) as one:
        add(one, "one", "cron")
        due = one.get_job("one").next_run_time
    before = rows_of(url)
    with target(f"sqlite:///{tmp_path / 'target.db'}") as delivery:
        delivery.setup_infrastructure()
        moved = move(url, delivery.schedules)
    assert reasons(moved) == {"one": "apscheduler/one is not taken"}
    assert rows_of(url) == before
    with scheduler(url) as one:
        assert one.get_job("one").next_run_time == due


def test_the_command_moves_into_the_same_database(run: CommandLine, sqlite_url: str) -> None:
    with scheduler(sqlite_url) as one:
        add(one, "one", "cron")
        one.add_job(remind, CronTrigger(year=2040), id="year")
    ends = ["--from", of_jobs(sqlite_url), "--to", sqlite_url, "--endpoint", "app"]
    assert run("setup", "--store", sqlite_url, "--endpoint", "app").code == 0
    assert run("migrate", "schedules", *ends, "--dry-run").out.splitlines() == ["would move: apscheduler/one"]
    assert run("migrate", "schedules", *ends).code == 2, "no terminal confirms it"
    done = run("migrate", "schedules", *ends, "--yes")
    assert (done.code, done.out) == (3, "moved: apscheduler/one\n")
    assert "rejected: year: its cron trigger restricts the year" in done.err
    again = run("migrate", "schedules", *ends, "--yes", "--json")
    assert json.loads(again.out)["moved"] == []
    assert [each["job"] for each in json.loads(again.out)["rejected"]] == ["year"]
    refused = run("migrate", "schedules", "--from", sqlite_url, *ends[2:], "--yes")
    assert (refused.code, "APScheduler alone" in refused.err) == (2, True)
    with connected(sqlite_url) as connection:
        assert connection.execute(text(f"SELECT id FROM {TABLE}")).scalars().all() == ["year"]


def test_the_document_puts_the_schedule_of_the_moved_job(sqlite_url: str) -> None:
    with scheduler(sqlite_url) as one:
        one.add_job(remind, CronTrigger(hour=9, timezone="Europe/Berlin"), id="nightly")
    _, _, putting = blocks("docs/how-to/leaving-apscheduler.md", "python")
    with target(sqlite_url) as delivery:
        assert move(sqlite_url, delivery.schedules).moved == ["apscheduler/nightly"]
        (moved,) = delivery.schedules.list()
        exec(dedent(putting), {"delivery": delivery})
        (put,) = delivery.schedules.list()
    documents = [each.schedule.as_document() for each in (moved, put)]
    bodies = [json.loads(each.pop("body")) | {"func": "remind"} for each in documents]
    del documents[0]["starts"]  # the job's next run
    assert (documents[0], bodies[0]) == (documents[1], bodies[1])
