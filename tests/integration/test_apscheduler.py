"""APScheduler's jobs become messages, or say why they cannot; nothing in them is run."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy import Engine, create_engine, event, make_url, text

from delaystore import DelayedDelivery
from delaystore.errors import ConfigurationError, MigrationError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import RunCounts
from delaystore.migrations.runner import RunSettings, check, run, verify
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.settings import TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore
from tests.integration.killed_migration import BATCH_SIZE
from tests.integration.migrating import dump
from tests.integration.sql_stores import connected
from tests.integration.test_documents import ROOT, blocks, shell

TABLE = "apscheduler_jobs"
NOON = datetime(2036, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
HOUR = timedelta(hours=1)


def remind(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("nobody calls this")


class Trap:
    """Fails whoever unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("it was unpickled",)


@contextmanager
def scheduler(url: str, **options: Any) -> Iterator[BackgroundScheduler]:
    """That runs nothing, and keeps its jobs in the database."""
    engine = create_engine(url)
    one = BackgroundScheduler(jobstores={"default": SQLAlchemyJobStore(engine=engine, **options)}, timezone=UTC)
    one.start(paused=True)
    try:
        yield one
    finally:
        one.shutdown()
        engine.dispose()


def add(one: BackgroundScheduler, job_id: str, trigger: str = "date", **options: Any) -> Any:
    when = {"run_date": NOON} if trigger == "date" else {"hours": 1} if trigger == "interval" else {"hour": 1}
    return one.add_job(remind, trigger, id=job_id, **(when | options))


def of_jobs(url: str, **parameters: str) -> str:
    """The URL of a source."""
    found = make_url(url).update_query_dict({"destination": "jobs", **parameters})
    return f"apscheduler+{found.render_as_string(hide_password=False)}"


def rows_of(url: str) -> list[dict[str, Any]]:
    with connected(url) as connection:
        found = connection.execute(text(f"SELECT id, next_run_time, job_state FROM {TABLE} ORDER BY id"))
        return [{**row, "job_state": bytes(row["job_state"])} for row in found.mappings()]


def stored(url: str, endpoint: str = "app") -> Sequence[DelayedMessage]:
    with closing(SqlDelayedMessageStore(url)) as store:
        store.initialize(endpoint, TransactionMode.NONE)
        return store.list().messages


@pytest.fixture(params=["postgresql_url", "mariadb_url", "sqlite_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def test_jobs_become_messages_or_say_why_not(url: str, tmp_path: Path) -> None:
    args, kwargs = ["ada ü😀", 7, 1.5, None, True, ("a", ["b"])], {"days": {"x": 2**63}}
    with scheduler(url) as one:
        add(one, "plain", args=args, kwargs=kwargs)
        add(one, "later", run_date=NOON + HOUR)
        add(one, "paused").pause()
        add(one, "again and again", "interval")
        add(one, "at one", "cron")
        add(one, "with a time", args=[NOON])
        add(one, "with keys", kwargs={"days": {1: 2}})
        add(one, "with nan", args=[float("nan")])
        add(one, "with bytes", args=[b"bytes"])
        add(one, "with an object", args=[Trap()])
        left = one.get_job("paused")
    target_url = f"sqlite:///{tmp_path / 'target.db'}"
    with (
        closing(open_source(of_jobs(url))) as source,
        closing(open_target(target_url, "app")) as target,
    ):
        assert source.endpoints() == [TABLE]
        assert source.check("app") == []
        waiting = source.waiting("app", None)
        assert (waiting.count, waiting.destinations, waiting.staying) == (7, {"jobs": 7}, 3)
        assert source.late("app", NOON) == 1
        before = {row["id"]: row for row in rows_of(url)}
        report = run(source, target, "app", RunSettings(batch_size=3, allow_rejects=True))
        assert report.counts == RunCounts(prepared=2, moved=2)
        assert verify(source, target, "app").good
        assert report.remaining == 5
        reasons = {one.row_id: one.reason for one in report.left}
    assert {row["id"]: row for row in rows_of(url)} == {name: before[name] for name in [*reasons, "paused"]}
    plain, later = stored(target_url)
    assert (plain.message_id, plain.destination, plain.due_time) == ("plain", "jobs", NOON)
    assert plain.properties == {"content_type": "application/json"}
    call = {"func": f"{__name__}:remind", "args": [*args[:-1], ["a", ["b"]]], "kwargs": kwargs}
    assert json.loads(plain.body) == call
    assert (later.message_id, later.due_time) == ("later", NOON + HOUR)
    assert reasons == {
        "again and again": "it recurs, by IntervalTrigger; try `delaystore migrate schedules --dry-run`",
        "at one": "it recurs, by CronTrigger; try `delaystore migrate schedules --dry-run`",
        "with a time": "its arguments hold a value of the type datetime.datetime, which JSON cannot carry",
        "with keys": "its arguments hold a dict whose keys are no text",
        "with nan": "its arguments hold a value of the type float, which JSON cannot carry",
        "with bytes": "its arguments hold a value of the type bytes, which JSON cannot carry",
        "with an object": "its arguments hold a value of the type _pytest.outcomes._Fail, which JSON cannot carry",
    }
    assert left.id == "paused"


def test_recurring_jobs_are_no_reason_to_stop(sqlite_url: str, tmp_path: Path) -> None:
    with scheduler(sqlite_url) as one:
        add(one, "plain")
        add(one, "again and again", "interval")
        add(one, "at one", "cron")
    with (
        closing(open_source(of_jobs(sqlite_url))) as source,
        closing(open_target(f"sqlite:///{tmp_path / 'target.db'}", "app")) as target,
    ):
        checked = check(source, target, "app", None, every_message=True)
        assert not checked.blocking
        assert checked.immovable == 0
        report = run(source, target, "app", RunSettings())
        assert (report.counts.moved, len(report.left), report.remaining) == (1, 2, 0)
        assert run(source, target, "app", RunSettings()).run is None
    assert {row["id"] for row in rows_of(sqlite_url)} == {"again and again", "at one"}


def test_a_job_that_cannot_move_stops_the_run_and_stays(sqlite_url: str, tmp_path: Path) -> None:
    with scheduler(sqlite_url) as one:
        add(one, "with a time", args=[NOON])
    with (
        closing(open_source(of_jobs(sqlite_url))) as source,
        closing(open_target(f"sqlite:///{tmp_path / 'target.db'}", "app")) as target,
        pytest.raises(MigrationError, match="1 rejected, and at most 0 may be; the last, with a time"),
    ):
        run(source, target, "app", RunSettings())
    assert [row["id"] for row in rows_of(sqlite_url)] == ["with a time"]


def test_a_job_that_the_target_refuses_goes_back_to_the_scheduler(url: str, tmp_path: Path) -> None:
    target_url = f"sqlite:///{tmp_path / 'target.db'}"
    with DelayedDelivery("app", SqlDelayedMessageStore(target_url)) as delivery:
        delivery.send("elsewhere", b"another", at=NOON, message_id="taken")
    with scheduler(url) as one:
        add(one, "taken")
        add(one, "plain")
    before = rows_of(url)
    with (
        closing(open_source(of_jobs(url))) as source,
        closing(open_target(target_url, "app")) as target,
    ):
        report = run(source, target, "app", RunSettings(allow_rejects=True))
        assert report.counts == RunCounts(prepared=2, moved=1, returned=1)
        assert [one.row_id for one in report.left] == ["taken"]
        assert report.remaining == 1
        assert verify(source, target, "app").good
    assert rows_of(url) == [row for row in before if row["id"] == "taken"]


def test_a_kill_hides_no_job_that_the_target_refused(sqlite_url: str, tmp_path: Path) -> None:
    target_url = f"sqlite:///{tmp_path / 'target.db'}"
    with DelayedDelivery("sales", SqlDelayedMessageStore(target_url)) as delivery:
        delivery.send("elsewhere", b"another", at=NOON, message_id="taken")
    with scheduler(sqlite_url) as one:
        add(one, "taken")
    urls = of_jobs(sqlite_url), target_url
    command = [sys.executable, "-m", "tests.integration.killed_migration", *urls, "0", "1", "1"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert [row["id"] for row in rows_of(sqlite_url)] == ["taken"]


def test_jobs_go_back_as_they_were(url: str) -> None:
    with scheduler(url) as one:
        for number in range(3):
            add(one, f"job {number}", run_date=NOON + number * HOUR, args=[number])
    before = dump(url, TABLE)
    assert len(before) == 3
    with (
        closing(open_source(of_jobs(url))) as source,
        closing(open_target("noop:", "app")) as target,
    ):
        assert run(source, target, "app", RunSettings(batch_size=2)).counts.returned == 3
    assert dump(url, TABLE) == before
    with scheduler(url) as one:
        assert [job.args for job in one.get_jobs()] == [(0,), (1,), (2,)]


def test_a_killed_migration_goes_on_and_moves_each_job_once(postgresql_url: str, tmp_path: Path) -> None:
    count = 3 * BATCH_SIZE
    with scheduler(postgresql_url) as one:
        for number in range(count):
            add(one, f"job {number}", run_date=NOON + number * HOUR, args=[number])
    source_url = of_jobs(postgresql_url)
    target_url = f"sqlite:///{tmp_path / 'target.db'}"
    command = [sys.executable, "-m", "tests.integration.killed_migration", source_url, target_url, "0", "2"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    with closing(open_source(source_url)) as source, closing(open_target(target_url, "sales")) as target:
        report = run(source, target, "sales", RunSettings(batch_size=BATCH_SIZE, allow_rejects=True))
        assert report.counts == RunCounts(prepared=count, moved=count)
        assert report.resumed
        assert not verify(source, target, "sales").findings
    with closing(SqlDelayedMessageStore(target_url)) as store:
        store.initialize("sales", TransactionMode.NONE)
        assert store.count() == count
    assert dump(postgresql_url, TABLE) == []


@pytest.mark.parametrize("state", [b"no pickle", b"}.", b"]."])
def test_a_row_that_is_no_job_is_rejected(sqlite_url: str, state: bytes) -> None:
    with scheduler(sqlite_url) as one:
        add(one, "broken")
    with connected(sqlite_url) as connection:
        connection.execute(text(f"UPDATE {TABLE} SET job_state = :state"), {"state": state})
    with closing(open_source(of_jobs(sqlite_url))) as source:
        ((rejected,),) = source.would_move("app", None)
    assert rejected.reason.startswith("its job_state ")


@pytest.mark.long
def test_a_part_that_is_named_too_often_is_no_message(sqlite_url: str) -> None:
    large: list[Any] = []
    for _ in range(40):
        large = [large, large]
    with scheduler(sqlite_url) as one:
        add(one, "large", args=[large])
    with closing(open_source(of_jobs(sqlite_url))) as source:
        ((rejected,),) = source.would_move("app", None)
    assert rejected.reason == "its arguments are too large, or hold themselves"


def test_a_small_pickle_of_a_large_body_is_no_message(sqlite_url: str) -> None:
    with scheduler(sqlite_url) as one:
        add(one, "large", args=["\1" * 49_000] * 200)
    with closing(open_source(of_jobs(sqlite_url))) as source:
        ((rejected,),) = source.would_move("app", None)
    assert rejected.reason == "its arguments are too large, or hold themselves"


def test_large_bodies_of_small_pickles_are_read_and_moved_few_at_a_time(sqlite_url: str, tmp_path: Path) -> None:
    names = [f"job {number}" for number in range(5)]
    with scheduler(sqlite_url) as one:
        for name in names:
            add(one, name, args=["x" * 50_000] * 180)
    with (
        closing(open_source(of_jobs(sqlite_url))) as source,
        closing(open_target(f"sqlite:///{tmp_path / 'target.db'}", "app")) as target,
    ):
        pages = list(source.would_move("app", None))
        assert [row.row_id for page in pages for row in page] == names
        assert [len(page) for page in pages] == [2, 2, 1]
        report = run(source, target, "app", RunSettings(batch_size=1000))
        assert report.run is not None
        assert [batch.count for batch in source.batches(report.run)] == [2, 2, 1]
        assert verify(source, target, "app").good
    assert rows_of(sqlite_url) == []


@pytest.mark.long_runs("mariadb_url", "sqlite_url")
def test_a_large_batch_takes_statements_of_few_parameters(url: str) -> None:
    most = 0

    def count(_connection: Any, _cursor: Any, _statement: str, parameters: Any, _context: Any, many: bool) -> None:
        nonlocal most
        most = max(most, 0 if many else len(parameters))

    with scheduler(url) as one:
        add(one, "job 0")
    with connected(url) as connection:
        copy = text(f"INSERT INTO {TABLE} SELECT :id, next_run_time, job_state FROM {TABLE} WHERE id = 'job 0'")
        connection.execute(copy, [{"id": f"job {number}"} for number in range(1, 3000)])
    with (
        closing(open_source(of_jobs(url))) as source,
        closing(open_target("noop:", "app")) as target,
    ):
        event.listen(Engine, "before_cursor_execute", count)
        try:
            report = run(source, target, "app", RunSettings(batch_size=3000))
        finally:
            event.remove(Engine, "before_cursor_execute", count)
        assert report.run is not None
        assert [one.number for one in source.batches(report.run)] == [1]
    assert report.counts == RunCounts(prepared=3000, returned=3000)
    assert 0 < most <= 2000


def test_another_table_and_pickle_protocol(sqlite_url: str) -> None:
    with scheduler(sqlite_url, tablename="jobs of app", pickle_protocol=0) as one:
        add(one, "one", args=["a"])
    with closing(open_source(of_jobs(sqlite_url, table="jobs of app"))) as source:
        assert source.endpoints() == ["jobs of app"]
        ((row,),) = source.would_move("app", None)
    assert json.loads(row.message.body)["args"] == ["a"]


@pytest.mark.parametrize(("query", "said"), [("", "needs the destination"), ("?destination=a%0Ab", "control")])
def test_a_destination_must_be_given(query: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        open_source(f"apscheduler+sqlite:///app.db{query}")


@pytest.mark.long
def test_the_documents_commands_run(postgresql_url: str, tmp_path: Path) -> None:
    with scheduler(postgresql_url) as one:
        add(one, "one")
        add(one, "again and again", "interval")
    commands = "\n".join(blocks("docs/how-to/leaving-apscheduler.md", "bash"))
    commands = commands.replace(
        "delaystore migrate preview --endpoint mailer", "! delaystore migrate preview --endpoint mailer"
    )
    commands = commands.replace("--allow-rejected --yes\n", "--allow-rejected --yes || test $? = 3\n")
    done = shell(commands.replace("postgresql+psycopg://localhost/app", postgresql_url), tmp_path)
    assert done.returncode == 0, done
    assert "IntervalTrigger" in done.stdout + done.stderr
    assert [message.message_id for message in stored(postgresql_url, "mailer")] == ["one"]
    assert rows_of(postgresql_url) == []
    with DelayedDelivery("mailer", SqlDelayedMessageStore(postgresql_url)) as delivery:
        assert [each.name for each in delivery.schedules.list()] == ["apscheduler/again and again"]


def test_the_documents_consumer_calls_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    mail = ModuleType("app.mail")
    mail.remind = lambda address, days: calls.append((address, days))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "app", ModuleType("app"))
    monkeypatch.setitem(sys.modules, "app.mail", mail)
    consumer, _, _ = blocks("docs/how-to/leaving-apscheduler.md", "python")
    names: dict[str, Any] = {}
    exec(dedent(consumer), names)
    (body,) = blocks("docs/how-to/leaving-apscheduler.md", "json")
    names["on_message"](body.encode())
    assert calls == [("ada@example.org", 3)]


def test_the_documents_sender_sends_what_the_consumer_takes() -> None:
    _, sender, _ = blocks("docs/how-to/leaving-apscheduler.md", "python")
    (shown,) = blocks("docs/how-to/leaving-apscheduler.md", "json")
    delivery = DelayedDelivery("app", InMemoryDelayedMessageStore())
    when = datetime(2030, 1, 1, tzinfo=UTC)
    exec(dedent(sender), {"json": json, "delivery": delivery, "address": "ada@example.org", "when": when})
    sent = delivery.get("order-17")
    assert sent is not None
    assert sent.due_time == when
    assert json.loads(sent.body).keys() == json.loads(shown).keys()
