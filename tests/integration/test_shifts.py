"""Due times moved by a span: in Python, on the command line, killed in the middle, on tables of an earlier release."""

import asyncio
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore, DelayedDelivery, SqlDelayedMessageStore
from delaystore.errors import ConfigurationError, InvalidMessageError, StoreSetupError
from delaystore.filters import EVERYTHING, MessageFilter, Shift
from delaystore.message import LATEST_DUE_TIME, DelayedMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.operable import STEP
from delaystore.stores.records import OperationState
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import opened, set_snapshot_isolation

DONE = ManagementOutcome.DONE
DAY = timedelta(days=1)
NOON = datetime(2040, 3, 24, 12, tzinfo=UTC)
BERLIN = "Europe/Berlin"
NINE = datetime(2040, 3, 24, 9, tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)
"""The clocks of Berlin go forward in the night after."""


def fill(store: SqlDelayedMessageStore, count: int, first: datetime = NOON) -> None:
    store.store_many(
        DelayedMessage(
            message_id=f"m{number:05}",
            destination="billing",
            due_time=first + timedelta(seconds=number),
            body=b"x",
        )
        for number in range(count)
    )


def due_times(store: SqlDelayedMessageStore) -> dict[str, datetime]:
    return {message.message_id: message.due_time for message in store.list(limit=10_000).messages}


def test_one_message_is_moved_by_id_and_by_key(store: SqlDelayedMessageStore) -> None:
    delivery = DelayedDelivery("sales", store)
    delivery.send("billing", b"x", at=NINE, message_id="a", key="k")
    assert delivery.reschedule("a", by=timedelta(days=7)) is DONE
    assert delivery.reschedule(key="k", by=-7 * 86400) is DONE
    assert delivery.operations.reschedule_one("a", by=DAY, time_zone=BERLIN) is DONE
    assert due_times(store) == {"a": NINE + timedelta(hours=23)}
    assert delivery.reschedule("b", by=1) is ManagementOutcome.NOT_FOUND
    assert delivery.reschedule("a", by=-timedelta(days=50_000)) is DONE
    assert [each.message_id for each in delivery.list(until=store.now()).messages] == ["a"]  # due at once


@pytest.mark.parametrize(
    ("when", "says"),
    [
        ({}, r"exactly one of delay, at \(with a time zone\) and by"),
        ({"by": 1, "delay": 1}, "exactly one of"),
        ({"by": 1, "at": NOON}, "exactly one of"),
        ({"by": 0}, "by is 0"),
        ({"by": timedelta(0), "time_zone": BERLIN}, "by is 0"),
        ({"by": "7d"}, "by must be a timedelta or a number of seconds"),
        ({"by": True}, "by must be"),
        ({"by": float("nan")}, "by must be"),
        ({"by": float("inf")}, "out of range"),
        ({"by": timedelta.max}, "out of range"),
        ({"by": LATEST_DUE_TIME - NOON + DAY}, "out of range; give a shorter time"),
        ({"delay": 1, "time_zone": BERLIN}, "time_zone needs by"),
        ({"by": 1, "time_zone": "Mars"}, "'Mars' is unknown"),
    ],
)
def test_a_mistake_changes_nothing(prepared_sqlite_url: str, when: dict[str, object], says: str) -> None:
    with opened(prepared_sqlite_url) as store:
        delivery = DelayedDelivery("sales", store)
        delivery.send("billing", b"x", at=NOON, message_id="a")
        for change in (delivery.reschedule, delivery.operations.reschedule_one):
            with pytest.raises((InvalidMessageError, ConfigurationError), match=says):
                change("a", **when)  # type: ignore[operator]
        assert due_times(store) == {"a": NOON}
        assert not delivery.operations.changes()


def test_a_rollback_undoes_a_shift_and_a_commit_keeps_all(store: SqlDelayedMessageStore, database_url: str) -> None:
    delivery = DelayedDelivery("sales", store)
    fill(store, 1)
    engine: Engine = create_engine(database_url)
    with Session(engine) as session:
        assert delivery.enlist(session).reschedule("m00000", by=DAY) is DONE
        session.rollback()
    assert due_times(store) == {"m00000": NOON}
    with Session(engine) as session, session.begin():
        enlisted = delivery.enlist(session)
        assert enlisted.reschedule("m00000", by=DAY, time_zone=BERLIN) is DONE
        assert enlisted.reschedule("m00000", by=DAY) is DONE
    assert due_times(store) == {"m00000": NOON + 2 * DAY - timedelta(hours=1)}
    engine.dispose()


def test_a_transaction_with_an_older_snapshot_moves_the_present_due_time(mariadb_url: str) -> None:
    with opened(mariadb_url) as store:
        fill(store, 1)
        engine = create_engine(mariadb_url, isolation_level="REPEATABLE READ")
        set_snapshot_isolation(engine, "OFF")  # or the reschedule fails with a conflict, and is to be repeated
        with engine.begin() as connection:
            connection.execute(text("SELECT COUNT(*) FROM sales_delayed"))
            assert store.shift("m00000", Shift(DAY)) == (DONE, NOON + DAY)
            assert DelayedDelivery("sales", store).enlist(connection).reschedule("m00000", by=DAY) is DONE
        assert due_times(store) == {"m00000": NOON + 2 * DAY}
        engine.dispose()


def test_the_same_is_awaited(postgresql_url: str) -> None:
    async def program() -> None:
        store = AsyncSqlDelayedMessageStore(postgresql_url.replace("+psycopg", "+asyncpg"))
        async with AsyncDelayedDelivery("sales", store) as delivery:
            for name in "ab":
                await delivery.send("billing", b"x", at=NINE, message_id=name)
            assert await delivery.reschedule("a", by=DAY) is DONE
            done = await delivery.operations.reschedule(EVERYTHING, by=DAY, time_zone=BERLIN)
            assert done.changed == 2
            found = await delivery.get_many(["a", "b"])
            hours = timedelta(hours=23)
            assert [found[name].due_time for name in "ab"] == [NINE + 2 * DAY, NINE + hours]

    asyncio.run(program())


KILLED = """
import os, signal, sys
from datetime import timedelta
from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.filters import EVERYTHING

steps = 0
def step(operation):
    global steps
    steps += 1
    if steps == 2:
        os.kill(os.getpid(), signal.SIGKILL)

delivery = DelayedDelivery("sales", SqlDelayedMessageStore(sys.argv[1]))
delivery.operations.reschedule(EVERYTHING, by=timedelta(days=1), time_zone=sys.argv[2] or None, progress=step)
"""


@pytest.mark.parametrize("time_zone", ["", BERLIN])
def test_killed_in_the_middle_and_resumed_each_message_is_moved_once(
    store: SqlDelayedMessageStore, database_url: str, time_zone: str
) -> None:
    fill(store, 3 * STEP + 500)
    child = subprocess.run([sys.executable, "-c", KILLED, database_url, time_zone], check=False, timeout=100)
    assert child.returncode == -signal.SIGKILL
    operations = DelayedDelivery("sales", store).operations
    (left,) = operations.operations()
    assert (left.state, left.changed, left.shift) == (OperationState.RUNNING, 2 * STEP, Shift(DAY, time_zone or None))
    assert operations.run(left.operation_id).changed == 3 * STEP + 500
    by = DAY if not time_zone else timedelta(hours=23)
    assert {due_time - by - NOON for due_time in due_times(store).values()} == {
        timedelta(seconds=number) for number in range(3 * STEP + 500)
    }


def test_tables_of_the_release_before_take_all_but_a_shift(database_url: str) -> None:
    with opened(database_url) as store, store.engine.begin() as connection:
        name = store.table.name
        for column in ("shift", "time_zone"):
            connection.execute(text(f"ALTER TABLE {name}_operations DROP COLUMN {column}"))
        connection.execute(text(f"UPDATE {name}_version SET version_num = '0005'"))
    older = SqlDelayedMessageStore(database_url)
    as_it_is = DelayedDeliverySettings(automatic_setup=False)
    operations = DelayedDelivery("sales", older, settings=as_it_is).operations
    fill(older, 3)
    with pytest.raises(StoreSetupError, match="delaystore setup"):
        operations.reschedule(EVERYTHING, by=DAY)
    assert operations.reschedule(EVERYTHING, at=NOON + DAY).changed == 3
    assert operations.reschedule_one("m00000", by=DAY) is DONE
    (found,) = operations.operations()
    assert (found.shift, found.due_time) == (None, NOON + DAY)
    older.setup_infrastructure()
    assert operations.reschedule(EVERYTHING, by=DAY).changed == 3
    assert due_times(older) == {"m00000": NOON + 3 * DAY, "m00001": NOON + 2 * DAY, "m00002": NOON + 2 * DAY}
    older.close()


def test_a_preview_shows_due_times_before_and_after(store: SqlDelayedMessageStore) -> None:
    fill(store, 30)
    operations = DelayedDelivery("sales", store).operations
    for sample in (0, 5):
        found = operations.preview(MessageFilter(id_prefix="m"), by=DAY, sample=sample)
        assert (found.count, found.complete, len(found.sample)) == (30, True, sample)
        assert (found.found.first_due, found.found.last_due) == (NOON, NOON + timedelta(seconds=29))
        assert found.moved(found.found.last_due) == NOON + DAY + timedelta(seconds=29)
    cut = operations.preview(EVERYTHING, at=NOON, seconds=-1)
    assert (cut.complete, cut.moved(NOON + DAY)) == (False, NOON)


@pytest.fixture
def environment(prepared_sqlite_url: str) -> dict[str, str]:
    return {"DELAYSTORE_STORE": prepared_sqlite_url, "DELAYSTORE_ENDPOINT": "sales", "DELAYSTORE_ACTOR": "ada"}


def test_the_command_line_shows_and_makes_a_shift(run: CommandLine, prepared_sqlite_url: str) -> None:
    with opened(prepared_sqlite_url) as store:
        fill(store, 7, NINE)
    dry = run("reschedule", "--destination", "billing", "--by", "1d", "--time-zone", BERLIN, "--dry-run")
    assert dry.out.splitlines()[:7] == [
        "7 messages match: destination billing; nothing is changed",
        "due   first                 last",
        "now   2040-03-24 08:00:00Z  2040-03-24 08:00:06Z",
        "then  2040-03-25 07:00:00Z  2040-03-25 07:00:06Z",
        "id      destination  due                   new due time",
        "m00000  billing      2040-03-24 08:00:00Z  2040-03-25 07:00:00Z",
        "m00001  billing      2040-03-24 08:00:01Z  2040-03-25 07:00:01Z",
    ]
    document = run("reschedule", "--all", "--at", "2050-01-01T00:00Z", "--dry-run", "--json").document
    assert (document["first_due"], document["new_first_due"]) == (NINE.isoformat(), "2050-01-01T00:00:00+00:00")
    assert document["sample"][0]["new_due_time"] == document["new_last_due"] == "2050-01-01T00:00:00+00:00"
    done = run("reschedule", "--destination", "billing", "--by", "-2h")
    assert done.out == "rescheduled by -2 hours: 7 messages (destination billing)\n"
    assert run("reschedule", "m00000", "--by=1d").out == "rescheduled: m00000\n"
    one = run("reschedule", "--all", "--by", "1d", "--time-zone", BERLIN, "--json").document
    assert (one["shift"], one["due_time"]) == ({"by": 86400.0, "time_zone": BERLIN}, None)
    listed = run("operations", "list").out
    assert "reschedule by -2 hours: destination billing" in listed
    assert "reschedule by 1 day in Europe/Berlin: all messages" in listed
    first = run("operations", "list", "--json").document["operations"][-1]
    assert first["shift"] == {"by": -7200.0, "time_zone": None}
    changes = run("changes").out
    assert "message m00000 by 1 day from 2040-03-24 06:00:00Z to 2040-03-25 06:00:00Z" in changes
    assert f"destination billing by -2 hours (operation {first['operation_id']})" in changes
    assert "due_time" not in run("cancel", "--all", "--dry-run", "--json").document


def test_what_would_leave_the_range_is_named_and_stays(run: CommandLine, prepared_sqlite_url: str) -> None:
    with opened(prepared_sqlite_url) as store:
        fill(store, 2)
        store.store(DelayedMessage(message_id="far", destination="billing", due_time=LATEST_DUE_TIME, body=b""))
    dry = run("reschedule", "--all", "--by", "1d", "--dry-run").out
    assert "then  2040-03-25 12:00:00Z  out of range, stays" in dry
    done = run("reschedule", "--all", "--by", "1d")
    assert (done.code, done.out) == (1, "rescheduled by 1 day: 2 messages (all messages)\n")
    assert "being dispatched, or with a new due time out of range, and left alone: 1 message: far\n" in done.err
    assert "the new due time of message 'far'" in run.refused("reschedule", "far", "--by", "1d")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "when is it due? pass --delay DURATION, --at TIME or --by DURATION"),
        (["--by", "0"], "by is 0, which changes no due time"),
        (["--by", "-0s"], "by is 0, which changes no due time"),
        (["--by", "x"], "--by 'x' is no duration; write 7d, 2h30m, or -2h for an earlier time"),
        (["--by", "--2d"], "--by '--2d' is no duration"),
        (["--by", "1e9d"], "--by '1e9d' is no duration"),
        (["--by", "2M"], "has a capital M"),
        (["--by", "99999999999d"], "--by '99999999999d' is out of range"),
        (["--by", "9999999d"], "by 9,999,999 days is out of range; the latest due time is 9999-12-30"),
        (["--by", "1d", "--at", "2040-01-01T00:00Z"], "pass only one of --delay, --at and --by; --actor NAME names"),
        (["--by", "ada", "--delay", "1d"], "pass only one of --delay, --at and --by; --actor NAME names the actor"),
        (["--delay", "1d", "--time-zone", "UTC"], "--time-zone needs --by; leave it out"),
        (["--by", "1d", "--time-zone", "Mars"], "the time zone 'Mars' is unknown; write it as in Europe/Berlin"),
        (["--by", "1d", "--time-zone", ""], "the time zone '' is unknown"),
    ],
)
def test_mistakes_on_the_command_line_are_told_in_one_line(
    run: CommandLine, prepared_sqlite_url: str, arguments: list[str], says: str
) -> None:
    with opened(prepared_sqlite_url) as store:
        fill(store, 1)
        for which in (["m00000"], ["--all"], ["--all", "--dry-run"]):
            assert says in run.refused("reschedule", *which, *arguments)
        assert due_times(store) == {"m00000": NOON}
        assert not store.operations()
