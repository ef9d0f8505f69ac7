"""Paused destinations: what is due there is parked, and comes when they resume; others do not notice."""

import time
from collections.abc import Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore.dispatcher import Dispatcher, DispatchReport, _pauses_and_limits
from delaystore.dispatcher._background import LOOK_AGAIN, LOOK_EVERY, ParkingThread
from delaystore.dispatcher._context import DispatchContext, WakeUp
from delaystore.dispatcher._passes import DispatchPass
from delaystore.errors import StoreError, StorePermissionError
from delaystore.message import PARKED, DelayedMessage
from delaystore.stores.records import FURTHEST, TICK, Destination, retried_at
from delaystore.testing import SettableClock
from delaystore.transports.abc import Outcome, OutcomeKind
from tests.dispatching import NOON, CountingStore, ScriptedTransport, message, running, settings, wait_until

SECOND = timedelta(seconds=1)


@pytest.fixture
def dispatcher(store: CountingStore, transport: ScriptedTransport) -> Dispatcher:
    return Dispatcher(store, transport, settings(), endpoint="sales")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass reads what is paused, however short ago that was."""
    monkeypatch.setattr(_pauses_and_limits, "READ_EVERY", 0.0)


def next_attempt(store: CountingStore, message_id: str) -> datetime:
    found = store.get(message_id)
    assert found is not None
    return found.next_attempt


def test_what_is_fetched_for_a_paused_destination_is_parked_and_no_failure(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    store.store_many([message("a", "closed"), message("b"), message("c", "closed")])
    store.pause("closed", by="me")
    assert dispatcher.dispatch_due() == DispatchReport(fetched=3, delivered=1, parked=2)
    assert transport.batches == [["b"]]
    for message_id in "ac":
        kept = store.get(message_id)
        assert kept is not None
        assert (kept.is_parked, kept.failure_count, kept.due_time) == (True, 0, NOON)
    assert dispatcher.dispatch_due() == DispatchReport()


def test_what_was_parked_comes_after_the_resume(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    store.store_many([message("a", "closed"), message("b", "closed")])
    store.pause("closed", by="me")
    dispatcher.dispatch_due()
    assert store.resume("closed", by="me")
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, delivered=2)
    assert transport.bodies("closed") == [b"a", b"b"]


def test_what_was_resumed_between_the_fetch_and_the_parking_is_forwarded_by_the_next_pass(
    store: CountingStore, transport: ScriptedTransport, dispatcher: Dispatcher
) -> None:
    store.store_many([message("a", "closed"), message("b")])
    store.pause("closed", by="me")
    original = transport.send

    def send(messages: Sequence[DelayedMessage], transaction: Any, timeout: float) -> Sequence[Outcome]:
        store.resume("closed", by="me")
        return original(messages, transaction, timeout)

    transport.send = send  # type: ignore[method-assign]
    assert dispatcher.dispatch_due() == DispatchReport(fetched=3, delivered=2)
    assert transport.batches == [["b"], ["a"]]


def test_a_pause_that_is_over_parks_nothing_whoever_ends_it(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    store.pause("closed", by="me", until=NOON + SECOND)
    store.store_many([message("a", "closed"), message("b", "closed", NOON + SECOND)])
    assert dispatcher.dispatch_due().parked == 1
    clock.advance(1)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, delivered=2)
    assert transport.bodies("closed") == [b"a", b"b"]
    assert store.destinations() == []


class DelayingTransport(ScriptedTransport):
    """Has a native delay, which takes no message that is to go to `not_delayable`."""

    def __init__(self) -> None:
        super().__init__()
        self.handed_over: list[str] = []

    @property
    def longest_native_delay(self) -> timedelta:
        return timedelta(days=1)

    def send_delayed(self, messages: Any, now: Any, timeout: float) -> list[Outcome]:
        self.handed_over += [each.message_id for each in messages if each.destination != "not_delayable"]
        kinds = [
            OutcomeKind.NOT_DELAYABLE if each.destination == "not_delayable" else OutcomeKind.DELIVERED
            for each in messages
        ]
        return [Outcome(kind) for kind in kinds]


def test_what_is_due_later_is_not_handed_over_to_a_native_delay(store: CountingStore) -> None:
    transport = DelayingTransport()
    dispatcher = Dispatcher(store, transport, settings(handover_horizon=3600))
    due = NOON + 60 * SECOND
    store.store_many([message("a", "closed", due), message("b", "slow", due), message("c", "open", due)])
    store.pause("closed", by="me")
    store.limit_rate("slow", 5.0, by="me")
    assert dispatcher.dispatch_due() == DispatchReport(fetched=3, delivered=1, parked=1, postponed=1)
    assert transport.handed_over == ["c"]
    assert next_attempt(store, "a") == PARKED
    assert next_attempt(store, "b") == retried_at(due + 3600 * SECOND), "it is fetched when it is due"


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("destination", ["slow", "not_delayable"])
def test_another_limit_shows_no_message_that_is_kept_until_it_is_due(store: CountingStore, destination: str) -> None:
    """The clock of this test, due time and horizon are whole seconds, as is the grid of what a limit postpones."""
    hour = timedelta(hours=1)
    dispatcher = Dispatcher(store, DelayingTransport(), settings(handover_horizon=hour))
    store.limit_rate(destination, 1.0, by="me")
    store.store_many(message(each, destination) for each in "abc")
    assert dispatcher.dispatch_due().postponed == 2
    store.limit_rate(destination, 1.0 if destination == "slow" else None, by="me")
    assert store.unpark(100, hour) == 2
    assert [each.resuming for each in store.destinations()] == [True]
    store.store(message("later", destination, NOON + 60 * SECOND))
    assert dispatcher.dispatch_due().fetched == 3
    assert next_attempt(store, "later") == NOON + hour + 60 * SECOND + TICK
    assert store.unpark(100, hour) == 0
    assert not [each for each in store.destinations() if each.resuming]


def test_parking_is_undone_with_its_pass(transport: ScriptedTransport, clock: SettableClock) -> None:
    class FailingStore(CountingStore):
        @contextmanager
        def transaction(self) -> Any:
            with super().transaction() as tx:
                yield tx
                if self.asked["commits"]:
                    raise StoreError("the commit fails")

    store = FailingStore(clock)
    store.store(message("a", "closed"))
    store.pause("closed", by="me")
    dispatcher = Dispatcher(store, transport, settings())
    store.asked["commits"] = 1
    with pytest.raises(StoreError, match="the commit fails"):
        dispatcher.dispatch_due()
    assert (dispatcher.health().parked, store.count_parked(10)) == (0, 0)
    store.asked["commits"] = 0
    assert dispatcher.dispatch_due().parked == 1


def test_a_dispatcher_that_has_slept_reads_the_pauses_before_it_fetches(
    transport: ScriptedTransport,
) -> None:
    store = CountingStore()
    with running(Dispatcher(store, transport, settings(poll_interval=3600), endpoint="sales")) as dispatcher:
        wait_until(lambda: store.asked["next"])
        time.sleep(_pauses_and_limits.READ_EVERY)  # as old as what it knows may be
        store.pause("closed", by="me")
        store.store(message("a", "closed", datetime.now(UTC)))
        dispatcher.wake_up()
        wait_until(lambda: store.count_parked(10) == 1)
    assert transport.batches == []


def test_what_is_yet_to_fall_due_is_parked_beside_the_passes_and_shown_after_the_resume(
    transport: ScriptedTransport,
) -> None:
    store = CountingStore()
    now = datetime.now(UTC)
    with running(Dispatcher(store, transport, settings(poll_interval=0.1), endpoint="sales")) as dispatcher:
        store.pause("closed", by="me")
        store.store_many(message(f"{number}", "closed", now + 30 * SECOND) for number in range(10))
        store.store(message("far", "closed", now + 3600 * SECOND))
        wait_until(lambda: store.count_parked(20) == 10)
        assert dispatcher.health().parked == 0, "no pass has met them"
        assert next_attempt(store, "far") != PARKED
        store.resume("closed", by="me")
        wait_until(lambda: store.count_parked(20) == 0)
        wait_until(lambda: not store.destinations())
        assert next_attempt(store, "0") == now + 30 * SECOND


@pytest.mark.usefixtures("eager")
def test_a_pause_ends_at_its_time_though_nobody_resumes(transport: ScriptedTransport) -> None:
    store = CountingStore()
    with running(Dispatcher(store, transport, settings(poll_interval=3600), endpoint="sales")) as dispatcher:
        wait_until(lambda: store.asked["next"])
        until = datetime.now(UTC) + 1.5 * SECOND
        store.pause("closed", by="me", until=until)
        store.store_many(message(f"{number}", "closed", datetime.now(UTC)) for number in range(5))
        dispatcher.wake_up()
        wait_until(lambda: store.count_parked(10) == 5)
        wait_until(lambda: store.count() == 0)
        assert datetime.now(UTC) >= until


def test_health_is_well_while_paused_messages_wait_though_long_overdue(
    dispatcher: Dispatcher, store: CountingStore, clock: SettableClock
) -> None:
    store.store_many([message("a", "closed"), message("b", "closed")])
    store.pause("closed", by="me")
    dispatcher.dispatch_due()
    clock.advance(86_400)
    health = dispatcher.health()
    assert health.oldest_overdue is None
    assert (health.paused, health.parked_now, health.backlog, health.parked) == (["closed"], 2, 2, 2)
    assert health.problems == ["the dispatcher of this process does not run"]


@pytest.mark.usefixtures("eager")
def test_a_resume_is_obeyed_at_once_by_the_passes_of_the_loop(transport: ScriptedTransport) -> None:
    store = CountingStore()
    with running(Dispatcher(store, transport, settings(poll_interval=0.05), endpoint="sales")):
        for number in range(5):
            store.pause("closed", by="me")
            store.store(message(f"{number}", "closed", datetime.now(UTC)))
            wait_until(lambda: store.count_parked(1) == 1)
            store.resume("closed", by="me")
            store.unpark()
            wait_until(lambda: store.count() == 0)
    assert store.destinations() == []


@pytest.mark.usefixtures("eager")
def test_messages_go_although_the_rights_to_what_operators_note_are_missing(
    transport: ScriptedTransport, clock: SettableClock, caplog: pytest.LogCaptureFixture
) -> None:
    class ForeignStore(CountingStore):
        granted = False

        def destinations(self) -> Sequence[Destination]:
            if not self.granted:
                raise StorePermissionError("permission denied; grant the right")
            return super().destinations()

    store = ForeignStore(clock)
    dispatcher = Dispatcher(store, transport, settings(), endpoint="sales")
    store.pause("closed", by="me")
    for message_id in "ab":
        store.store(message(message_id))
        assert dispatcher.dispatch_due().delivered == 1
    assert caplog.text.count("permission denied") == 1
    store.granted = True
    dispatcher = Dispatcher(store, transport, settings(), endpoint="sales")
    store.store(message("c", "closed"))
    assert dispatcher.dispatch_due().parked == 1


def test_a_pause_that_is_over_is_looked_at_once(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    context = DispatchContext(store, transport, settings())
    parking = ParkingThread(context, "sales", WakeUp())
    store.pause("closed", by="me", until=clock.now() + SECOND)
    assert 0 < parking._look() <= 1.0
    clock.advance(1)
    looks = [parking._look() for _ in range(3)]
    assert looks[-1] > 1, "it would look again at once, and again"


def test_a_limit_is_looked_at_often_only_while_it_may_have_postponed_messages(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    context = DispatchContext(store, transport, settings())
    parking, passes = ParkingThread(context, "sales", WakeUp()), DispatchPass(context)
    store.limit_rate("slow", 0.01, by="me")
    assert parking._look() == LOOK_AGAIN, "an earlier dispatcher may have postponed some"
    clock.advance(FURTHEST.total_seconds())
    assert parking._look() == LOOK_EVERY
    store.store_many([message("a", "slow"), message("b", "slow")])
    assert passes.run().report.postponed == 1
    assert parking._look() == LOOK_AGAIN
    clock.advance(100)
    assert parking._look() == LOOK_EVERY
    store.pause("closed", by="me")
    context.destinations.forget()
    assert parking._look() == LOOK_AGAIN, "messages may be parked"
