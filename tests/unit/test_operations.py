"""What operators do, on the store in memory."""

import asyncio
import csv
import io
import logging
import time
from base64 import b64decode
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from delaystore import AsyncDelayedDelivery, DelayedDelivery, ManagementOutcome, MessageFilter
from delaystore.errors import ConfigurationError, InvalidMessageError, StoreSetupError, StoreUnavailableError
from delaystore.filters import EVERYTHING
from delaystore.message import PARKED, DelayedMessage
from delaystore.operations import ErrorFilter, Operations
from delaystore.operations.exports import ExportFormat
from delaystore.stores.abc import Count, StoreStatus
from delaystore.stores.operable import STEP
from delaystore.stores.records import Activity, AuditEntry, DispatcherRecord, Operation, OperationKind, OperationState
from delaystore.testing import SettableClock
from delaystore.transports import InMemoryTransport
from tests.dispatching import NOON, CountingStore, FiveMethodStore, ScriptedTransport, message

BILLING = MessageFilter(destination="billing")
HOUR = timedelta(hours=1)


@pytest.fixture
def delivery(store: CountingStore) -> Iterator[DelayedDelivery]:
    with DelayedDelivery("sales", store) as delivery:
        yield delivery


@pytest.fixture
def operations(delivery: DelayedDelivery) -> Operations:
    return delivery.operations.acting_as("ada")


def fill(store: CountingStore, count: int, destination: str = "billing", **more: Any) -> None:
    store.store_many(
        message(f"{destination}-{number:05}", destination, NOON + timedelta(seconds=number), **more)
        for number in range(count)
    )


def noted(operations: Operations) -> list[tuple[str, str, int]]:
    return [(each.by, each.action, each.count) for each in reversed(operations.changes())]


def test_a_search_goes_on_behind_its_last_page(store: CountingStore, operations: Operations) -> None:
    fill(store, 5)
    fill(store, 5, "shipping")
    first = operations.search(BILLING, limit=3)
    assert [each.message_id for each in first.messages] == ["billing-00000", "billing-00001", "billing-00002"]
    second = operations.search(BILLING, limit=3, after=first.next_key)
    assert [each.message_id for each in second.messages] == ["billing-00003", "billing-00004"]
    assert second.next_key is None


def test_all_that_match_are_exported_once(store: CountingStore, operations: Operations) -> None:
    fill(store, 1_201)
    fill(store, 5, "shipping")
    exported = [each.message_id for each in operations.export(BILLING)]
    assert exported == [f"billing-{number:05}" for number in range(1_201)]


def test_what_a_dispatcher_tries_meanwhile_is_exported_once(
    store: CountingStore, operations: Operations, clock: SettableClock
) -> None:
    fill(store, 1_201)
    clock.set(NOON + timedelta(seconds=5))
    export = operations.export(EVERYTHING)
    first = next(export)
    (claimed,) = store.fetch_due(clock.now(), 1)
    assert claimed.message_id == first.message_id
    store.increment_failure_count(claimed, NOON + HOUR)
    rest = [each.message_id for each in export]
    assert sorted(rest) == [f"billing-{number:05}" for number in range(1, 1_201)]


def test_what_readers_of_csv_would_change_is_in_base64() -> None:
    for body, encoded in ((b"a\nb", False), (b"a\r\nb", True), (b"\0", True), (b"\xff", True), (b"", False)):
        sent = DelayedMessage(message_id="m", destination="billing", due_time=NOON, body=body)
        (row,) = csv.DictReader(io.StringIO((ExportFormat.CSV.head + ExportFormat.CSV.line(sent)).decode(), newline=""))
        assert bool(row["body_base64"]) is encoded
        assert (b64decode(row["body_base64"]) if encoded else row["body"].encode()) == body


def test_a_preview_counts_and_shows_the_first(store: CountingStore, operations: Operations) -> None:
    fill(store, 30)
    fill(store, 3, "shipping")
    counts: list[int] = []
    preview = operations.preview(BILLING, sample=2, progress=counts.append)
    assert (preview.count, preview.complete, preview.wanted) == (30, True, BILLING)
    assert [each.message_id for each in preview.sample] == ["billing-00000", "billing-00001"]
    assert counts[-1] == 30
    assert operations.preview(BILLING, sample=0).sample == []
    ended = operations.preview(BILLING, sample=2, at_most=2)
    assert (ended.count, ended.complete) == (2, False)
    assert store.count() == 33


def test_those_that_match_are_cancelled_and_it_is_noted(store: CountingStore, operations: Operations) -> None:
    fill(store, STEP + 10)
    fill(store, 3, "shipping")
    seen: list[Operation] = []
    done = operations.cancel(BILLING, seen.append)
    assert (done.state, done.changed, done.held, done.kind) == (
        OperationState.DONE,
        STEP + 10,
        0,
        OperationKind.CANCEL,
    )
    assert [each.changed for each in seen][-2:] == [STEP, STEP + 10]
    assert store.count() == 3
    assert noted(operations) == [("ada", "cancel", 0), ("ada", "cancel", STEP + 10)]
    assert operations.operation(done.operation_id) == done
    assert list(operations.operations()) == [done]
    assert done.operation_id in operations.changes()[0].about


def test_those_that_match_are_rescheduled_to_one_time(store: CountingStore, operations: Operations) -> None:
    fill(store, 3, failure_count=2)
    fill(store, 3, "shipping")
    done = operations.reschedule(BILLING, delay=HOUR)
    assert (done.changed, done.due_time) == (3, NOON + HOUR)
    assert {(each.due_time, each.failure_count) for each in operations.export(BILLING)} == {(NOON + HOUR, 0)}
    assert operations.search(MessageFilter(destination="shipping", since=NOON + HOUR)).messages == []


class KilledError(Exception):
    """Stands for whatever ends a run."""


def test_an_operation_that_was_ended_goes_on_where_it_was(store: CountingStore, operations: Operations) -> None:
    fill(store, 3 * STEP)
    begun = operations.begin_cancel(BILLING)
    assert (begun.changed, store.count()) == (0, 3 * STEP)

    def kill(operation: Operation) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        operations.run(begun.operation_id, kill)
    assert store.count() == 2 * STEP
    left = operations.operation(begun.operation_id)
    assert left is not None
    assert (left.state, left.changed) == (OperationState.RUNNING, STEP)
    done = operations.acting_as("grace").run(begun.operation_id)
    assert (done.state, done.changed, done.by) == (OperationState.DONE, 3 * STEP, "ada")
    assert store.count() == 0
    assert noted(operations) == [("ada", "cancel", 0), ("grace", "cancel", 3 * STEP)]
    assert operations.run(begun.operation_id) == done
    assert len(noted(operations)) == 2


def test_what_a_dispatcher_has_is_told_and_left(
    store: CountingStore, operations: Operations, clock: SettableClock
) -> None:
    fill(store, 3)
    clock.set(NOON + timedelta(seconds=1))
    held = store.share()
    held.initialize("sales", DelayedDelivery("sales", store)._settings.transaction_mode)
    with held.transaction() as claiming:
        claimed = [each.message_id for each in claiming.fetch_due(clock.now(), 10)]
        done = operations.cancel(BILLING)
    assert (done.changed, done.held, sorted(done.held_ids)) == (1, 2, sorted(claimed))
    assert store.count() == 2


def test_an_operation_can_be_abandoned(store: CountingStore, operations: Operations) -> None:
    fill(store, 3)
    begun = operations.begin_cancel(BILLING)
    ended = operations.abandon(begun.operation_id)
    assert ended is not None
    assert ended.state is OperationState.ABANDONED
    assert operations.run(begun.operation_id) == ended
    assert store.count() == 3
    assert operations.abandon(begun.operation_id) == ended
    assert noted(operations) == [("ada", "cancel", 0), ("ada", "abandon", 0)]
    assert operations.abandon("another") is None
    with pytest.raises(ConfigurationError, match="no operation 'another'"):
        operations.run("another")


def test_one_message_is_changed_and_noted(store: CountingStore, operations: Operations, clock: SettableClock) -> None:
    fill(store, 3)
    clock.set(NOON - HOUR)
    assert operations.cancel_one("billing-00000") is ManagementOutcome.DONE
    assert operations.reschedule_one("billing-00001", delay=2 * HOUR) is ManagementOutcome.DONE
    assert operations.send_now("billing-00002") is ManagementOutcome.DONE
    assert operations.cancel_one("billing-00000") is ManagementOutcome.NOT_FOUND
    assert {each.message_id: each.due_time for each in operations.export(EVERYTHING)} == {
        "billing-00001": NOON + HOUR,
        "billing-00002": NOON - HOUR,
    }
    assert noted(operations) == [("ada", "cancel", 1), ("ada", "reschedule", 1), ("ada", "send-now", 1)]


def test_a_destination_is_paused_and_resumed(store: CountingStore, operations: Operations) -> None:
    fill(store, 3)
    fill(store, 3, "shipping")
    counts: list[int] = []
    assert operations.pause("billing", progress=counts.append) == 1  # one is due
    assert counts == [1]
    (paused,) = operations.destinations()
    assert (paused.name, paused.paused, paused.by) == ("billing", True, "ada")
    parked = store.get("billing-00000")
    assert parked is not None
    assert (parked.next_attempt, parked.due_time) == (PARKED, NOON)
    assert operations.preview(MessageFilter(paused=True)).count == 1
    assert operations.resume("billing") == 1
    assert operations.resume("billing") == 0
    assert operations.destinations() == []
    assert noted(operations) == [("ada", "pause", 0), ("ada", "resume", 0)]


def test_a_pause_that_is_ended_while_it_parks_is_a_pause_and_noted(
    store: CountingStore, operations: Operations, clock: SettableClock
) -> None:
    fill(store, 2 * STEP)
    clock.set(NOON + HOUR)

    def kill(parked: int) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        operations.pause("billing", until=NOON + 3 * HOUR, progress=kill)
    assert operations.destinations()[0].paused_until == NOON + 3 * HOUR
    assert noted(operations) == [("ada", "pause", 0)]


def test_a_pause_until_a_time_that_is_over_is_refused(operations: Operations) -> None:
    with pytest.raises(InvalidMessageError, match="is in the past"):
        operations.pause("billing", until=NOON)
    with pytest.raises(InvalidMessageError, match="no time zone"):
        operations.pause("billing", until=datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused
    assert operations.destinations() == []


def test_a_destination_is_limited(operations: Operations) -> None:
    operations.limit_rate("billing", 200)
    assert operations.destinations()[0].max_rate == 200
    for nonsense in (0, -1, float("nan"), float("inf"), "fast"):
        with pytest.raises(ConfigurationError):
            operations.limit_rate("billing", nonsense)  # type: ignore[arg-type]
    operations.limit_rate("billing", None)
    assert operations.destinations() == []
    assert [each.about for each in operations.changes()] == ["billing: no limit any more", "billing to 200/s"]


@pytest.mark.parametrize("destination", ["", "a\nb", "x" * 256, "\0"])
def test_what_is_no_destination_is_refused(operations: Operations, destination: str) -> None:
    for refused in (operations.pause, operations.resume, lambda name: operations.limit_rate(name, 1.0)):
        with pytest.raises(InvalidMessageError):
            refused(destination)
    assert noted(operations) == []


def test_whoever_gives_no_name_acts_as_user_and_host(delivery: DelayedDelivery) -> None:
    assert "@" in delivery.operations.by
    with pytest.raises(InvalidMessageError, match="no name"):
        delivery.operations.acting_as(" ")


def test_a_note_that_is_not_taken_is_logged(
    store: CountingStore, operations: Operations, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(entries: Sequence[AuditEntry]) -> None:
        raise StoreUnavailableError("gone")

    monkeypatch.setattr(store, "note_changes", refuse)
    with caplog.at_level(logging.ERROR):
        operations.note("replay", "error queue", 2)
    assert "by ada (2 messages) is done, but missing in the audit trail: gone" in caplog.text


def test_an_overview_tells_all_that_is_known(
    store: CountingStore, operations: Operations, clock: SettableClock
) -> None:
    fill(store, 3, failure_count=1)
    fill(store, 2, "shipping")
    clock.set(NOON + HOUR)
    operations.pause("shipping")
    operations.limit_rate("mail", 3.5)
    running = operations.begin_cancel(MessageFilter(headers={"kind": "<b>"}))
    activity = Activity(minute=clock.now() - timedelta(minutes=1), delivered=300)
    activity.lateness.add([0.2] * 300)
    record = DispatcherRecord(
        dispatcher_id="1", name="sales", host="web1", pid=7, version="1", since=NOON, heartbeat=clock.now()
    )
    store.heartbeat(record, [activity])
    overview = operations.overview()
    assert (overview.endpoint, overview.waiting) == ("sales", Count(5, exact=True))
    assert (overview.failing, overview.parked) == (Count(3, exact=True), Count(2, exact=True))
    assert overview.overdue == HOUR
    assert overview.rate == 1.0
    assert [each.name for each in overview.paused or ()] == ["shipping"]
    assert [each.name for each in overview.limited or ()] == ["mail"]
    assert overview.operations == [running]
    assert overview.problem is None
    assert overview.wrong == [
        "The oldest message is overdue for 1h.",
        "3 messages failed so far and will be retried.",
    ]
    document = overview.as_dict()
    assert document["operations"][0]["wanted"] == {"headers": {"kind": "<b>"}}
    assert document["operations"][0]["kind"] == "cancel"
    assert document["dispatchers"][0]["host"] == "web1"
    assert 0.1 < document["lateness"]["p50"] < 0.3
    assert document["activity"][0]["rate"] == 5
    assert document["oldest_overdue"] == 3600
    assert (document["waiting"], document["exact"], document["failing"], document["parked"]) == (5, True, 3, 2)
    assert document["paused"] == ["shipping"]


def test_an_overview_names_what_is_wrong_with_dispatchers_and_the_error_queue(store: CountingStore) -> None:
    transport = ScriptedTransport()
    delivery = DelayedDelivery("sales", store, transport)
    fill(store, 1)
    assert delivery.operations.overview().wrong == [
        "Messages are waiting, but no dispatcher reports that it is running."
    ]
    record = DispatcherRecord(
        dispatcher_id="1",
        name="sales",
        host="web1",
        pid=7,
        version="1",
        since=NOON,
        heartbeat=NOON,
        breakers={"dispatch": "triggered", "fetch": "armed"},
        problem="the broker is gone",
        error_queue_depth=12,
    )
    store.heartbeat(record)
    assert delivery.operations.overview().wrong == [
        "The dispatcher sales (process 7 on web1) delivers no messages: the broker is gone.",
        "The dispatcher sales (process 7 on web1) has a triggered breaker: dispatch.",
        "The error queue 'error' holds 12 messages.",
    ]
    delivery.close()


def test_an_overview_waits_no_longer_than_it_is_told(
    store: CountingStore, operations: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 1)

    def hang(at_most: int) -> int:
        time.sleep(1)
        return 0

    monkeypatch.setattr(store, "count_failing", hang)
    overview = operations.overview(timeout=0.2)
    assert (overview.waiting, overview.failing) == (Count(1, exact=True), None)
    assert overview.problem == "the store does not answer within 0.2 s"
    assert "does not answer" in overview.wrong[0]


def test_an_overview_of_a_store_that_fails_says_so(store: CountingStore, operations: Operations) -> None:
    store.error = StoreUnavailableError("gone")
    overview = operations.overview()
    assert (overview.problem, overview.now, overview.overdue) == ("gone", None, None)
    assert overview.as_dict()["store"] == "gone"


def test_somebodys_own_store_has_no_operations_but_an_overview() -> None:
    with DelayedDelivery("sales", FiveMethodStore()) as delivery:
        delivery.send("billing", b"", delay=60)
        with pytest.raises(ConfigurationError, match="FiveMethodStore cannot be searched"):
            delivery.operations.cancel(BILLING)
        overview = delivery.operations.overview()
    assert overview.operable is None
    assert overview.first_due is not None
    assert (overview.waiting, overview.dispatchers, overview.problem) == (None, None, None)


class OldStore(CountingStore):
    """With tables of an earlier release."""

    @property
    def is_operable(self) -> bool:
        return False

    def dispatchers(self) -> Any:
        raise StoreSetupError("run `delaystore setup`")

    def status(self) -> StoreStatus:
        return super().status()


def test_tables_of_an_earlier_release_have_an_overview(clock: SettableClock) -> None:
    store = OldStore(clock)
    fill(store, 2)
    overview = DelayedDelivery("sales", store).operations.overview()
    assert (overview.operable, overview.waiting, overview.problem) == (False, Count(2, exact=True), None)
    assert overview.wrong == ["The tables are of an earlier release; `delaystore setup` upgrades them."]


def test_the_same_is_awaited(store: CountingStore) -> None:
    fill(store, 1_201)

    async def program() -> None:
        async with AsyncDelayedDelivery("sales", store) as delivery:
            operations = delivery.operations.acting_as("ada")
            assert len([each async for each in operations.export(BILLING)]) == 1_201
            assert (await operations.preview(BILLING)).count == 1_201
            assert (await operations.cancel(BILLING)).changed == 1_201
            assert [each.by for each in await operations.changes()] == ["ada", "ada"]
            assert (await operations.overview()).waiting == Count(0, exact=True)

    asyncio.run(program())


def test_changes_of_the_error_queue_are_noted(store: CountingStore) -> None:
    transport = InMemoryTransport()
    delivery = DelayedDelivery("sales", store, transport)
    transport.declare("billing")
    transport.declare("error")
    headers = {"NServiceBus.FailedQ": "billing"}
    transport.send([message("a", destination="error", headers=headers), message("b", destination="error")], None, 1)
    errors = delivery.operations.acting_as("anna").errors
    assert errors.replay(ErrorFilter(destination="billing")).done == 1
    assert errors.discard().done == 1
    assert errors.discard().done == 0
    assert [(each.by, each.action, each.about, each.count) for each in delivery.operations.changes()] == [
        ("anna", "discard", "error queue error: everything", 1),
        ("anna", "replay", "error queue error: destination billing", 1),
    ]


def test_the_error_queue_takes_no_operable_store_but_a_transport() -> None:
    transport = InMemoryTransport()
    transport.declare("error")
    transport.send([message("a", destination="error")], None, 1)
    assert DelayedDelivery("shop", FiveMethodStore(), transport).operations.errors.discard().done == 1
    with pytest.raises(ConfigurationError, match="needs a transport"):
        _ = DelayedDelivery("shop", FiveMethodStore()).operations.errors


def test_what_was_sent_again_is_reported_though_the_store_cannot_be_set_up(caplog: pytest.LogCaptureFixture) -> None:
    class LostStore(CountingStore):
        def setup_infrastructure(self) -> None:
            raise StoreUnavailableError("nobody answers")

    transport = InMemoryTransport()
    transport.declare("billing")
    transport.declare("error")
    transport.send([message("a", destination="error", headers={"NServiceBus.FailedQ": "billing"})], None, 1)
    assert DelayedDelivery("sales", LostStore(), transport).operations.errors.replay().done == 1
    assert "is done, but missing in the audit trail: nobody answers" in caplog.text


def test_the_error_queue_is_awaited_and_its_changes_are_noted(store: CountingStore) -> None:
    transport = InMemoryTransport()
    transport.declare("error")
    transport.send([message("a", destination="error"), message("b", destination="error")], None, 1)

    async def work() -> None:
        async with AsyncDelayedDelivery("sales", store, transport) as delivery:
            errors = delivery.operations.acting_as("anna").errors
            assert (errors.name, await errors.depth()) == ("error", 2)
            assert (await errors.groups()).groups[0].count == 2
            assert [one.message_id for one in (await errors.messages()).messages] == ["a", "b"]
            assert await errors.get("c") is None
            assert (await errors.replay()).left
            assert (await errors.discard(limit=1)).done == 1
            assert (await errors.discard(stopping=lambda: True)).interrupted
            noted = [(each.by, each.action, each.count) for each in await delivery.operations.changes()]
            assert noted == [("anna", "discard", 1)]

    asyncio.run(work())
