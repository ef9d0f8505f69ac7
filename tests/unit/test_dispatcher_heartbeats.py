"""A dispatcher tells the store that it lives, and what it did."""

import os
import socket
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore.dispatcher import Dispatcher, _background
from delaystore.dispatcher._batch import MOST_MINUTES, PassBatch, RecentActivity, _add_lateness
from delaystore.errors import StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.stores.documents import BOUNDS, LatenessHistogram
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.stores.records import Activity, DispatcherRecord
from delaystore.transports.abc import Outcome
from tests.dispatching import (
    NOON,
    PATIENCE,
    REFUSED,
    UNROUTABLE,
    CountingStore,
    ScriptedTransport,
    message,
    running,
    settings,
    wait_until,
)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SOON = timedelta(seconds=0.05)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_background, "HEARTBEAT_EVERY", SOON)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def make(store: InMemoryDelayedMessageStore, transport: ScriptedTransport, **changes: Any) -> Dispatcher:
    return Dispatcher(store, transport, settings(poll_interval=0.05, **changes), endpoint="sales")


def due(message_id: str, destination: str = "billing") -> DelayedMessage:
    return message(message_id, destination, datetime.now(UTC) - timedelta(seconds=2))


def done(store: InMemoryDelayedMessageStore) -> Activity:
    """All of it."""
    return sum(store.activity(LONG_AGO), start=Activity(minute=LONG_AGO))


def test_a_dispatcher_shows_while_it_runs_and_is_gone_after_its_end(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    with running(make(store, transport)):
        wait_until(store.dispatchers)
        (record,) = store.dispatchers()
        assert (record.name, record.host, record.pid) == (
            "sales",
            socket.gethostname(),
            os.getpid(),
        )
        assert record.breakers == {"fetch": "disarmed", "dispatch": "disarmed", "recovery": "disarmed"}
        assert (record.error_queue, record.problem) == ("error", None)
        since = record.since
        wait_until(lambda: store.dispatchers()[0].heartbeat > record.heartbeat)
        assert store.dispatchers()[0].since == since
    assert store.dispatchers() == []


def test_each_run_has_an_id_of_its_own(store: CountingStore, transport: ScriptedTransport) -> None:
    seen = set()
    dispatcher = make(store, transport)
    for _ in range(2):
        with running(dispatcher):
            wait_until(store.dispatchers)
            seen.add(store.dispatchers()[0].dispatcher_id)
    assert len(seen) == 2


def test_what_was_done_is_told_also_what_was_done_last(store: CountingStore, transport: ScriptedTransport) -> None:
    transport.outcomes.update(full=REFUSED, nowhere=UNROUTABLE)
    with running(make(store, transport)) as dispatcher:
        store.store_many([due("a"), due("b"), due("c", "other"), due("d", "full"), due("e", "nowhere")])
        wait_until(lambda: dispatcher.health().fetched == 5)
    activity = done(store)
    assert (activity.delivered, activity.failed, activity.moved_to_error_queue) == (3, 1, 1)
    assert activity.by_destination == {"billing": 2, "other": 1}
    assert activity.lateness.total == 3
    p50 = activity.lateness.percentile(50)
    assert p50 is not None
    assert 1.5 < p50 < 5
    assert all(each.minute.second == 0 for each in store.activity(LONG_AGO))


def test_it_beats_while_a_pass_hangs_and_says_why_nothing_can_be_sent(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    answer = threading.Event()
    original = transport.send

    def send(messages: Sequence[DelayedMessage], transaction: Any, timeout: float) -> Sequence[Outcome]:
        assert answer.wait(PATIENCE)
        return original(messages, transaction, timeout)

    transport.send = send  # type: ignore[method-assign]
    store.store(due("a"))
    with running(make(store, transport)):
        wait_until(store.dispatchers)
        first = store.dispatchers()[0].heartbeat
        wait_until(lambda: store.dispatchers()[0].heartbeat > first + 3 * SOON)
        transport.unavailable_reason = "the disk is full"
        wait_until(lambda: store.dispatchers()[0].problem == "the disk is full")
        transport.unavailable_reason = None
        answer.set()
        wait_until(lambda: store.count() == 0)


def test_beats_that_fail_are_told_once_and_what_was_done_is_kept(
    transport: ScriptedTransport, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SilentStore(CountingStore):
        silent = True
        heartbeats = 0

        def heartbeat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
            self.heartbeats += 1
            if self.silent:
                raise StoreUnavailableError("locked")
            super().heartbeat(record, done)

    monkeypatch.setattr("delaystore.breakers.ARMED_DELAY", 0.01)
    store = SilentStore()
    with running(make(store, transport)) as dispatcher:
        store.store_many([due("a"), due("b")])
        wait_until(lambda: dispatcher.health().delivered == 2 and store.heartbeats > 4)
        store.silent = False
        wait_until(store.dispatchers)
        assert dispatcher.health().breakers["fetch"] == "disarmed"
    assert done(store).delivered == 2
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "sending the dispatcher's heartbeat fails: locked; will retry",
        "sending the dispatcher's heartbeat works again",
    ]


def test_without_a_loop_it_is_told_once_what_was_done(store: CountingStore, transport: ScriptedTransport) -> None:
    dispatcher = make(store, transport)
    dispatcher.dispatch_due()
    assert store.activity(LONG_AGO) == []
    store.store_many([due("a"), due("b")])
    dispatcher.dispatch_due()
    store.store(due("c"))
    dispatcher.dispatch_due()
    assert done(store).delivered == 3
    assert store.dispatchers() == []


def test_without_a_loop_what_cannot_be_told_is_told_the_next_time(transport: ScriptedTransport) -> None:
    class SilentStore(CountingStore):
        silent = True

        def heartbeat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
            if self.silent:
                raise StoreUnavailableError("locked")
            super().heartbeat(record, done)

    store = SilentStore()
    store.store(due("a"))
    dispatcher = make(store, transport)
    assert dispatcher.dispatch_due().delivered == 1
    store.silent = False
    store.store(due("b"))
    assert dispatcher.dispatch_due().delivered == 1
    assert done(store).delivered == 2


def test_a_single_beat_that_fails_is_no_news(
    transport: ScriptedTransport, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BusyStore(CountingStore):
        heartbeats = 0

        def heartbeat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
            self.heartbeats += 1
            if self.heartbeats == 2:
                raise StoreUnavailableError("the database is locked")
            super().heartbeat(record, done)

    monkeypatch.setattr("delaystore.breakers.ARMED_DELAY", 0.01)
    store = BusyStore()
    with running(make(store, transport)):
        wait_until(lambda: store.heartbeats > 3)
    assert not caplog.records


def test_the_end_waits_for_no_store_that_hangs(
    transport: ScriptedTransport, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class HangingStore(CountingStore):
        def heartbeat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
            asked.set()
            assert answer.wait(PATIENCE)

    monkeypatch.setattr("delaystore.dispatcher._loop.LONGEST_END", 0.1)
    asked, answer = threading.Event(), threading.Event()
    dispatcher = make(HangingStore(), transport)
    dispatcher.start()
    assert asked.wait(PATIENCE)
    assert dispatcher.stop(PATIENCE)
    assert "final heartbeat" in caplog.text
    answer.set()


def test_an_error_queue_that_does_not_answer_holds_up_no_heartbeat(store: CountingStore) -> None:
    class SilentTransport(ScriptedTransport):
        def depth(self, queue: str) -> int | None:
            asked.append(queue)
            assert answer.wait(PATIENCE)
            return 7

    asked: list[str] = []
    answer = threading.Event()
    with running(make(store, SilentTransport())) as dispatcher:
        wait_until(lambda: asked and store.dispatchers())
        first = store.dispatchers()[0].heartbeat
        wait_until(lambda: store.dispatchers()[0].heartbeat > first + 3 * SOON)
        assert (store.dispatchers()[0].error_queue_depth, store.dispatchers()[0].error_queue_seen) == (None, None)
        answer.set()
        answered = store.now()
        wait_until(lambda: dispatcher.health().error_queue_depth == 7)
        wait_until(lambda: store.dispatchers()[0].heartbeat > answered + 3 * SOON)
        (record,) = store.dispatchers()
        assert record.error_queue_seen is not None
        assert abs(record.error_queue_seen - answered) < 2 * SOON < record.heartbeat - record.error_queue_seen
    assert asked == ["error"]


def test_the_transport_is_asked_for_nothing_once_the_dispatcher_has_stopped(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who stops it closes the transport next, and would leave the connection of a late question open."""
    monkeypatch.setattr("delaystore.dispatcher.error_queue.REQUEST_EVERY", 0.0)
    asked: list[str] = []
    answered: list[str] = []

    class SlowTransport(ScriptedTransport):
        def depth(self, queue: str) -> int | None:
            asked.append(queue)
            time.sleep(0.1)
            answered.append(queue)
            return 7

    with running(make(store, SlowTransport())):
        wait_until(lambda: len(asked) > 2)
    assert len(answered) == len(asked)
    time.sleep(0.2)
    assert len(answered) == len(asked)


def test_health_tells_the_depth_of_its_own_error_queue(store: CountingStore, transport: ScriptedTransport) -> None:
    for queue, depth in (("error", 2), ("other-errors", 9)):
        store.heartbeat(
            DispatcherRecord(
                dispatcher_id=queue,
                name=queue,
                host="here",
                pid=1,
                version="1",
                since=NOON,
                heartbeat=NOON,
                error_queue=queue,
                error_queue_depth=depth,
            )
        )
    assert make(store, transport).health().error_queue_depth == 2


def test_what_cannot_be_told_is_kept_for_an_hour() -> None:
    recent = RecentActivity()
    told = [Activity(minute=NOON + timedelta(minutes=n), delivered=1) for n in range(100)]
    recent.give_back(told)
    kept = recent.take()
    assert [each.minute for each in kept] == [each.minute for each in told][-MOST_MINUTES:]
    assert not recent.take()


def test_activity_counts_the_busiest_destinations_of_many() -> None:
    recent = RecentActivity()
    for number in range(50):
        delivered = [message(f"{number}-{n}", f"queue-{number}-{n}") for n in range(100)]
        delivered += [message(f"{number}-busy-{n}", "busy") for n in range(10)]
        batch = PassBatch(NOON, messages=delivered, delivered=delivered, sent_at=NOON)
        recent.note(batch, batch.report(), NOON)
    (activity,) = recent.take()
    assert activity.by_destination["busy"] == 500
    assert len(activity.by_destination) == 50
    assert activity.delivered == activity.lateness.total == 50 * 110


@pytest.mark.parametrize("few", [10_000, 0])
def test_many_are_put_into_the_buckets_of_the_histogram_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("delaystore.dispatcher._batch._FEW", few)
    late = [-5.0, -0.000001, 0.0, 0.0005, 0.0011, 0.7, 0.7, 3.0, 59.9, 86_399.0, 200_000.0] * 20
    histogram, expected = LatenessHistogram(), LatenessHistogram()
    _add_lateness(histogram, [NOON - timedelta(seconds=each) for each in late], NOON)
    expected.add(each for each in late if each >= 0)
    assert histogram.counts == expected.counts
    assert len(histogram.counts) == len(BOUNDS) + 1


def test_the_rate_is_that_of_the_last_minute(store: CountingStore, transport: ScriptedTransport) -> None:
    with running(make(store, transport)) as dispatcher:
        store.store_many(due(f"{number}") for number in range(500))
        wait_until(lambda: dispatcher.health().delivered == 500)
        wait_until(lambda: store.dispatchers() and 0 < store.dispatchers()[0].rate <= 500 / SOON.total_seconds())
