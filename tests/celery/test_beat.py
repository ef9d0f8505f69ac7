"""Entries of `beat_schedule` are schedules with Celery's times, and with the messages that beat would publish."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from amqp import Message
from celery import Celery
from celery._state import _task_stack
from celery.beat import BeatLazyFunc, Scheduler
from celery.schedules import crontab, schedule, solar
from click.testing import CliRunner

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.errors import ConfigurationError, InvalidScheduleError
from delaystore.integrations.celery import DelayedTasks
from delaystore.integrations.celery.command import delaystore as command
from delaystore.schedules import Schedule
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.transports import open_transport
from tests.celery.apps import make_app
from tests.celery.workers import celery, ran, settings, worker
from tests.dispatching import wait_until
from tests.integration.cli import asked

NOWHERE = "amqp://127.0.0.1:1"
CLEANUP = "celery/celery.backend_cleanup"
"""The entry that beat adds."""


@pytest.fixture
def delivery() -> Iterator[DelayedDelivery]:
    with DelayedDelivery("tasks", InMemoryDelayedMessageStore()) as delivery:
        yield delivery


@pytest.fixture
def app(delivery: DelayedDelivery) -> Iterator[Celery]:
    """An app whose broker is down, which converting does not need."""
    with make_app(NOWHERE, None) as app:
        DelayedTasks(app, delivery)
        yield app


def nothing() -> None:
    """A task."""


def entry(rule: Any = 60.0, **more: Any) -> dict[str, Any]:
    return {"task": "note", "schedule": rule, **more}


def converted(app: Celery, **entries: Any) -> dict[str, Schedule]:
    app.conf.beat_schedule = entries
    found = DelayedTasks.of(app).beat_schedule()
    return {each.name.removeprefix("celery/"): each for each in found}


CRONTABS: Mapping[str, Mapping[str, Any]] = {
    "each minute": {},
    "hourly": {"minute": 7},
    "daily": {"minute": 30, "hour": 9},
    "steps": {"minute": "*/15", "hour": "*/3"},
    "lists": {"minute": "1,13,30-45,50-59/2", "hour": "8-17/2"},
    "names": {"minute": 0, "hour": 4, "day_of_week": "mon-fri"},
    "steps of weekdays": {"minute": 0, "hour": 0, "day_of_week": "*/2"},
    "sunday": {"minute": 0, "hour": 12, "day_of_week": "sunday"},
    "wrapped weekdays": {"minute": 0, "hour": 12, "day_of_week": "fri-mon"},
    "sets": {"minute": {5, 6, 7}, "hour": [22, 23], "day_of_month": (1, 15)},
    "odd days": {"minute": 0, "hour": 0, "day_of_month": "*/2"},
    "all days as a range": {"minute": 0, "hour": 6, "day_of_month": "1-31", "day_of_week": "tue"},
    "quarters": {"minute": 0, "hour": 0, "day_of_month": 1, "month_of_year": "*/3"},
    "leap day": {"minute": 59, "hour": 23, "day_of_month": 29, "month_of_year": 2},
    "both days": {"minute": 0, "hour": 9, "day_of_month": "1-7,15-21", "day_of_week": "mon"},
    "a step and a weekday": {"minute": 0, "hour": 9, "day_of_month": "*/3", "day_of_week": 5},
    "friday the 13th": {"minute": 13, "hour": 13, "day_of_month": 13, "day_of_week": "fri"},
}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("name", CRONTABS)
def test_a_crontab_is_due_when_celery_says(app: Celery, name: str, zone: str) -> None:
    """From times all over a year, except for those near a change of the clocks."""
    app.conf.timezone = zone
    made = converted(app, one=entry(crontab(**CRONTABS[name])))["one"]
    theirs = Scheduler(app, schedule={}, lazy=True)._maybe_entry("one", entry(crontab(**CRONTABS[name]))).schedule
    time, where, compared = datetime(2027, 1, 1, tzinfo=UTC), ZoneInfo(zone), 0
    while time < datetime(2028, 1, 1, tzinfo=UTC):
        last = time.astimezone(where)
        theirs.nowfun = lambda last=last: last
        expected = last + theirs.remaining_estimate(last)
        if last.utcoffset() == expected.utcoffset():
            assert made.after(time) == expected.astimezone(UTC), time
            compared += 1
        theirs.nowfun = None
        time += timedelta(hours=31, minutes=17)
    assert compared > 100


def test_rules_read_as_their_crontabs(app: Celery) -> None:
    app.conf.timezone = "Europe/Berlin"
    made = converted(app, **{name: entry(crontab(**each)) for name, each in CRONTABS.items()})
    rules = {name: made[name].rule.as_dict() for name in CRONTABS}
    assert rules["steps"] == {"cron": "*/15 */3 * * *", "zone": "Europe/Berlin"}
    assert rules["lists"]["cron"] == "1,13,30-45,50,52,54,56,58 8,10,12,14,16 * * *"
    assert rules["both days"] == {"cron": "0 9 1-7,15-21 * 1", "zone": "Europe/Berlin", "both_days": True}
    assert rules["all days as a range"]["cron"] == "0 6 * * 2"


def test_intervals_are_intervals(app: Celery) -> None:
    app.conf.timezone = "Europe/Berlin"
    made = converted(
        app,
        seconds=entry(30),
        timedelta=entry(timedelta(hours=36)),
        schedule=entry(schedule(90.0)),
        minutes=entry(timedelta(minutes=20), relative=True),
        hours=entry(schedule(timedelta(hours=6), relative=True)),
        days=entry(schedule(timedelta(days=2), relative=True)),
        short=entry(schedule(5, relative=True)),
    )
    every = {name: made[name].rule.as_dict()["every"] for name in made if "every" in made[name].rule.as_dict()}
    day = 86_400
    assert every == {
        "seconds": 30,
        "timedelta": 129_600,
        "schedule": 90,
        "minutes": 1200,
        "hours": 21_600,
        "days": 2 * day,
        "short": 5,
    }
    assert all(made[name].starts is None for name in ("seconds", "timedelta", "schedule", "short"))
    noon = datetime(2027, 7, 1, 12, 0, 1, tzinfo=UTC)
    assert made["minutes"].after(noon) == datetime(2027, 7, 1, 12, 20, tzinfo=UTC)
    assert made["hours"].after(noon).minute == 0  # type: ignore[union-attr]
    midnight = made["days"].after(noon)
    assert midnight is not None
    assert midnight.astimezone(ZoneInfo("Europe/Berlin")).hour == 0


def sunset() -> solar:
    """Without the library that computes it, which Celery's constructor wants."""
    made = solar.__new__(solar)
    made.nowfun = None
    return made


class Ours(crontab):
    """Computes times of its own."""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (entry(sunset()), "its schedule is a celery.schedules.solar; only crontab and intervals"),
        (entry(Ours()), r"its schedule is a tests.celery.test_beat.Ours; only"),
        (entry(crontab(nowfun=datetime.now)), r"a clock of its own \(nowfun\)"),
        (entry(0.5), "every 0:00:00.5.* is out of range; give whole seconds"),
        (entry(schedule(timedelta(minutes=90), relative=True)), "relative interval 1:30:00 is no whole number of"),
        (entry("0 9 * * *"), r"schedule must be a crontab, a timedelta, or seconds, not '0 9 \* \* \*'$"),
        ({"task": "note"}, "schedule must be a crontab, a timedelta, or seconds, not None$"),
        (entry(float("inf")), "Celery cannot read it: cannot convert float infinity"),
        (entry(when="soon"), "Celery cannot read it: .* unexpected keyword argument 'when'"),
        ("note", "it must be a dict with the keys task and schedule, not 'note'"),
        ({"schedule": 60.0}, "it needs a task, the name of a task$"),
        (entry(task=""), "it needs a task, the name of a task$"),
        (entry(task=nothing), "it needs a task, the name of a task, not <function nothing"),
        (entry(args=7), "args must be a list or a tuple, not 7"),
        (entry(kwargs=["of"]), r"kwargs must be a dict, not \['of'\]"),
        (entry(options=["queue"]), r"options must be a dict, not \['queue'\]"),
        (entry(options={"countdown": 5}), "the option countdown would be the same for all its tasks"),
        (entry(options={"eta": "2030-01-01"}), "the option eta would be"),
        (entry(options={"task_id": "x"}), "the option task_id would be"),
        (entry(options={"expires": datetime(2030, 1, 1, tzinfo=UTC)}), "expires must be seconds"),
        (entry(args=[BeatLazyFunc(datetime.now)]), "BeatLazyFunc is computed at each run"),
        (entry(args=[object()]), "not JSON serializable"),
        (entry(options={"headers": {"weight": 0.5}}), "a header of the task holds 0.5"),
    ],
)
def test_an_entry_that_cannot_be_a_schedule_is_named_and_nothing_changes(
    app: Celery, delivery: DelayedDelivery, given: Any, said: str
) -> None:
    app.conf.beat_schedule = {"good": entry(), "bad": given}
    with pytest.raises(InvalidScheduleError, match=said) as raised:
        DelayedTasks.of(app).put_beat_schedule()
    assert "bad" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert delivery.schedules.list() == []


def test_one_error_names_all_entries_that_cannot_be_schedules(app: Celery, delivery: DelayedDelivery) -> None:
    app.conf.beat_schedule = {
        "text": entry("0 9 * * *"),
        "good": entry(),
        "sunset": entry(sunset()),
        "no task": {"schedule": 60.0},
    }
    with pytest.raises(InvalidScheduleError) as raised:
        DelayedTasks.of(app).put_beat_schedule()
    assert str(raised.value) == (
        "the beat entry 'text' cannot be a schedule: schedule must be a crontab, a timedelta, or seconds, "
        "not '0 9 * * *'; the beat entry 'sunset' cannot be a schedule: its schedule is a celery.schedules.solar; "
        "only crontab and intervals can be rules, so take it out; the beat entry 'no task' cannot be a schedule: "
        "it needs a task, the name of a task"
    )
    assert delivery.schedules.list() == []


@pytest.mark.parametrize("setting", [{"task_protocol": 1}, {"task_always_eager": True}])
def test_settings_without_messages_are_refused(app: Celery, setting: Mapping[str, Any]) -> None:
    app.conf.update(setting)
    with pytest.raises(ConfigurationError, match=next(iter(setting))):
        DelayedTasks.of(app).beat_schedule()


def test_expires_is_the_latest_delivery_and_the_time_to_live(app: Celery) -> None:
    app.task(name="brief", shared=False, expires=30)(nothing)
    made = converted(
        app,
        options=entry(options={"expires": 90}),
        task={"task": "brief", "schedule": 60.0},
        cleared={"task": "brief", "schedule": 60.0, "options": {"expires": None}},
        never=entry(),
    )
    late = {name: made[name].max_late for name in made}
    minutes, seconds = timedelta(seconds=90), timedelta(seconds=30)
    assert late == {
        "options": minutes,
        "task": seconds,
        "cleared": None,
        "never": None,
        "celery.backend_cleanup": timedelta(hours=12),
    }
    assert made["options"].properties["expiration"] == "90000"
    assert made["options"].headers["expires"] is None
    assert "expiration" not in made["never"].properties
    app.conf.beat_cron_starting_deadline = 20
    made = converted(app, cron=entry(crontab(), options={"expires": 90}), interval=entry(options={"expires": 90}))
    assert (made["cron"].max_late, made["interval"].max_late) == (timedelta(seconds=20), minutes)


PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "called": {"args": ("ü", 7), "kwargs": {}},
    "queue and priority": {"options": {"queue": "other", "priority": 3}},
    "routing key": {"options": {"routing_key": "work", "exchange": "work"}},
    "headers": {"options": {"headers": {"tenant": "acme", "n": 5}, "time_limit": 5, "soft_time_limit": 3}},
    "serializer": {"args": (1,), "options": {"serializer": "yaml", "compression": "gzip"}},
    "links": {"options": {"link": {"task": "again", "args": (), "kwargs": {}, "options": {}}, "shadow": "other"}},
    "by name": {"task": "unknown.here"},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_occurrence_is_the_message_that_beat_publishes(
    rabbitmq_url: str, delivery: DelayedDelivery, name: str
) -> None:
    """Except for two marks of the process that publishes it: the header `origin`, and the address for replies."""
    with make_app(rabbitmq_url, None) as app:
        app.conf.accept_content = ["json", "yaml"]
        given = {**entry(), **PUBLISHED[name]}
        app.conf.beat_schedule = {"one": given}
        DelayedTasks(app, delivery)
        made = next(each for each in DelayedTasks.of(app).beat_schedule() if each.name == "celery/one")
        occurrence = made.message(datetime(2027, 1, 1, tzinfo=UTC), None)
        scheduler = Scheduler(app, schedule={}, lazy=True)
        theirs = scheduler._maybe_entry("one", given)
        theirs.options = {**theirs.options, "task_id": occurrence.message_id}
        scheduler.apply_async(theirs, advance=False)
        published = received(app, occurrence.destination)
    properties = dict(published.properties)
    headers = properties.pop("application_headers")
    added = {"delaystore.schedule": "celery/one", "delaystore.nominal-time": "2027-01-01T00:00:00+00:00"}
    assert headers.pop("origin")
    assert {**occurrence.headers} == {**headers, **added, "origin": "delaystore"}
    assert (published.body.encode() if isinstance(published.body, str) else bytes(published.body)) == occurrence.body
    assert properties.pop("reply_to")
    assert {**occurrence.properties} == properties
    assert occurrence.headers["id"] == occurrence.headers["root_id"] == "schedule/celery/one/2027-01-01T00:00:00Z"
    assert occurrence.properties["correlation_id"] == occurrence.message_id


def received(app: Celery, destination: str) -> Message:
    queue = "work" if destination.startswith("/exchanges/") else destination
    with app.connection_for_read() as connection, connection.channel() as channel:
        message = channel.basic_get(queue, no_ack=True)
    assert message is not None
    return message


def test_putting_creates_changes_and_deletes_and_can_be_repeated(app: Celery, delivery: DelayedDelivery) -> None:
    delivery.schedules.put("reports", every=60, destination="reports", body=b"")
    tasks = DelayedTasks.of(app)
    app.conf.beat_schedule = {"one": entry(60), "two": entry(60)}
    dry = tasks.put_beat_schedule(dry_run=True)
    assert sorted(dry.created) == [CLEANUP, "celery/one", "celery/two"]
    assert [each.name for each in delivery.schedules.list()] == ["reports"]
    assert tasks.put_beat_schedule() == dry
    app.conf.beat_schedule = {"one": entry(90)}
    changes = tasks.put_beat_schedule()
    assert (changes.created, changes.changed, changes.deleted) == ([], ["celery/one"], ["celery/two"])
    assert tasks.put_beat_schedule().unchanged == 2
    assert [each.name for each in delivery.schedules.list()] == [CLEANUP, "celery/one", "reports"]


def test_another_process_puts_the_same(app: Celery, delivery: DelayedDelivery) -> None:
    """Its process id, and the address for its replies, are other ones."""
    app.conf.beat_schedule = {"one": entry()}
    DelayedTasks.of(app).put_beat_schedule()
    with make_app(NOWHERE, None) as another:
        another.conf.beat_schedule = app.conf.beat_schedule
        DelayedTasks(another, delivery)
        assert another.thread_oid != app.thread_oid
        assert DelayedTasks.of(another).put_beat_schedule().unchanged == 2


def test_a_task_that_puts_the_schedules_is_not_their_parent(app: Celery) -> None:
    note = app.tasks["note"]
    _task_stack.push(note)
    note.push_request(id="parent", root_id="root", called_directly=False)
    try:
        headers = converted(app, one=entry())["one"].headers
    finally:
        note.pop_request()
        _task_stack.pop()
    assert (headers["root_id"], headers["parent_id"]) == ("{message_id}", None)


def test_periodic_tasks_of_signals_are_entries_too(app: Celery) -> None:
    note = app.tasks["note"]

    @app.on_after_configure.connect  # type: ignore[untyped-decorator]
    def add_early(sender: Celery, **_: Any) -> None:
        sender.add_periodic_task(10.0, note.s("early"), name="early")

    @app.on_after_finalize.connect  # type: ignore[untyped-decorator]
    def add_late(sender: Celery, **_: Any) -> None:
        sender.add_periodic_task(crontab(minute=0), note.s("late"), name="late", priority=4)

    app.on_after_configure.send(sender=app, source=app.conf)
    app.on_after_finalize.send(sender=app)
    app.add_periodic_task(10.0, note.s("unnamed"))
    found = {each.name: each for each in DelayedTasks.of(app).beat_schedule()}
    assert found.keys() == {"celery/early", "celery/late", "celery/note('unnamed')", CLEANUP}
    assert json.loads(found["celery/late"].body)[0] == ["late"]
    assert found["celery/late"].properties["priority"] == 4


def test_django_s_settings_are_read(delivery: DelayedDelivery) -> None:
    found = Celery("shop", broker=NOWHERE, set_as_current=False)
    beat = {"report": {"task": "report", "schedule": crontab(hour=9, minute=0)}}
    settings = SimpleNamespace(CELERY_BEAT_SCHEDULE=beat, CELERY_TIMEZONE="Europe/Berlin")
    found.config_from_object(settings, namespace="CELERY")
    DelayedTasks(found, delivery)
    made = next(each for each in DelayedTasks.of(found).beat_schedule() if each.name == "celery/report")
    assert made.rule.as_dict() == {"cron": "0 9 * * *", "zone": "Europe/Berlin"}
    found.close()


def test_the_command_puts_and_reports(app: Celery, delivery: DelayedDelivery) -> None:
    app.conf.beat_schedule = {"one": entry()}
    context = SimpleNamespace(app=app)

    def printed(*options: str) -> str:
        result = CliRunner().invoke(command, ["put-schedules", *options], obj=context)
        assert result.exit_code == 0, result.output
        return result.output

    dry = "would be created: celery/one\nwould be created: celery/celery.backend_cleanup\nunchanged: 0\n"
    assert printed("--dry-run") == dry
    assert delivery.schedules.list() == []
    assert printed() == dry.replace("would be ", "")
    assert json.loads(printed("--json")) == {"created": [], "changed": [], "deleted": [], "unchanged": 2}
    assert printed("--prefix", "other/").startswith("created: other/one\n")
    app.conf.beat_schedule = {"one": entry(sunset())}
    result = CliRunner().invoke(command, ["put-schedules"], obj=context)
    assert result.exit_code == 1
    assert result.output.startswith("Error: the beat entry 'one' cannot be a schedule: its schedule is a celery.")
    DelayedTasks.of(app).uninstall()
    result = CliRunner().invoke(command, ["put-schedules"], obj=context)
    assert "has no delayed tasks" in result.output


@pytest.mark.parametrize(("prefix", "better"), [("shop", "shop/"), ("my shop", "'my shop/'"), ("", "celery/")])
def test_the_command_refuses_a_prefix_without_a_slash(
    app: Celery, delivery: DelayedDelivery, prefix: str, better: str
) -> None:
    delivery.schedules.put("shopping-list", every=60, destination="lists", body=b"")
    app.conf.beat_schedule = {"report": entry()}
    result = CliRunner().invoke(command, ["put-schedules", "--prefix", prefix], obj=SimpleNamespace(app=app))
    assert result.exit_code == 1
    assert result.output == (
        f"Error: the prefix {prefix!r} does not end with /, so it could cover schedules of others; "
        f"write --prefix {better}\n"
    )
    assert [each.name for each in delivery.schedules.list()] == ["shopping-list"]


def test_at_a_terminal_the_command_asks_before_it_deletes(sqlite_url: str, tmp_path: Path) -> None:
    variables = {**settings(NOWHERE, sqlite_url, tmp_path), "CELERY_BEAT": "1"}
    arguments = ["-A", "tests.celery.apps", "delaystore", "put-schedules"]
    question = "Delete 2 schedules, with all waiting runs: celery/gone, celery/old? [y/N]"
    with DelayedDelivery("tasks", SqlDelayedMessageStore(sqlite_url)) as delivery:

        def answered(answer: bytes | None) -> tuple[int, str]:
            for name in ("celery/gone", "celery/old", "other"):
                delivery.schedules.put(name, every=60, destination="work", body=b"")
            return asked(arguments, variables, question, answer, module="celery")

        def names() -> list[str]:
            return [each.name for each in delivery.schedules.list()]

        for answer, expected in ((b"n\n", 1), (b"\x04", 1), (None, 130)):
            code, shown = answered(answer)
            assert (code, "nothing is changed" in shown) == (expected, True), shown
            assert names() == ["celery/gone", "celery/old", "other"]
        assert answered(b"y\n")[0] == 0
        assert names() == [CLEANUP, "celery/tick", "other"]
        for gone, options in (("celery/old", ["--yes"]), (None, [])):
            if gone:
                delivery.schedules.put(gone, every=60, destination="work", body=b"")
            code, shown = asked([*arguments, *options], variables, "", b"", module="celery")
            assert (code, "Delete" in shown) == (0, False), shown
            assert names() == [CLEANUP, "celery/tick", "other"]


def test_without_a_terminal_the_command_does_not_ask(app: Celery, delivery: DelayedDelivery) -> None:
    delivery.schedules.put("celery/old", every=60, destination="work", body=b"")
    app.conf.beat_schedule = {"one": entry()}
    result = CliRunner().invoke(command, ["put-schedules"], obj=SimpleNamespace(app=app))
    assert (result.exit_code, "Delete" in result.output) == (0, False)
    assert [each.name for each in delivery.schedules.list()] == [CLEANUP, "celery/one"]


def test_a_worker_runs_the_schedule_without_beat(postgresql_url: str, rabbitmq_url: str, tmp_path: Path) -> None:
    variables = {**settings(rabbitmq_url, postgresql_url, tmp_path), "CELERY_BEAT": "1"}
    store = SqlDelayedMessageStore(postgresql_url)
    with DelayedDelivery("tasks", store, open_transport(rabbitmq_url)) as delivery:
        for line in ("created: celery/tick", "unchanged: 2"):
            put = celery(variables, "delaystore", "put-schedules")
            assert put.returncode == 0, put.stderr
            assert line in put.stdout.splitlines()
        with worker(variables, tmp_path / "log", "--pool", "solo"):
            wait_until(lambda: len(ran(tmp_path)) >= 3)
        state = delivery.schedules.get("celery/tick")
        assert state is not None
        assert delivery.schedules.delete("celery/tick")
    runs = ran(tmp_path)
    assert all(run["id"].startswith("schedule/celery/tick/") and run["call"] == ["tick"] for run in runs)
    assert len({run["id"] for run in runs}) == len(runs)
