"""Operations on SQL stores: hostile filters, kills in the middle, dispatchers at work."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from delaystore import (
    AsyncDelayedDelivery,
    AsyncSqlDelayedMessageStore,
    DelayedDelivery,
    DelayedDeliverySettings,
    MessageFilter,
)
from delaystore.errors import StoreSetupError
from delaystore.filters import EVERYTHING
from delaystore.message import PARKED, Position
from delaystore.operations import Operations
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.operable import STEP
from delaystore.stores.records import OperationState
from delaystore.testing import RecordingTransport
from tests.dispatching import PATIENCE, wait_until
from tests.integration.sql_stores import message

pytestmark = pytest.mark.long_runs("mariadb")

HOUR = 3600
BILLING = MessageFilter(destination="billing")
ODD = ["bill'ing", 'bill"ing', "bill%", "bill_ng", "bill\\ing", "/queues/a%2Fb", "<b>ü☃", "BILLING", "billing "]


@pytest.fixture
def delivery(store: SqlDelayedMessageStore, database_url: str) -> Iterator[DelayedDelivery]:
    with DelayedDelivery("sales", SqlDelayedMessageStore(database_url)) as delivery:
        yield delivery


@pytest.fixture
def operations(delivery: DelayedDelivery) -> Operations:
    return delivery.operations.acting_as("ada")


def fill(store: SqlDelayedMessageStore, count: int, seconds: float = HOUR, **fields: Any) -> None:
    now, destination = store.now(), fields.pop("destination", "billing")
    store.store_many(
        message(now, seconds, f"{destination}-{number:06}", destination=destination, **fields)
        for number in range(count)
    )


@pytest.mark.long_runs("mariadb", "sqlite")
@pytest.mark.parametrize("odd", ["", "\0", "a\0b", "'", "\ud800", "x" * 10_000])
def test_an_id_that_no_operation_can_have_is_unknown(operations: Operations, odd: str) -> None:
    assert operations.operation(odd) is None
    assert operations.abandon(odd) is None


def test_a_search_goes_on_from_an_id_that_can_be(operations: Operations) -> None:
    with pytest.raises(ValueError, match="not a position"):
        Position.parse("2031-01-01T00:00:00+00:00~a\0b")
    assert not operations.search(EVERYTHING, after=Position.parse("2031-01-01T00:00:00+00:00~a%'b")).messages


@pytest.mark.long_runs
@pytest.mark.parametrize("destination", ODD)
def test_a_destination_of_odd_characters_is_that_one_and_no_other(
    store: SqlDelayedMessageStore, operations: Operations, destination: str
) -> None:
    for number, each in enumerate([*ODD, "billing"]):
        store.store(message(store.now(), HOUR, f"m{number}", destination=each))
    wanted = MessageFilter(destination=destination)
    assert [each.destination for each in operations.export(wanted)] == [destination]
    operations.pause(destination)
    assert [each.name for each in operations.destinations()] == [destination]
    operations.resume(destination)
    assert operations.cancel(wanted).changed == 1
    assert store.count() == len(ODD)


@pytest.mark.parametrize("prefix", ["%", "_", "a%", "'", '"', "\\", "ü", "A", " "])
def test_an_id_s_prefix_is_no_pattern(store: SqlDelayedMessageStore, operations: Operations, prefix: str) -> None:
    fits = [f"{prefix}1", f"{prefix}2"]
    for each in (*fits, "x1", "a1", "u1", f"x{prefix}"):
        store.store(message(store.now(), HOUR, each))
    found = operations.reschedule(MessageFilter(id_prefix=prefix), delay=2 * HOUR)
    assert found.changed == 2
    late = operations.export(MessageFilter(since=store.now() + timedelta(seconds=1.5 * HOUR)))
    assert sorted(each.message_id for each in late) == fits


@pytest.mark.long_runs
@pytest.mark.parametrize("value", ["a'; DROP TABLE x", '"quoted"', "%", "_", "\\", "ü☃", "{}", "1", "true", ""])
def test_a_header_is_compared_as_text(store: SqlDelayedMessageStore, operations: Operations, value: str) -> None:
    for number, each in enumerate([value, value + "x", "x" + value, 1, True, None, b"\xff"]):
        store.store(message(store.now(), HOUR, f"m{number}", headers={"k'\"%": each}))
    wanted = MessageFilter(headers={"k'\"%": value})
    expected = {"m0"} | {"1": {"m3"}, "true": {"m4"}}.get(value, set())
    assert {each.message_id for each in operations.export(wanted)} == expected
    assert operations.cancel(wanted).changed == len(expected)


def test_a_filter_of_everything_at_once(store: SqlDelayedMessageStore, operations: Operations) -> None:
    now = store.now()
    for number in range(4):
        headers = {"kind": "reminder", "n": number}
        store.store(message(now, number * HOUR, f"a{number}", headers=headers, failure_count=number % 2))
    wanted = MessageFilter(
        destination="billing",
        since=now,
        until=now + timedelta(seconds=4 * HOUR),
        id_prefix="a",
        headers={"kind": "reminder", "n": "3"},
        failing=True,
    )
    assert [each.message_id for each in operations.export(wanted)] == ["a3"]
    assert operations.preview(wanted).count == 1
    assert operations.cancel(wanted).changed == 1
    assert store.count() == 3


def killed_after(url: str, operation_id: str, steps: int) -> None:
    program = [sys.executable, "-m", "tests.integration.operating_process", url, operation_id, str(steps)]
    assert subprocess.run(program, check=False, stdout=subprocess.DEVNULL).returncode == -signal.SIGKILL


def killed_anywhere(url: str, operation_id: str, seconds: float) -> None:
    program = [sys.executable, "-m", "tests.integration.operating_process", url, operation_id, "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        time.sleep(seconds)
        process.kill()


@pytest.mark.long_runs("mariadb", "sqlite")
@pytest.mark.parametrize("many", [10_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_a_cancel_that_is_killed_and_resumed_cancels_exactly_those_that_match(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, many: int
) -> None:
    fill(store, many, headers={"kind": "old"})
    fill(store, 1_000, destination="shipping", headers={"kind": "old"})
    fill(store, 1_000, destination="abroad", headers={"kind": "new"})
    begun = operations.begin_cancel(MessageFilter(headers={"kind": "old"}))
    killed_after(database_url, begun.operation_id, 1)
    killed_anywhere(database_url, begun.operation_id, 0.05)
    left = operations.operation(begun.operation_id)
    assert left is not None
    assert left.changed == many + 2_000 - store.count()
    killed_after(database_url, begun.operation_id, 1)
    done = operations.run(begun.operation_id)
    assert (done.state, done.changed, done.examined, done.held) == (OperationState.DONE, many + 1_000, many + 2_000, 0)
    assert store.count() == store.count(destination="abroad") == 1_000


@pytest.mark.long_runs("mariadb", "sqlite")
@pytest.mark.parametrize("many", [10_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_a_reschedule_that_is_killed_and_resumed_changes_nothing_twice(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, many: int
) -> None:
    fill(store, many, failure_count=3)
    fill(store, 1_000, destination="shipping")
    begun = operations.begin_reschedule(BILLING, delay=5 * HOUR)
    killed_after(database_url, begun.operation_id, 2)
    killed_anywhere(database_url, begun.operation_id, 0.05)
    done = operations.run(begun.operation_id)
    assert (done.changed, done.examined) == (many, many + 1_000)
    assert done.due_time is not None
    assert (
        operations.preview(MessageFilter(since=done.due_time, until=done.due_time + timedelta(seconds=1))).count == many
    )
    assert operations.preview(MessageFilter(failing=True)).count == 0
    assert store.count() == many + 1_000


@pytest.mark.long_runs("mariadb", "sqlite")
def test_two_who_run_one_operation_take_steps_in_turn(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    fill(store, 4 * STEP)
    begun = operations.begin_cancel(BILLING)
    program = [sys.executable, "-m", "tests.integration.operating_process", database_url, begun.operation_id, "0"]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL) as other:
        done = operations.run(begun.operation_id)
        assert other.wait(PATIENCE) == 0
    assert (done.changed, store.count()) == (4 * STEP, 0)


def test_a_cancel_while_a_dispatcher_runs_leaves_no_message_in_doubt(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    """Each is delivered or cancelled, and not both; what the dispatcher had is told."""
    total = 3_000
    fill(store, total, seconds=0)
    transport = RecordingTransport()
    settings = DelayedDeliverySettings(batch_size=50)
    with DelayedDelivery("sales", SqlDelayedMessageStore(database_url), transport, settings) as dispatching:
        wait_until(lambda: dispatching.health().delivered > 0, "the first delivery")
        done = operations.cancel(BILLING)
        wait_until(lambda: store.count() == 0, "the store is empty")
        delivered = dispatching.health().delivered
    assert done.state is OperationState.DONE
    assert done.changed > 0
    assert delivered + done.changed == total
    assert len(done.held_ids) == min(done.held, 100)


def test_what_a_dispatcher_has_is_told_and_not_waited_for(
    store: SqlDelayedMessageStore, other: SqlDelayedMessageStore, operations: Operations
) -> None:
    fill(store, 5, seconds=0)
    with other.transaction() as claiming:
        claimed = {each.message_id for each in claiming.fetch_due(other.now(), 2)}
        done = operations.cancel(BILLING)
        assert (done.changed, done.held, set(done.held_ids)) == (3, 2, claimed)
    assert store.count() == 2


@pytest.mark.long_runs
def test_a_paused_destination_is_parked_and_comes_back(store: SqlDelayedMessageStore, operations: Operations) -> None:
    fill(store, 2 * STEP + 5, seconds=-1)
    fill(store, 5, seconds=-1, destination="shipping")
    counts: list[int] = []
    assert operations.pause("billing", progress=counts.append) == 2 * STEP + 5
    assert counts == [STEP, 2 * STEP, 2 * STEP + 5]
    assert {each.next_attempt for each in operations.export(BILLING)} == {PARKED}
    overview = operations.overview()
    assert overview.parked is not None
    assert overview.parked.messages == 2 * STEP + 5
    assert operations.resume("billing") == 2 * STEP + 5
    assert operations.preview(MessageFilter(paused=True)).count == 0
    assert operations.destinations() == []


def test_a_paused_destination_gets_nothing_until_it_is_resumed(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    operations.pause("billing")
    fill(store, 20, seconds=-1)
    fill(store, 20, seconds=-1, destination="shipping")
    transport = RecordingTransport()
    with DelayedDelivery("sales", SqlDelayedMessageStore(database_url), transport):
        wait_until(lambda: len(transport.sent) >= 20, "the others")
        time.sleep(0.5)
        assert {each.destination for each in transport.sent} == {"shipping"}
        operations.resume("billing")
        wait_until(lambda: len(transport.sent) == 40, "what was paused")


@pytest.mark.long_runs("mariadb", "sqlite")
def test_the_same_is_awaited(store: SqlDelayedMessageStore, database_url: str) -> None:
    fill(store, STEP + 10)
    asynchronous = database_url.replace("+psycopg", "+asyncpg").replace("+pymysql", "+aiomysql")
    asynchronous = asynchronous.replace("sqlite:", "sqlite+aiosqlite:")

    async def program() -> None:
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(asynchronous)) as delivery:
            operations = delivery.operations.acting_as("ada")
            assert len([each async for each in operations.export(BILLING)]) == STEP + 10
            assert (await operations.preview(BILLING)).count == STEP + 10
            assert (await operations.pause("billing")) == 0
            overview = await operations.overview()
            assert overview.problem is None
            assert [each.name for each in overview.paused or ()] == ["billing"]
            assert (await operations.cancel(BILLING)).changed == STEP + 10
            assert {each.by for each in await operations.changes()} == {"ada"}

    asyncio.run(program())


def test_an_overview_on_a_database(store: SqlDelayedMessageStore, delivery: DelayedDelivery) -> None:
    fill(store, 3, seconds=-HOUR)
    overview = delivery.operations.overview()
    assert overview.problem is None
    assert overview.waiting is not None
    assert overview.waiting.messages == 3
    assert overview.overdue is not None
    assert overview.overdue >= timedelta(seconds=HOUR)
    assert overview.wrong
    document = overview.as_dict()
    assert (document["waiting"], document["exact"]) == (3, True)


def test_tables_that_are_missing_are_named(database_url: str) -> None:
    settings = DelayedDeliverySettings(automatic_setup=False)
    with DelayedDelivery("nobody", SqlDelayedMessageStore(database_url), settings=settings) as delivery:
        with pytest.raises(StoreSetupError):
            delivery.operations.cancel(EVERYTHING)
        assert delivery.operations.overview().problem is not None
