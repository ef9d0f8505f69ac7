"""What becomes of a message, outcome by outcome, one pass at a time."""

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from delaystore.dispatcher import Dispatcher, DispatchReport, _in_flight
from delaystore.dispatcher._context import DispatchContext
from delaystore.dispatcher._passes import DispatchPass
from delaystore.errors import (
    StoreError,
    StoreUnavailableError,
    TransportUnavailableError,
    UnsupportedMessageError,
    UnsupportedModeError,
)
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.settings import TransactionMode
from delaystore.stores.abc import DelayedMessageStore, ManagementOutcome
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.stores.records import FailedDelivery
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.testing import SettableClock
from delaystore.transports.abc import Outcome, OutcomeKind, PendingConfirm
from tests.dispatching import (
    NOON,
    REFUSED,
    UNCONFIRMED,
    UNROUTABLE,
    CountingStore,
    FiveMethodStore,
    ScriptedTransport,
    message,
    raising,
    settings,
    waiting,
)

LATER = timedelta(days=1)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Late(PendingConfirm):
    """A confirm that has come after its batch had ended."""

    @property
    def arrived(self) -> bool | None:
        return True


@pytest.fixture
def dispatcher(store: CountingStore, transport: ScriptedTransport) -> Dispatcher:
    return Dispatcher(store, transport, settings(), endpoint="sales")


def send_without_an_answer(dispatcher: DispatchPass, transport: ScriptedTransport, clock: SettableClock) -> None:
    """Run a pass whose confirms come late; then let a day pass."""
    transport.outcomes["billing"] = Outcome(OutcomeKind.UNAVAILABLE, "no answer in time", Late())
    dispatcher.run()
    transport.outcomes.clear()
    clock.advance(LATER)


def ids(store: InMemoryDelayedMessageStore) -> list[str]:
    return [one.message_id for one in store.list().messages]


def test_what_is_due_is_delivered_and_removed(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    store.store_many([message("a"), message("b"), message("later", due_time=NOON + LATER)])
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, delivered=2)
    assert transport.bodies("billing") == [b"a", b"b"]
    assert ids(store) == ["later"]


def test_nothing_due_is_nothing_done(dispatcher: Dispatcher, transport: ScriptedTransport) -> None:
    assert dispatcher.dispatch_due() == DispatchReport()
    assert transport.batches == []


def test_more_than_a_batch_is_dispatched_in_growing_batches(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    store.store_many(message(f"{number:05}") for number in range(3000))
    assert dispatcher.dispatch_due().delivered == 3000
    sizes = [len(batch) for batch in transport.batches]
    assert sizes[0] <= 64
    assert max(sizes) == 1000
    assert transport.bodies("billing") == [f"{number:05}".encode() for number in range(3000)]


def test_a_refused_message_is_counted_and_tried_again_after_a_back_off(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    transport.outcomes["full"] = REFUSED
    store.store_many([message("bad", "full"), message("good")])
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, delivered=1, failed=1)
    bad = waiting(store, "bad")
    assert (bad.failure_count, bad.due_time) == (1, NOON)
    assert bad.next_attempt > NOON + timedelta(seconds=1)
    clock.advance(LATER)
    del transport.outcomes["full"]
    dispatcher.dispatch_due()
    assert transport.bodies("full") == [b"bad"]


@pytest.mark.parametrize("retries", [0, 1, 5])
def test_a_message_is_tried_once_and_then_as_often_as_there_are_retries(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock, retries: int
) -> None:
    dispatcher = Dispatcher(store, transport, settings(number_of_retries=retries), endpoint="sales")
    transport.outcomes["full"] = REFUSED
    store.store(message("bad", "full"))
    for _ in range(retries + 3):
        dispatcher.dispatch_due()
        clock.advance(LATER)
    assert transport.batches == [["bad"]] * (1 + retries) + [["bad"]]  # the last one is the copy
    assert transport.bodies("error") == [b"bad"]
    assert ids(store) == []


def test_the_retries_span_at_least_a_quarter_of_an_hour(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    transport.outcomes["full"] = REFUSED
    store.store(message("bad", "full"))
    while ids(store):
        clock.set(max(clock.now(), waiting(store, "bad").next_attempt))
        dispatcher.dispatch_due()
    assert clock.now() >= NOON + timedelta(minutes=15) - timedelta(microseconds=9)


def test_an_unroutable_message_goes_to_the_error_queue_at_once_and_its_neighbours_arrive(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.outcomes["nowhere"] = UNROUTABLE
    store.store_many([message("bad", "nowhere"), message("good")])
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, delivered=1, moved_to_error_queue=1)
    assert transport.bodies("error") == [b"bad"]
    assert transport.bodies("billing") == [b"good"]
    assert ids(store) == []


def test_a_message_nobody_can_read_goes_to_the_error_queue_without_being_sent(
    transport: ScriptedTransport, clock: SettableClock
) -> None:
    class StoreWithABrokenRow(CountingStore):
        @contextmanager
        def transaction(self) -> Any:
            with super().transaction() as tx:
                fetch = tx.fetch_batch
                tx.fetch_batch = lambda *bounds: [broken(one) for one in fetch(*bounds)]  # type: ignore[method-assign]
                yield tx

    def broken(one: DelayedMessage) -> DelayedMessage:
        if one.message_id != "bad":
            return one
        return UnreadableMessage(
            message_id="bad",
            destination=one.destination,
            due_time=one.due_time,
            body=one.body,
            headers={"delaystore.raw-headers": "{"},
            reason="the headers are no JSON",
        )

    store = StoreWithABrokenRow(clock)
    dispatcher = Dispatcher(store, transport, settings(), endpoint="sales")
    store.store_many([message("bad"), message("good")])
    dispatcher.dispatch_due()
    assert transport.bodies("billing") == [b"good"]
    (failed,) = transport.arrived("error")
    assert failed.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "delaystore.Unreadable"
    assert failed.headers["NServiceBus.ExceptionInfo.Message"] == "the headers are no JSON"
    assert failed.headers["delaystore.raw-headers"] == "{"
    assert ids(store) == []


def test_an_unconfirmed_message_stays_as_it_was_and_arms_the_dispatch_breaker(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.outcomes["billing"] = UNCONFIRMED
    store.store(message("a"))
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, unconfirmed=1)
    assert waiting(store, "a") == message("a")
    assert dispatcher.health().breakers["dispatch"] == "armed"
    del transport.outcomes["billing"]
    assert dispatcher.dispatch_due().delivered == 1
    assert dispatcher.health().breakers["dispatch"] == "disarmed"


def test_what_settled_is_removed_although_the_connection_went_before_the_rest_did(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.outcomes["slow"] = UNCONFIRMED
    store.store_many([message("good"), message("bad", "slow")])
    original = transport.send

    def send(messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float) -> Any:
        outcomes = original(messages, transaction, timeout)
        transport.unavailable_reason = "the connection is gone"
        return outcomes

    transport.send = send  # type: ignore[method-assign]
    report = dispatcher.dispatch_due()
    assert (report.delivered, report.unconfirmed, report.failed) == (1, 1, 0)
    assert ids(store) == ["bad"]
    assert waiting(store, "bad").failure_count == 0
    assert dispatcher.health().breakers["dispatch"] == "armed"


def test_messages_that_alone_get_no_answer_are_deferred_behind_the_others(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    dispatcher = Dispatcher(store, transport, settings(batch_size=10), endpoint="sales")
    transport.outcomes["stuck"] = UNCONFIRMED
    store.store_many(message(f"stuck{n}", "stuck", NOON - timedelta(seconds=1)) for n in range(9))
    store.store_many(message(f"good{n}") for n in range(9))
    for _ in range(3):
        dispatcher.dispatch_due()
    assert len(transport.bodies("billing")) == 9
    assert {one.failure_count for one in store.list().messages} == {1}
    assert dispatcher.health().breakers["dispatch"] == "disarmed"


def test_a_deferral_uses_no_retry(store: CountingStore, transport: ScriptedTransport, clock: SettableClock) -> None:
    dispatcher = Dispatcher(store, transport, settings(number_of_retries=2), endpoint="sales")
    transport.outcomes["stuck"] = UNCONFIRMED
    store.store(message("bad", "stuck"))
    for number in range(5):
        store.store(message(f"good{number}"))
        dispatcher.dispatch_due()
        clock.advance(LATER)
    assert waiting(store, "bad").failure_count == 5
    transport.outcomes["stuck"] = REFUSED
    for _ in range(2):
        dispatcher.dispatch_due()
        assert ids(store) == ["bad"]
        clock.advance(LATER)
    dispatcher.dispatch_due()
    assert transport.bodies("error") == [b"bad"]


def test_retries_are_counted_from_the_end_of_the_sending(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    def answer_late(one: DelayedMessage) -> Any:
        clock.advance(timedelta(hours=1))
        return REFUSED

    transport.outcomes["full"] = answer_late
    store.store(message("bad", "full"))
    assert dispatcher.dispatch_due().failed == 1
    assert waiting(store, "bad").next_attempt > NOON + timedelta(hours=1)


def test_what_the_transport_decides_by_itself_does_not_end_an_outage(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    dispatcher = Dispatcher(
        store, transport, settings(time_to_trigger_dispatch_circuit_breaker=0.000_001), endpoint="sales"
    )
    transport.outcomes |= {"no such address": UNROUTABLE, "billing": UNCONFIRMED}
    original = transport.send

    def send(messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float) -> Any:
        outcomes = original(messages, transaction, timeout)
        transport.unavailable_reason = "the broker does not answer"
        return outcomes

    transport.send = send  # type: ignore[method-assign]
    store.store_many([message("bad", "no such address"), message("good")])
    transport.outcomes["error"] = UNCONFIRMED
    for _ in range(2):
        transport.unavailable_reason = None
        dispatcher.dispatch_due()
    assert dispatcher.health().breakers["dispatch"] == "triggered"  # by the second failure without a success between
    assert [waiting(store, one).failure_count for one in ids(store)] == [0, 0]


def test_an_outage_never_moves_anything_to_the_error_queue(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    dispatcher = Dispatcher(store, transport, settings(number_of_retries=0), endpoint="sales")
    transport.outcomes["billing"] = UNCONFIRMED
    store.store(message("a"))
    for _ in range(10):
        dispatcher.dispatch_due()
        clock.advance(LATER)
    assert transport.bodies("error") == []
    assert ids(store) == ["a"]


def test_an_exception_of_the_transport_is_an_outage_and_is_logged(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, caplog: pytest.LogCaptureFixture
) -> None:
    transport.outcomes["billing"] = raising(RuntimeError("a bug"))
    store.store(message("a"))
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, unconfirmed=1)
    assert waiting(store, "a").failure_count == 0
    assert dispatcher.health().breakers["dispatch"] == "armed"
    assert "a bug" in caplog.text


def test_a_transport_that_forgets_an_outcome_is_an_outage(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.send = lambda messages, transaction, timeout: []  # type: ignore[method-assign]
    store.store(message("a"))
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, unconfirmed=1)
    assert ids(store) == ["a"]


@pytest.mark.parametrize("answer", [REFUSED, UNROUTABLE, UNCONFIRMED, raising(RuntimeError("a bug"))])
def test_a_message_the_error_queue_does_not_take_stays_and_is_tried_again(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, clock: SettableClock, answer: Any
) -> None:
    transport.outcomes |= {"nowhere": UNROUTABLE, "error": answer}
    store.store_many([message("bad", "nowhere"), message("good")])
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, delivered=1, failed=1)
    assert transport.bodies("billing") == [b"good"]
    assert waiting(store, "bad").failure_count == 1
    assert waiting(store, "bad").next_attempt > NOON
    assert dispatcher.health().breakers["recovery"] == "armed"
    clock.advance(LATER)
    del transport.outcomes["error"]
    dispatcher.dispatch_due()
    assert transport.bodies("error") == [b"bad"]
    assert ids(store) == []


def test_an_undeliverable_message_stays_as_it_was_when_the_broker_goes_before_the_error_queue_has_it(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.outcomes |= {"nowhere": UNROUTABLE, "error": UNCONFIRMED}
    store.store_many([message("bad", "nowhere"), message("good")])
    original = transport.send

    def send(messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float) -> Any:
        outcomes = original(messages, transaction, timeout)
        transport.unavailable_reason = "the connection is gone"
        return outcomes

    transport.send = send  # type: ignore[method-assign]
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, delivered=1, unconfirmed=1)
    assert waiting(store, "bad") == message("bad", "nowhere")
    assert dispatcher.health().breakers["recovery"] == "disarmed"
    assert len(transport.batches) == 1  # no wait for a broker that is known to be gone


def test_an_outage_that_begins_with_the_error_copies_leaves_their_messages_as_they_were(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    def go(one: DelayedMessage) -> Any:
        transport.unavailable_reason = "the connection is gone"
        return UNCONFIRMED

    transport.outcomes |= {"nowhere": UNROUTABLE, "error": go}
    store.store_many([message("bad", "nowhere"), message("good")])
    context = DispatchContext(store, transport, settings())
    result = DispatchPass(context).run()
    assert result.report == DispatchReport(fetched=2, delivered=1, unconfirmed=1)
    assert (result.outage, result.delay) == ("the connection is gone", 1.0)
    assert waiting(store, "bad") == message("bad", "nowhere")
    assert context.breakers.states() == {"fetch": "disarmed", "dispatch": "armed", "recovery": "disarmed"}


@pytest.mark.parametrize(
    ("outcomes", "questions"),
    [({}, 1), ({"billing": REFUSED}, 2), ({"billing": UNCONFIRMED}, 2), ({"billing": UNROUTABLE, "error": REFUSED}, 3)],
)
def test_the_transport_is_asked_before_the_pass_and_after_each_send_that_did_not_deliver_everything(
    store: CountingStore, transport: ScriptedTransport, outcomes: dict[str, Any], questions: int
) -> None:
    asked = []
    transport.unavailable = lambda: asked.append(1)  # type: ignore[method-assign, func-returns-value]
    transport.outcomes |= outcomes
    store.store_many([message("a"), message("b")])
    DispatchPass(DispatchContext(store, transport, settings())).run()
    assert len(asked) == questions


def test_a_message_that_stayed_arrives_once_its_destination_is_back(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    transport.outcomes |= {"nowhere": UNROUTABLE, "error": UNROUTABLE}
    store.store(message("bad", "nowhere"))
    dispatcher.dispatch_due()
    transport.outcomes.clear()
    clock.advance(LATER)
    dispatcher.dispatch_due()
    assert transport.bodies("nowhere") == [b"bad"]
    assert transport.bodies("error") == []


def test_a_failing_error_queue_triggers_the_recovery_breaker(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    calls: list[str] = []
    dispatcher = Dispatcher(
        store, transport, settings(on_critical_error=lambda text, error: calls.append(text)), endpoint="sales"
    )
    transport.outcomes |= {"nowhere": UNROUTABLE, "error": UNROUTABLE}
    store.store_many(message(f"{number}", "nowhere") for number in range(31))
    dispatcher.dispatch_due()
    assert dispatcher.health().breakers["recovery"] == "triggered"
    assert len(calls) == 1


def test_an_error_queue_that_was_deleted_is_declared_again(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.dispatcher.error_queue.DECLARE_AGAIN", 0.0)
    transport.outcomes |= {"nowhere": UNROUTABLE, "error": UNROUTABLE}
    store.store(message("bad", "nowhere"))
    dispatcher.dispatch_due()
    dispatcher.dispatch_due()
    assert transport.declarations == ["error", "error"]


def test_an_error_queue_that_cannot_be_declared_stops_nothing(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, caplog: pytest.LogCaptureFixture
) -> None:
    transport.declare_error = TransportUnavailableError("not now")
    store.store(message("a"))
    assert dispatcher.dispatch_due().delivered == 1
    assert [record.getMessage() for record in caplog.records] == ["cannot declare the error queue: not now"]
    assert dispatcher.health().error_queue == "not now"


def test_without_automatic_setup_nothing_is_declared(store: CountingStore, transport: ScriptedTransport) -> None:
    Dispatcher(store, transport, settings(automatic_setup=False), endpoint="sales").dispatch_due()
    assert transport.declarations == []


def test_the_error_queue_tells_what_failed_where_and_when(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.outcomes["nowhere"] = UNROUTABLE
    store.store(
        message(
            "bad",
            "nowhere",
            NOON - LATER,
            headers={"kind": "reminder", "NServiceBus.FailedQ": "an earlier failure"},
            properties={"content_type": "text/plain", "expiration": "5000"},
            failure_count=2,
        )
    )
    dispatcher.dispatch_due()
    (failed,) = transport.arrived("error")
    assert failed.message_id == "bad"
    assert failed.properties == {"content_type": "text/plain"}
    assert failed.headers == {
        "kind": "reminder",
        "NServiceBus.ExceptionInfo.ExceptionType": "delaystore.Unroutable",
        "NServiceBus.ExceptionInfo.Message": "no such queue",
        "NServiceBus.ExceptionInfo.StackTrace": "delaystore forwarding to nowhere, attempt 3: no such queue",
        "NServiceBus.TimeOfFailure": "2027-01-01 12:00:00:000000 Z",
        "NServiceBus.FailedQ": "nowhere",
        "delaystore.due-time": "2026-12-31T12:00:00+00:00",
        "delaystore.failure-count": 3,
        "delaystore.expiration": "5000",
    }


def test_a_long_explanation_is_shortened_where_the_whole_of_it_does_not_fit(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    def too_large(one: DelayedMessage) -> Exception | None:
        size = sum(len(str(value)) for value in one.headers.values())
        return UnsupportedMessageError("too large") if size > 1000 else None

    transport.check_error = too_large
    transport.outcomes["nowhere"] = type(UNROUTABLE)(UNROUTABLE.kind, "x" * 5000)
    store.store(message("bad", "nowhere"))
    dispatcher.dispatch_due()
    (failed,) = transport.arrived("error")
    assert failed.headers["NServiceBus.ExceptionInfo.Message"] == "x" * 256


def test_a_message_that_does_not_fit_the_error_queue_stays(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.check_error = lambda one: UnsupportedMessageError("too large") if one.destination == "error" else None
    transport.outcomes["nowhere"] = UNROUTABLE
    store.store_many([message("bad", "nowhere"), message("good")])
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, delivered=1, failed=1)
    assert waiting(store, "bad").failure_count == 1


def test_a_store_that_fails_at_counting_failures_still_loses_what_was_delivered(
    transport: ScriptedTransport, clock: SettableClock
) -> None:
    class StoreThatMayNotUpdate(CountingStore):
        @contextmanager
        def transaction(self) -> Any:
            with super().transaction() as tx:
                tx.count_failures = self._refuse
                yield tx

        def _refuse(self, failures: Sequence[FailedDelivery]) -> int:
            raise StoreError("no right to update")

    store = StoreThatMayNotUpdate(clock)
    dispatcher = Dispatcher(store, transport, settings(), endpoint="sales")
    transport.outcomes["full"] = REFUSED
    store.store_many([message("good"), message("bad", "full")])
    for _ in range(2):
        with pytest.raises(StoreError, match="no right to update"):
            dispatcher.dispatch_due()
    assert ids(store) == ["bad"]
    assert transport.bodies("billing") == [b"good"]
    assert dispatcher.health().breakers["recovery"] == "armed"


def test_what_has_arrived_is_not_sent_again_while_the_store_cannot_remove_it(
    transport: ScriptedTransport, clock: SettableClock
) -> None:
    class StoreThatMayNotDelete(CountingStore):
        forbidden = True

        @contextmanager
        def transaction(self) -> Any:
            with super().transaction() as tx:
                if self.forbidden:
                    tx.remove_ended = self._refuse  # type: ignore[method-assign]
                yield tx

        def _refuse(self, messages: Sequence[DelayedMessage], *_: object) -> int:
            raise StoreError("no right to delete")

    store = StoreThatMayNotDelete(clock)
    dispatcher = Dispatcher(store, transport, settings(), endpoint="sales")
    store.store_many([message("a"), message("b")])
    for _ in range(3):
        with pytest.raises(StoreError, match="no right to delete"):
            dispatcher.dispatch_due()
    assert store.reschedule("b", NOON - LATER) is ManagementOutcome.DONE
    store.forbidden = False
    store.store(message("c"))
    assert dispatcher.dispatch_due().delivered == 3
    assert ids(store) == []
    assert transport.bodies("billing") == [b"a", b"b", b"b", b"c"]  # b was scheduled anew after it had arrived


def test_what_has_arrived_is_known_before_another_worker_can_fetch_it_again(
    transport: ScriptedTransport, clock: SettableClock
) -> None:
    class StoreThatLosesACommit(CountingStore):
        """Another worker comes at once when the transaction is undone."""

        lose = True

        @contextmanager
        def transaction(self) -> Any:
            if not self.lose:
                with super().transaction() as tx:
                    yield tx
                return
            self.lose = False
            with pytest.raises(StoreUnavailableError), super().transaction() as tx:
                yield tx
                raise StoreUnavailableError("the database is gone")
            workers.dispatch_due()
            raise StoreUnavailableError("the database is gone")

    store = StoreThatLosesACommit(clock)
    workers = Dispatcher(store, transport, settings(), endpoint="sales")
    store.lose = False
    store.store(message("a"))
    store.lose = True
    with pytest.raises(StoreUnavailableError):
        workers.dispatch_due()
    assert workers.dispatch_due().delivered == 1
    assert transport.bodies("billing") == [b"a"]
    assert ids(store) == []


class Undoing:
    """A store that undoes as many transactions as `failures` says, at their ends."""

    failures = 0

    @contextmanager
    def transaction(self) -> Any:
        with super().transaction() as tx:  # type: ignore[misc] - a store's
            yield tx
            if self.failures:
                self.failures -= 1
                raise StoreUnavailableError("the disk is full")


class StoreThatUndoes(Undoing, CountingStore):
    """In memory."""


class StoreWhoseCommitIsLost(CountingStore):
    """The first transaction that removes something commits, and seems to have failed."""

    answers = False

    @contextmanager
    def transaction(self) -> Any:
        before = self.count()
        with super().transaction() as tx:
            yield tx
        if not self.answers and self.count() < before:
            self.answers = True
            raise StoreUnavailableError("the connection is gone")


@pytest.mark.parametrize("is_late", [False, True])
def test_the_same_message_is_sent_again_where_a_removal_seems_to_have_failed(
    transport: ScriptedTransport, clock: SettableClock, is_late: bool
) -> None:
    store = StoreWhoseCommitIsLost(clock)
    dispatcher = DispatchPass(DispatchContext(store, transport, settings()))
    store.store(message("a"))
    if is_late:
        send_without_an_answer(dispatcher, transport, clock)
    with pytest.raises(StoreUnavailableError):
        dispatcher.run()
    assert ids(store) == []
    for asked in range(1, 3):
        dispatcher.run()
        assert store.asked["waiting_ids"] == 1 + is_late, "one question at once, and then every few seconds"
        if asked == 1:
            store.store(message("a"))
    assert transport.batches == [["a"], ["a"]]
    assert ids(store) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_the_same_message_is_sent_again_where_another_dispatcher_has_removed_the_first(
    transport: ScriptedTransport, clock: SettableClock, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_in_flight, "LOOK_UP_EVERY", 0.0)
    store = StoreThatUndoes(clock)
    dispatcher = DispatchPass(DispatchContext(store, transport, settings()))
    store.store(message("a"))
    if is_late:
        send_without_an_answer(dispatcher, transport, clock)
    else:
        store.failures = 1
        with pytest.raises(StoreUnavailableError):
            dispatcher.run()
    with store.transaction() as other:
        claimed = other.fetch_due(clock.now(), 1)
        dispatcher.run()
        assert other.remove_many(claimed) == 1
    dispatcher.run()
    store.store(message("a"))
    dispatcher.run()
    assert transport.batches == [["a"], ["a"]]
    assert ids(store) == []


def test_a_row_without_a_usable_id_is_moved_to_the_error_queue_once(
    transport: ScriptedTransport, tmp_path: Path
) -> None:
    """The store does not find it by the id that stands for its own."""

    class Store(Undoing, SqlDelayedMessageStore):
        pass

    store = Store(f"sqlite:///{tmp_path}/a.db")
    store.initialize("sales", TransactionMode.NONE)
    store.setup_infrastructure()
    store.store(message("a", due_time=LONG_AGO))
    with closing(sqlite3.connect(tmp_path / "a.db")) as file, file:
        file.execute(f"UPDATE {store.table.name} SET message_id = ?", ("x" * 400,))
    dispatcher = DispatchPass(DispatchContext(store, transport, settings()))
    store.failures = 3
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            dispatcher.run()
    dispatcher.run()
    assert len(transport.batches) == 1
    assert store.count() == 0
    store.close()


@pytest.mark.parametrize("is_late", [False, True])
def test_the_same_message_is_sent_again_as_soon_as_its_removal_is_committed(
    transport: ScriptedTransport, clock: SettableClock, is_late: bool
) -> None:
    """It is stored, and another worker comes, before the first one has heard of its commit."""

    class StoreWithASlowCommit(CountingStore):
        slow = False

        @contextmanager
        def transaction(self) -> Any:
            with super().transaction() as tx:
                yield tx
            if self.slow:
                self.slow = False
                self.store(message("a"))
                workers.run()

    store = StoreWithASlowCommit(clock)
    workers = DispatchPass(DispatchContext(store, transport, settings()))
    store.store(message("a"))
    if is_late:
        send_without_an_answer(workers, transport, clock)
    store.slow = True
    workers.run()
    workers.run()
    assert transport.batches == [["a"], ["a"]]
    assert ids(store) == []


def test_a_claim_that_was_lost_is_told_and_ends_the_pass(
    transport: ScriptedTransport, clock: SettableClock, caplog: pytest.LogCaptureFixture
) -> None:
    class StoreOfAnother(CountingStore):
        @contextmanager
        def transaction(self) -> Any:
            with super().transaction() as tx:
                tx.remove_ended = lambda *_: 0  # type: ignore[method-assign]
                yield tx

    store = StoreOfAnother(clock)
    store.store(message("a"))
    report = Dispatcher(store, transport, settings()).dispatch_due()
    assert report == DispatchReport(fetched=1, delivered=1, claims_lost=1)
    assert "no longer claimed" in caplog.text


def test_dispatching_what_is_due_says_why_it_cannot(store: CountingStore, transport: ScriptedTransport) -> None:
    dispatcher = Dispatcher(store, transport, settings(dispatch_timeout=0.05), endpoint="sales")
    transport.unavailable_reason = "no connection to the broker"
    store.store(message("a"))
    asked = store.asked.total()
    with pytest.raises(TransportUnavailableError, match="no connection to the broker"):
        dispatcher.dispatch_due()
    assert store.asked.total() == asked


def test_dispatching_what_is_due_passes_on_the_stores_error(dispatcher: Dispatcher, store: CountingStore) -> None:
    store.error = StoreUnavailableError("the database is down")
    with pytest.raises(StoreUnavailableError):
        dispatcher.dispatch_due()


def test_a_store_of_five_methods_is_enough(transport: ScriptedTransport) -> None:
    store = FiveMethodStore()
    transport.outcomes |= {"nowhere": UNROUTABLE, "full": REFUSED}
    past = store.now() - timedelta(seconds=5)
    for number in range(20):
        store.store(message(f"good{number}", due_time=past))
    store.store(message("lost", "nowhere", past))
    store.store(message("bad", "full", past))
    report = Dispatcher(store, transport, settings(), endpoint="sales").dispatch_due()
    assert (report.delivered, report.moved_to_error_queue, report.failed) == (20, 1, 1)
    assert store.next() is not None


def test_exactly_once_is_refused_where_store_and_transport_share_no_transaction(transport: ScriptedTransport) -> None:
    with pytest.raises(UnsupportedModeError, match="SqlQueueTransport"):
        Dispatcher(
            FiveMethodStore(), transport, settings(transaction_mode=TransactionMode.TRANSACTION_SCOPE), endpoint="s"
        )


def test_no_traceback_is_logged_for_an_outage(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, caplog: pytest.LogCaptureFixture
) -> None:
    transport.outcomes["billing"] = UNCONFIRMED
    store.store(message("a"))
    with caplog.at_level(logging.DEBUG):
        dispatcher.dispatch_due()
    assert caplog.records
    assert all(record.exc_info is None for record in caplog.records)


def test_the_transaction_is_for_the_transport_only_in_exactly_once_mode(
    store: CountingStore, transport: ScriptedTransport
) -> None:
    given: list[object] = []
    original = transport.send

    def send(messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float) -> Any:
        given.append((transaction, timeout))
        return original(messages, transaction, timeout)

    transport.send = send  # type: ignore[method-assign]
    dispatcher = Dispatcher(store, transport, settings(dispatch_timeout=3), endpoint="sales")
    store.store(message("a"))
    dispatcher.dispatch_due()
    assert given == [(None, 3.0)]
