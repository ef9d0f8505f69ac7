"""The dispatcher while it runs: start, stop, sleep, wake, outages, forks."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import Dispatcher, _loop
from delaystore.dispatcher._background import SCHEDULES_EVERY, ScheduleThread
from delaystore.dispatcher._context import DispatchContext, WakeUp
from delaystore.errors import StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore
from delaystore.stores.abc import DelayedMessageStore, WakeUpCallback, WakeUpSubscription
from delaystore.stores.records import AuditEntry
from delaystore.transports.abc import Outcome
from tests.dispatching import (
    PATIENCE,
    REFUSED,
    UNCONFIRMED,
    UNROUTABLE,
    CountingStore,
    FiveMethodStore,
    ScriptedTransport,
    message,
    running,
    settings,
    wait_until,
)

PAST = timedelta(seconds=-5)
NAME = "delaystore-dispatcher-sales"


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def make(store: DelayedMessageStore, transport: ScriptedTransport, **changes: Any) -> Dispatcher:
    return Dispatcher(store, transport, settings(**changes), endpoint="sales")


def due(message_id: str, destination: str = "billing", after: timedelta = PAST) -> DelayedMessage:
    return message(message_id, destination, datetime.now(UTC) + after)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("delaystore-")]


def test_it_delivers_what_falls_due_and_never_before(store: CountingStore, transport: ScriptedTransport) -> None:
    with running(make(store, transport)) as dispatcher:
        one = due("a", after=timedelta(seconds=0.4))
        store.store(one)
        dispatcher.wake_up(one.due_time)
        wait_until(lambda: transport.batches)
        assert datetime.now(UTC) >= one.due_time
        wait_until(lambda: store.count() == 0)


def test_a_message_is_delivered_promptly_although_the_loop_planned_to_sleep_longer(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    with running(make(store, transport, poll_interval=3600)) as dispatcher:
        wait_until(lambda: store.asked["next"])
        store.store(due("a"))
        dispatcher.wake_up(None)
        wait_until(lambda: store.count() == 0)


def test_it_dispatches_though_the_store_cannot_clean_up(
    store: CountingStore,
    transport: ScriptedTransport,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def clean_up() -> None:
        raise StoreUnavailableError("it takes too long")

    monkeypatch.setattr(_loop, "CLEAN_UP_EVERY", 0.02)
    monkeypatch.setattr(store, "clean_up", clean_up)
    with running(make(store, transport, poll_interval=0.05)) as dispatcher:
        wait_until(lambda: "cleanup failed: it takes too long" in caplog.text)
        store.store(due("a"))
        wait_until(lambda: store.count() == 0)
        assert dispatcher.health().breakers["fetch"] == "disarmed"


def test_without_wake_ups_it_polls(store: CountingStore, transport: ScriptedTransport) -> None:
    with running(make(store, transport, poll_interval=0.05)):
        wait_until(lambda: store.asked["next"] > 3)
        store.store(due("a"))
        wait_until(lambda: store.count() == 0)


def test_sends_for_later_than_planned_do_not_make_it_look_at_the_store(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    with running(make(store, transport, poll_interval=3600)) as dispatcher:
        wait_until(lambda: store.asked["next"])
        before = store.asked["transaction"]
        for _ in range(10_000):
            dispatcher.wake_up(datetime.now(UTC) + timedelta(hours=2))
        time.sleep(0.2)
        assert store.asked["transaction"] == before


def test_a_backlog_is_worked_off_by_two_workers(store: CountingStore, transport: ScriptedTransport) -> None:
    in_flight, most = 0, 0
    lock = threading.Lock()
    original = transport.send

    def send(messages: Sequence[DelayedMessage], transaction: Any, timeout: float) -> Sequence[Outcome]:
        nonlocal in_flight, most
        with lock:
            in_flight += 1
            most = max(most, in_flight)
        time.sleep(0.01)
        outcomes = original(messages, transaction, timeout)
        with lock:
            in_flight -= 1
        return outcomes

    transport.send = send  # type: ignore[method-assign]
    store.store_many(due(f"{number}") for number in range(2000))
    with running(make(store, transport, batch_size=20)) as dispatcher:
        wait_until(lambda: dispatcher.health().delivered == 2000)
        assert sorted(threads()) == [
            NAME,
            f"{NAME}-heartbeats",
            f"{NAME}-helper",
            f"{NAME}-parking",
            f"{NAME}-schedules",
        ]
    assert most == 2
    assert sorted(transport.bodies("billing")) == sorted(f"{number}".encode() for number in range(2000))


@pytest.mark.parametrize(("count", "workers"), [(15, 1), (16, 2)])
def test_a_second_worker_helps_while_many_messages_become_due(
    store: CountingStore, transport: ScriptedTransport, count: int, workers: int
) -> None:
    store.store_many(due(f"{number}") for number in range(count))
    with running(make(store, transport, max_body_bytes=1000)) as dispatcher:  # the first batch has room for all
        wait_until(lambda: dispatcher.health().delivered == count)
        wait_until(lambda: store.asked["next"])  # the loop rests
        assert (f"{NAME}-helper" in threads()) == (workers == 2)


def test_a_store_of_five_methods_is_dispatched_from(transport: ScriptedTransport) -> None:
    store = FiveMethodStore()
    transport.outcomes["nowhere"] = UNROUTABLE
    for number in range(50):
        store.store(due(f"{number}"))
    store.store(due("lost", "nowhere"))
    with running(make(store, transport)) as dispatcher:
        wait_until(lambda: dispatcher.health().delivered == 50)
        wait_until(lambda: dispatcher.health().moved_to_error_queue == 1)


def test_an_overdue_message_that_another_dispatcher_holds_makes_nobody_spin(transport: ScriptedTransport) -> None:
    class StoreOfAnother(CountingStore):
        def next(self) -> datetime | None:
            super().next()
            return datetime.now(UTC) - timedelta(seconds=1)

    store = StoreOfAnother()
    with running(make(store, transport)):
        wait_until(lambda: store.asked["next"] > 3)
        store.asked.clear()
        time.sleep(1)
        assert store.asked["transaction"] <= 12


def test_what_falls_due_just_after_a_look_is_not_mistaken_for_anothers(
    transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoreWithALateLook(CountingStore):
        def next(self) -> datetime | None:
            found = super().next()
            if self.asked["next"] == 1:
                self.store(due("a", after=timedelta(0)))
                time.sleep(0.001)
                return super().next()
            return found

    monkeypatch.setattr("delaystore.dispatcher._loop.SHORTEST_CONTENTION", 3000.0)
    monkeypatch.setattr("delaystore.dispatcher._loop.LONGEST_CONTENTION", 3000.0)
    store = StoreWithALateLook()
    with running(make(store, transport, poll_interval=3600)):
        wait_until(lambda: store.count() == 0 and transport.batches)


def test_what_falls_due_between_two_clocks_of_a_store_is_not_mistaken_for_anothers(
    transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection carries an answer of the server's clock of its own, some milliseconds behind or not."""

    class StoreWithTwoClocks(CountingStore):
        @contextmanager
        def transaction(self) -> Iterator[DelayedMessageStore]:
            with super().transaction() as tx:
                behind = tx.now() - timedelta(seconds=0.3)
                monkeypatch.setattr(tx, "now", lambda: behind)
                yield tx

    monkeypatch.setattr("delaystore.dispatcher._loop.SHORTEST_CONTENTION", 3000.0)
    monkeypatch.setattr("delaystore.dispatcher._loop.LONGEST_CONTENTION", 3000.0)
    store = StoreWithTwoClocks()
    store.store(due("a", after=timedelta(0)))
    with running(make(store, transport, poll_interval=3600)):
        wait_until(lambda: store.count() == 0 and transport.batches)


def test_a_store_whose_removals_fail_makes_it_not_send_in_a_hot_loop(transport: ScriptedTransport) -> None:
    class ForgetfulStore(FiveMethodStore):
        def remove(self, message: DelayedMessage) -> bool:
            with self._lock:
                self._claimed.discard(message.message_id)
            return False

    store = ForgetfulStore()
    store.store(due("a"))
    with running(make(store, transport)):
        wait_until(lambda: len(transport.batches) > 3)
        before = len(transport.batches)
        time.sleep(1)
        assert len(transport.batches) - before <= 20


def test_an_idle_dispatcher_asks_the_store_seldom(store: CountingStore, transport: ScriptedTransport) -> None:
    with running(make(store, transport, poll_interval=0.2)):
        wait_until(lambda: store.asked["next"])
        store.asked.clear()
        time.sleep(1)
        assert store.asked["transaction"] <= 6


def test_stop_finishes_what_is_in_flight(store: CountingStore, transport: ScriptedTransport) -> None:
    sending, answer = threading.Event(), threading.Event()
    original = transport.send

    def send(messages: Sequence[DelayedMessage], transaction: Any, timeout: float) -> Sequence[Outcome]:
        sending.set()
        answer.wait(PATIENCE)
        return original(messages, transaction, timeout)

    transport.send = send  # type: ignore[method-assign]
    dispatcher = make(store, transport)
    store.store(due("a"))
    dispatcher.start()
    assert sending.wait(PATIENCE)
    assert dispatcher.stop(0.05) is False
    answer.set()
    assert dispatcher.stop(PATIENCE) is True
    assert store.count() == 0
    assert transport.bodies("billing") == [b"a"]


def test_a_start_while_the_former_run_is_finishing_waits_for_it(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    sending, answer = threading.Event(), threading.Event()
    original = transport.send

    def send(messages: Sequence[DelayedMessage], transaction: Any, timeout: float) -> Sequence[Outcome]:
        sending.set()
        assert answer.wait(PATIENCE)
        return original(messages, transaction, timeout)

    transport.send = send  # type: ignore[method-assign]
    dispatcher = make(store, transport)
    store.store(due("a"))
    dispatcher.start()
    assert sending.wait(PATIENCE)
    assert dispatcher.stop(0) is False
    dispatcher.start()
    assert dispatcher.health().running
    asked = store.asked["transaction"]
    time.sleep(0.2)
    assert store.asked["transaction"] == asked
    assert dispatcher.stop(0.05) is False
    dispatcher.start()
    answer.set()
    store.store(due("b"))
    dispatcher.wake_up()
    wait_until(lambda: store.count() == 0)
    assert dispatcher.stop(PATIENCE)
    assert threads() == []


def test_an_error_queue_without_an_answer_holds_up_no_message_and_shows_in_the_health(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class SlowTransport(ScriptedTransport):
        def declare(self, queue: str) -> None:
            if queue == "error":
                assert answer.wait(PATIENCE)
            super().declare(queue)

    monkeypatch.setattr("delaystore.dispatcher.error_queue.GRACE", 0.05)
    answer = threading.Event()
    dispatcher = make(store, SlowTransport())
    with running(dispatcher):
        for name in "abc":
            store.store(due(name))
            dispatcher.wake_up()
            wait_until(lambda: store.count() == 0)
        health = dispatcher.health()
        assert "no answer" in (health.error_queue or "")
        assert not health.healthy
        answer.set()
        wait_until(lambda: dispatcher.health().healthy)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_health_leaves_the_transport_alone_unless_it_runs(store: CountingStore, transport: ScriptedTransport) -> None:
    dispatcher = make(store, transport)
    transport.unavailable_reason = "asked although nobody sends"
    assert dispatcher.health().transport is None
    with running(dispatcher):
        assert dispatcher.health().transport is not None
    assert dispatcher.health().transport is None


def test_start_and_stop_may_be_called_twice_or_never(store: CountingStore, transport: ScriptedTransport) -> None:
    dispatcher = make(store, transport)
    assert dispatcher.stop() is True
    dispatcher.start()
    dispatcher.start()
    wait_until(lambda: sorted(threads()) == [NAME, f"{NAME}-heartbeats", f"{NAME}-parking", f"{NAME}-schedules"])
    assert dispatcher.stop(PATIENCE)
    assert dispatcher.stop(PATIENCE)
    assert not dispatcher.health().running


@pytest.mark.parametrize("worker", ["delaystore-dispatcher-sales", "delaystore-dispatcher-sales-helper"])
def test_each_of_its_own_threads_may_stop_it(store: CountingStore, transport: ScriptedTransport, worker: str) -> None:
    answers: list[bool] = []
    original = transport.send

    def send(messages: Sequence[DelayedMessage], transaction: Any, timeout: float) -> Sequence[Outcome]:
        if threading.current_thread().name == worker and not answers:
            answers.append(dispatcher.stop())
        time.sleep(0.001)
        return original(messages, transaction, timeout)

    transport.send = send  # type: ignore[method-assign]
    for number in range(2000):
        store.store(due(f"{number}"))
    dispatcher = make(store, transport, batch_size=2)
    dispatcher.start()
    wait_until(lambda: answers)
    assert dispatcher.stop(PATIENCE)
    assert answers == [False]


def test_where_no_thread_is_to_be_had_there_is_nothing_to_stop(
    store: CountingStore, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    dispatcher = make(store, transport)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError):
            dispatcher.start()
    assert dispatcher.stop(PATIENCE)


def test_it_starts_again_after_a_stop(store: CountingStore, transport: ScriptedTransport) -> None:
    dispatcher = make(store, transport)
    for number in range(3):
        with running(dispatcher):
            store.store(due(f"{number}"))
            dispatcher.wake_up()
            wait_until(lambda: store.count() == 0)


def test_run_dispatches_in_the_calling_thread_until_a_signal_handler_stops_it(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    dispatcher = make(store, transport, poll_interval=3600)
    handled = signal.signal(signal.SIGUSR1, lambda number, frame: dispatcher.stop())
    try:
        store.store(due("a"))

        def interrupt() -> None:
            wait_until(lambda: store.count() == 0)
            os.kill(os.getpid(), signal.SIGUSR1)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        dispatcher.run()
        interrupter.join()
    finally:
        signal.signal(signal.SIGUSR1, handled)
    assert transport.bodies("billing") == [b"a"]


def test_nothing_is_claimed_while_the_transport_cannot_send(
    store: CountingStore, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.dispatcher._loop.CONNECTING_GRACE", 0.0)
    transport.unavailable_reason = "connection.blocked: low on memory"
    store.store(due("a"))
    with running(make(store, transport)) as dispatcher:
        wait_until(lambda: dispatcher.health().breakers["dispatch"] == "armed")
        assert store.asked["transaction"] == 1  # the send's own
        health = dispatcher.health()
        assert health.transport == "connection.blocked: low on memory"
        assert not health.healthy
        transport.unavailable_reason = None
        wait_until(lambda: store.count() == 0)
        wait_until(lambda: dispatcher.health().healthy)


def test_connecting_at_the_start_is_no_failure(
    store: CountingStore, transport: ScriptedTransport, caplog: pytest.LogCaptureFixture
) -> None:
    transport.unavailable_reason = "connecting"
    store.store(due("a"))
    with running(make(store, transport)) as dispatcher:
        time.sleep(0.2)
        transport.unavailable_reason = None
        wait_until(lambda: store.count() == 0)
        assert dispatcher.health().breakers["dispatch"] == "disarmed"
    assert not caplog.records


def test_an_outage_that_is_over_is_over_even_if_nothing_is_due(
    store: CountingStore, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.dispatcher._loop.CONNECTING_GRACE", 0.0)
    transport.unavailable_reason = "no connection"
    with running(make(store, transport)) as dispatcher:
        wait_until(lambda: dispatcher.health().breakers["dispatch"] == "armed")
        transport.unavailable_reason = None
        wait_until(lambda: dispatcher.health().breakers["dispatch"] == "disarmed")


def test_a_store_that_is_down_triggers_the_fetch_breaker_and_is_tried_again(
    store: CountingStore,
    transport: ScriptedTransport,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("delaystore.breakers.TRIGGERED_DELAY", 0.5)
    calls: list[tuple[str, Exception]] = []
    dispatcher = make(
        store,
        transport,
        time_to_trigger_fetch_circuit_breaker=0.5,
        on_critical_error=lambda text, error: calls.append((text, error)),
    )
    store.store(due("a"))
    store.error = StoreUnavailableError("the database is down")
    with running(dispatcher):
        wait_until(lambda: dispatcher.health().breakers["fetch"] == "triggered")
        assert dispatcher.health().store == "the database is down"
        assert not dispatcher.health().healthy
        store.error = None
        wait_until(lambda: store.count() == 0)
        wait_until(lambda: dispatcher.health().breakers["fetch"] == "disarmed")
    assert [type(error) for _, error in calls] == [StoreUnavailableError]
    assert all(record.exc_info is None for record in caplog.records)


@pytest.mark.long_runs(after=1)
@pytest.mark.parametrize("error", [RuntimeError("a bug"), ZeroDivisionError(), TypeError("naive and aware")])
def test_an_unexpected_exception_is_logged_and_the_loop_goes_on(
    store: CountingStore, transport: ScriptedTransport, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    store.store(due("a"))
    store.error = error
    with running(make(store, transport)) as dispatcher:
        wait_until(lambda: dispatcher.health().breakers["fetch"] == "armed")
        store.error = None
        wait_until(lambda: store.count() == 0)
    assert sum("internal error" in record.getMessage() for record in caplog.records) == 1


def test_stop_does_not_wait_for_a_breakers_delay(store: CountingStore, transport: ScriptedTransport) -> None:
    dispatcher = make(store, transport, time_to_trigger_fetch_circuit_breaker=0.001)
    store.error = StoreUnavailableError("the database is down")
    dispatcher.start()
    wait_until(lambda: dispatcher.health().breakers["fetch"] == "triggered")
    began = time.monotonic()
    assert dispatcher.stop(PATIENCE)
    assert time.monotonic() - began < 5


def test_an_action_that_raises_does_not_end_the_loop(store: CountingStore, transport: ScriptedTransport) -> None:
    def action(description: str, error: Exception) -> None:
        raise RuntimeError("the pager is out of order")

    transport.outcomes |= {"nowhere": UNROUTABLE, "error": REFUSED}
    dispatcher = make(store, transport, maximum_recovery_failures_per_second=0.001, on_critical_error=action)
    store.store(due("bad", "nowhere"))
    with running(dispatcher):
        wait_until(lambda: dispatcher.health().breakers["recovery"] == "triggered")
        store.store(due("good"))
        dispatcher.wake_up()
        wait_until(lambda: store.count() == 1)


def test_messages_without_an_answer_are_sent_again_when_the_broker_answers(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.outcomes["billing"] = UNCONFIRMED
    store.store(due("a"))
    with running(make(store, transport)) as dispatcher:
        wait_until(lambda: dispatcher.health().breakers["dispatch"] == "armed")
        assert store.count() == 1
        transport.outcomes.clear()
        wait_until(lambda: store.count() == 0)


class StoreThatWakes(CountingStore):
    """Wakes its subscriber, as LISTEN does, while `alive`."""

    def __init__(self) -> None:
        super().__init__()
        self.subscription: HandSubscription | None = None
        self.refuse: Exception | None = None

    def subscribe(self, on_wake_up: WakeUpCallback) -> WakeUpSubscription | None:
        if self.refuse is not None:
            raise self.refuse
        self.subscription = HandSubscription(on_wake_up)
        return self.subscription


class HandSubscription(WakeUpSubscription):
    def __init__(self, on_wake_up: WakeUpCallback) -> None:
        self.on_wake_up = on_wake_up
        self.is_alive = True
        self.closed = False

    @property
    def alive(self) -> bool:
        return self.is_alive

    def close(self) -> None:
        self.closed = True


def test_with_a_live_subscription_it_sleeps_until_it_is_woken(transport: ScriptedTransport) -> None:
    store = StoreThatWakes()
    with running(make(store, transport, poll_interval=0.05)) as dispatcher:
        wait_until(lambda: store.asked["next"])
        assert dispatcher.health().subscription_alive
        store.asked.clear()
        time.sleep(0.5)
        assert store.asked["transaction"] == 0
        store.store(due("a"))
        assert store.subscription is not None
        store.subscription.on_wake_up(None)
        wait_until(lambda: store.count() == 0)
    assert store.subscription.closed


def test_a_subscription_that_does_not_close_holds_up_no_stop(
    transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("delaystore.dispatcher._loop.LONGEST_CLOSE", 0.05)
    hung = threading.Event()
    monkeypatch.setattr(HandSubscription, "close", lambda self: hung.wait(PATIENCE))
    store = StoreThatWakes()
    try:
        with running(make(store, transport)) as dispatcher:
            wait_until(lambda: dispatcher.health().subscription_alive)
        assert "cannot close the store's subscription within" in caplog.text
    finally:
        hung.set()
    wait_until(lambda: threads() == [])


def test_when_the_subscription_dies_it_polls_at_once(transport: ScriptedTransport) -> None:
    store = StoreThatWakes()
    with running(make(store, transport, poll_interval=0.05)):
        wait_until(lambda: store.asked["next"])
        assert store.subscription is not None
        store.store(due("a"))
        store.subscription.is_alive = False
        wait_until(lambda: store.count() == 0)


def test_a_store_that_cannot_subscribe_at_present_is_polled(transport: ScriptedTransport) -> None:
    store = StoreThatWakes()
    store.refuse = StoreUnavailableError("too many connections")
    with running(make(store, transport, poll_interval=0.05)):
        store.store(due("a"))
        wait_until(lambda: store.count() == 0)


def test_health_tells_how_long_the_oldest_is_overdue(store: CountingStore, transport: ScriptedTransport) -> None:
    dispatcher = make(store, transport)
    assert dispatcher.health().oldest_overdue is None
    store.store(due("a", after=timedelta(minutes=-10)))
    overdue = dispatcher.health().oldest_overdue
    assert overdue is not None
    assert overdue >= timedelta(minutes=10)
    with running(dispatcher):
        wait_until(lambda: store.count() == 0)
        wait_until(lambda: dispatcher.health().last_success is not None)
        wait_until(lambda: dispatcher.health().dispatchers == 1)
        health = dispatcher.health()
        assert health.healthy
        assert health.as_dict() | {"last_success": None, "error_queue_depth": None} == {
            "healthy": True,
            "problems": [],
            "running": True,
            "dispatches": True,
            "breakers": {"fetch": "disarmed", "dispatch": "disarmed", "recovery": "disarmed"},
            "oldest_overdue": None,
            "last_success": None,
            "fetched": 1,
            "delivered": 1,
            "moved_to_error_queue": 0,
            "expired": 0,
            "failed": 0,
            "unconfirmed": 0,
            "not_delayable": 0,
            "deferred": 0,
            "claims_lost": 0,
            "parked": 0,
            "postponed": 0,
            "backlog": 0,
            "backlog_exact": True,
            "failing": 0,
            "paused": [],
            "parked_now": 0,
            "error_queue_depth": None,
            "dispatchers": 1,
            "store": None,
            "slow_store_call": None,
            "transport": None,
            "error_queue": None,
            "subscription_alive": False,
        }


def test_a_backlog_of_ten_minutes_is_not_healthy(store: CountingStore, transport: ScriptedTransport) -> None:
    sending, answer = threading.Event(), threading.Event()

    def send(messages: Sequence[DelayedMessage], transaction: Any, timeout: float) -> Sequence[Outcome]:
        sending.set()
        answer.wait(PATIENCE)
        return [REFUSED] * len(messages)

    transport.send = send  # type: ignore[method-assign]
    for number in range(100):
        store.store(due(f"{number}", after=timedelta(minutes=-10)))
    with running(make(store, transport, batch_size=1)) as dispatcher:
        assert sending.wait(PATIENCE)
        assert dispatcher.health().running
        assert not dispatcher.health().healthy
        answer.set()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # what the test is about
def test_a_forked_child_may_start_its_own_dispatcher(store: CountingStore, transport: ScriptedTransport) -> None:
    with running(make(store, transport)) as dispatcher:
        held, fork_done = threading.Event(), threading.Event()

        def hold_the_lock() -> None:
            with dispatcher._lifecycle:
                held.set()
                fork_done.wait(PATIENCE)

        holder = threading.Thread(target=hold_the_lock)
        holder.start()
        assert held.wait(PATIENCE)
        child = os.fork()
        if child == 0:  # pragma: no cover - no coverage is measured in the child
            signal.alarm(60)  # a child that waits for the parent's lock must not outlive the test
            logging.disable()
            os._exit(0 if child_dispatches(dispatcher, store) else 1)
        fork_done.set()
        holder.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def child_dispatches(dispatcher: Dispatcher, store: CountingStore) -> bool:
    if dispatcher.health().running:
        return False
    store.store(due("a"))
    dispatcher.wake_up()
    dispatcher.start()
    wait_until(lambda: store.count() == 0)
    return dispatcher.stop(PATIENCE)


def test_it_deletes_the_audit_entries_that_are_older_than_the_retention(
    sqlite_url: str, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_loop, "CLEAN_UP_EVERY", 0.1)
    store, day = SqlDelayedMessageStore(sqlite_url), timedelta(days=1)
    changed = DelayedDeliverySettings(retention=2 * day, audit="all")
    with DelayedDelivery("sales", store, transport, changed) as delivery:
        now = store.now()
        ages = (timedelta(hours=1), day, 3 * day, 100 * day)
        store.note_changes([AuditEntry(at=now - age, by="ada", action="pause", about="x", count=0) for age in ages])
        wait_until(lambda: len(store.changes()) == 2)
        assert [each.at for each in store.changes()] == [now - age for age in ages[:2]]
        wait_until(lambda: delivery.operations.audit_kept().audit)
        kept = delivery.operations.audit_kept()
    assert (kept.audit, kept.retention) == (["all"], 2 * day)
    assert str(kept) == "Noted are the changes of operators and programs; they are kept for 2d."


def test_the_thread_of_schedules_may_be_ended_before_it_has_looked() -> None:
    store = InMemoryDelayedMessageStore()
    DelayedDelivery("sales", store).setup_infrastructure()
    context = DispatchContext(store, ScriptedTransport(), settings())
    thread = ScheduleThread(context, "sales", WakeUp())
    thread.ticker.end()
    assert thread.work() == SCHEDULES_EVERY
