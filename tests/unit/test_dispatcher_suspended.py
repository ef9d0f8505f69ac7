"""Unavailable destinations are suspended: they hold up no others, and use no retries."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from delaystore.dispatcher import Dispatcher, DispatchReport, _forwarding
from delaystore.dispatcher._forwarding import LONGEST_GAP, OLDER_MESSAGES_TIMEOUT, DestinationBreaker, GateDecision
from delaystore.message import DelayedMessage
from delaystore.testing import SettableClock
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind, PendingConfirm
from tests.dispatching import (
    NOON,
    REFUSED,
    UNROUTABLE,
    CountingStore,
    ScriptedTransport,
    Seconds,
    message,
    settings,
    waiting,
)

UNAVAILABLE = Outcome(OutcomeKind.UNAVAILABLE, "nacked by the broker")
MINUTE = timedelta(minutes=1)


class Late(PendingConfirm):
    def __init__(self) -> None:
        self.answer: bool | None = None

    @property
    def arrived(self) -> bool | None:
        return self.answer


def silent(late: PendingConfirm) -> Outcome:
    return Outcome(OutcomeKind.UNAVAILABLE, "no answer", late)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    seconds = Seconds()
    monkeypatch.setattr("delaystore.dispatcher._forwarding.time.monotonic", seconds)
    return seconds


@pytest.fixture
def dispatcher(store: CountingStore, transport: ScriptedTransport, seconds: Seconds) -> Dispatcher:
    return Dispatcher(store, transport, settings(number_of_retries=0), endpoint="sales")


@pytest.fixture
def later(clock: SettableClock, seconds: Seconds) -> Callable[[float], None]:
    def pass_by(duration: float) -> None:
        clock.advance(timedelta(seconds=duration))
        seconds.now += duration

    return pass_by


def test_a_destination_that_takes_nothing_is_tried_by_one_message_now_and_then(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, later: Callable[[float], None]
) -> None:
    transport.outcomes["stuck"] = UNAVAILABLE
    store.store_many([*(message(f"bad{n}", "stuck") for n in range(5)), message("good")])
    assert dispatcher.dispatch_due() == DispatchReport(fetched=6, delivered=1, deferred=5)
    transport.batches.clear()
    for _ in range(20):
        later(60)
        store.store(message("good", due_time=store.now()))
        dispatcher.dispatch_due()
    assert [len(batch) for batch in transport.batches] == [1] * 40  # of each pass the good one, and a probe
    assert transport.bodies("error") == []
    assert len(transport.bodies("billing")) == 21


def test_a_deferral_uses_no_retry_and_lasts_less_than_a_minute(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, later: Callable[[float], None]
) -> None:
    transport.outcomes["stuck"] = UNAVAILABLE
    store.store_many(message(f"{n}", "stuck") for n in range(20))
    for _ in range(30):
        dispatcher.dispatch_due()
        assert max(waiting(store, f"{n}").next_attempt for n in range(20)) <= store.now() + MINUTE
        later(60)
    assert transport.bodies("error") == []
    del transport.outcomes["stuck"]
    for _ in range(2):
        dispatcher.dispatch_due()
        later(60)
    assert len(transport.bodies("stuck")) == 20


def test_a_message_deferred_for_long_has_all_its_retries(
    store: CountingStore, transport: ScriptedTransport, later: Callable[[float], None], seconds: Seconds
) -> None:
    dispatcher = Dispatcher(store, transport, settings(number_of_retries=2), endpoint="sales")
    transport.outcomes["stuck"] = UNAVAILABLE
    store.store(message("bad", "stuck"))
    for _ in range(9):
        dispatcher.dispatch_due()
        later(60)
    transport.outcomes["stuck"] = REFUSED
    for _ in range(2):
        assert dispatcher.dispatch_due() == DispatchReport(fetched=1, failed=1)
        later(3600)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, moved_to_error_queue=1)


def test_messages_deferred_together_do_not_come_back_together(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.outcomes["stuck"] = UNAVAILABLE
    store.store_many(message(f"{n}", "stuck", failure_count=9) for n in range(64))
    dispatcher.dispatch_due()
    gaps = [(waiting(store, f"{n}").next_attempt - NOON).total_seconds() for n in range(64)]
    assert max(gaps) - min(gaps) > 10


def test_a_suspended_destination_is_logged_once_and_so_is_its_end(
    dispatcher: Dispatcher,
    store: CountingStore,
    transport: ScriptedTransport,
    later: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport.outcomes["stuck"] = UNAVAILABLE
    store.store_many(message(f"{n}", "stuck") for n in range(3))
    for _ in range(5):
        dispatcher.dispatch_due()
        later(60)
    del transport.outcomes["stuck"]
    dispatcher.dispatch_due()
    assert [record.getMessage() for record in caplog.records] == [
        "the destination 'stuck' is unavailable and suspended, until it is available again: nacked by the broker",
        "the destination 'stuck' is available again, after 300 s",
    ]


def test_a_message_in_flight_is_not_sent_again_and_removed_once_it_has_arrived(
    store: CountingStore, transport: ScriptedTransport, later: Callable[[float], None], seconds: Seconds
) -> None:
    dispatcher = Dispatcher(store, transport, settings(), endpoint="sales")
    late = Late()
    transport.outcomes["slow"] = silent(late)
    store.store(message("a", "slow"))
    for _ in range(5):
        assert dispatcher.dispatch_due() == DispatchReport(fetched=1, deferred=1)
        assert waiting(store, "a").next_attempt >= store.now() + timedelta(seconds=10)  # twice the dispatch timeout
        later(60)
    late.answer = True
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, delivered=1)
    assert len(transport.batches) == 1
    assert store.count() == 0


def test_what_is_gone_is_sent_again(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, later: Callable[[float], None]
) -> None:
    late = Late()
    transport.outcomes["slow"] = silent(late)
    store.store(message("a", "slow"))
    dispatcher.dispatch_due()
    late.answer = False
    del transport.outcomes["slow"]
    later(60)
    assert dispatcher.dispatch_due().delivered == 1
    assert len(transport.batches) == 2


def test_what_was_scheduled_anew_is_another_message(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, later: Callable[[float], None]
) -> None:
    late = Late()
    transport.outcomes["slow"] = silent(late)
    store.store(message("a", "slow"))
    dispatcher.dispatch_due()
    store.reschedule("a", NOON + timedelta(seconds=30))
    late.answer = True
    del transport.outcomes["slow"]
    later(60)
    assert dispatcher.dispatch_due().delivered == 1
    assert len(transport.batches) == 2


def test_a_message_is_sent_again_after_a_younger_one_has_arrived(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, later: Callable[[float], None]
) -> None:
    """Its channel waits for a leader that is gone, while fresh ones are answered."""
    transport.outcomes["moved"] = silent(Late())
    store.store(message("old", "moved"))
    dispatcher.dispatch_due()
    del transport.outcomes["moved"]
    later(2)
    store.store(message("young", "moved", due_time=store.now()))
    assert dispatcher.dispatch_due().delivered == 1
    later(60)
    assert dispatcher.dispatch_due().delivered == 1
    assert transport.bodies("moved") == [b"young", b"old"]


def test_a_message_that_leaves_slowly_is_deferred_and_suspends_nothing(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.outcomes["billing"] = Outcome(OutcomeKind.UNCONFIRMED, "still being sent", Late())
    store.store(message("large"))
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, deferred=1)
    assert dispatcher.health().breakers["dispatch"] == "disarmed"
    del transport.outcomes["billing"]
    store.store(message("small"))
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, delivered=1)


def test_an_outage_leaves_messages_in_flight_as_they_were_and_does_not_send_them_twice(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    late = Late()

    def fall_silent(one: DelayedMessage) -> Outcome:
        transport.unavailable_reason = "the broker does not answer"
        return Outcome(OutcomeKind.UNCONFIRMED, "no answer", late)

    transport.outcomes["billing"] = fall_silent
    store.store(message("a"))
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, unconfirmed=1)
    assert waiting(store, "a") == message("a")
    transport.unavailable_reason, late.answer = None, True
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, delivered=1)
    assert len(transport.batches) == 1


@pytest.mark.parametrize("arrives", [True, False])
def test_a_copy_in_flight_to_the_error_queue_is_waited_for(
    dispatcher: Dispatcher,
    store: CountingStore,
    transport: ScriptedTransport,
    later: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
    arrives: bool,
) -> None:
    late = Late()
    transport.outcomes |= {"nowhere": UNROUTABLE, "error": silent(late)}
    store.store(message("bad", "nowhere"))
    for _ in range(3):
        assert dispatcher.dispatch_due() == DispatchReport(fetched=1, deferred=1)
        later(60)
    late.answer = arrives
    del transport.outcomes["error"]
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, moved_to_error_queue=1)
    assert len(transport.batches) == (2 if arrives else 4)
    assert store.count() == 0
    assert caplog.text.count("moved 1 message to the error queue 'error'; first 'bad' to 'nowhere'") == 1
    assert dispatcher.health().breakers["recovery"] == "disarmed"


def test_an_error_queue_that_takes_nothing_costs_no_retry(
    store: CountingStore, transport: ScriptedTransport, later: Callable[[float], None], seconds: Seconds
) -> None:
    dispatcher = Dispatcher(store, transport, settings(number_of_retries=0), endpoint="sales")
    transport.outcomes |= {"full": REFUSED, "error": UNAVAILABLE}
    store.store(message("bad", "full"))
    for _ in range(5):
        assert dispatcher.dispatch_due() == DispatchReport(fetched=1, deferred=1)
        later(60)
    assert dispatcher.health().breakers["recovery"] == "disarmed"
    del transport.outcomes["error"]
    assert dispatcher.dispatch_due().moved_to_error_queue == 1


def test_a_batch_keeps_its_size_when_destinations_take_nothing(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.outcomes["stuck"] = UNAVAILABLE
    store.store_many(message(f"stuck{n:04}", "stuck", NOON - MINUTE) for n in range(3000))
    store.store_many(message(f"good{n:04}") for n in range(3000))
    assert dispatcher.dispatch_due() == DispatchReport(fetched=6000, delivered=3000, deferred=3000)
    assert max(len(batch) for batch in transport.batches) == 1000
    assert store.asked["transaction"] < 20
    assert sum(one.startswith("stuck") for batch in transport.batches for one in batch) <= 64  # the first batch


def suspend(seconds: Seconds, *destinations: str, late: PendingConfirm | None = None) -> DestinationBreaker:
    suspended = DestinationBreaker("the destination", seconds)
    messages = [message(name, name) for name in destinations]
    suspended.note(messages, [Outcome(OutcomeKind.UNAVAILABLE, "why", late)] * len(messages), seconds.now)
    return suspended


def decisions(suspended: DestinationBreaker, *destinations: str) -> list[GateDecision]:
    return list(suspended.decide([message(f"{n}", name) for n, name in enumerate(destinations)]))


def test_one_probe_each_second_at_first_and_then_ever_fewer() -> None:
    seconds = Seconds()
    suspended = suspend(seconds, "stuck")
    assert decisions(suspended, "stuck", "other", "stuck") == [GateDecision.HOLD, GateDecision.SEND, GateDecision.HOLD]
    probed = []
    for step in range(400):
        seconds.now = 1000 + step / 10
        if GateDecision.PROBE in decisions(suspended, "stuck", "stuck"):
            probed.append(step / 10)
    assert probed[:4] == [1, 2, 4, 8]
    assert {after - before for before, after in pairwise(probed[3:])} == {LONGEST_GAP}


@pytest.mark.parametrize("outcome", [DELIVERED, REFUSED, UNROUTABLE])
def test_an_answer_to_the_probe_takes_the_destination_back(outcome: Outcome) -> None:
    seconds = Seconds()
    suspended = suspend(seconds, "stuck")
    suspended.note([message("a", "stuck")], [outcome], seconds.now)
    assert decisions(suspended, "stuck") == [GateDecision.SEND]


def test_a_late_answer_takes_the_destination_back() -> None:
    late = Late()
    suspended = suspend(Seconds(), "slow", late=late)
    assert decisions(suspended, "slow") == [GateDecision.HOLD]
    late.answer = True
    assert decisions(suspended, "slow") == [GateDecision.SEND]


def test_messages_unconfirmed_in_an_outage_suspend_nothing() -> None:
    suspended = DestinationBreaker("the destination", Seconds())
    suspended.note([message("a")], [Outcome(OutcomeKind.UNCONFIRMED, "no connection")], 0)
    assert decisions(suspended, "billing") == [GateDecision.SEND]


def test_older_messages_have_some_seconds_to_arrive_after_a_younger_one() -> None:
    seconds = Seconds()
    suspended = suspend(seconds, "stuck")
    first_sent = seconds.now
    seconds.now += 10
    suspended.note([message("probe", "stuck")], [DELIVERED], seconds.now)
    assert not suspended.is_presumed_lost("stuck", first_sent)
    seconds.now += OLDER_MESSAGES_TIMEOUT
    assert suspended.is_presumed_lost("stuck", first_sent)
    assert not suspended.is_presumed_lost("stuck", seconds.now)
    assert not suspended.is_presumed_lost("other", first_sent)


def test_a_destination_that_comes_and_goes_is_not_told_of_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    seconds = Seconds()
    suspended = suspend(seconds, "flaky")
    for _ in range(10):
        seconds.now += 1
        suspended.note([message("a", "flaky")], [DELIVERED], seconds.now)
        suspended.note([message("a", "flaky")], [UNAVAILABLE], seconds.now)
    assert len(caplog.records) == 2


def test_not_more_are_suspended_than_memory_holds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_forwarding, "MOST_SUSPENDED", 2)
    seconds = Seconds()
    names = [f"q{n}" for n in range(5)]
    suspended = suspend(seconds, *names)
    assert decisions(suspended, *names) == [
        GateDecision.HOLD,
        GateDecision.HOLD,
        GateDecision.SEND,
        GateDecision.SEND,
        GateDecision.SEND,
    ]
    assert sum("further ones are not suspended" in record.getMessage() for record in caplog.records) == 1
    messages: list[Any] = [message(name, name) for name in names]
    suspended.note(messages, [DELIVERED] * 5, seconds.now)
    assert decisions(suspended, *names) == [GateDecision.SEND] * 5


def test_what_another_dispatcher_has_sent_takes_no_room_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reply queues have names of their own: nothing more may ever come for those of the last outage."""
    monkeypatch.setattr(_forwarding, "MOST_SUSPENDED", 2)
    seconds = Seconds()
    suspended = suspend(seconds, "sent by another", "asked for")
    for _ in range(20):
        seconds.now += 60
        decisions(suspended, "asked for")
    suspended.note([message("new", "new")], [UNAVAILABLE], seconds.now)
    assert decisions(suspended, "sent by another", "asked for", "new") == [
        GateDecision.SEND,
        GateDecision.HOLD,
        GateDecision.HOLD,
    ]


class Delaying(ScriptedTransport):
    """Its native delay is unavailable."""

    tried = 0

    @property
    def longest_native_delay(self) -> timedelta:
        return timedelta(hours=1)

    def send_delayed(self, messages: Sequence[DelayedMessage], now: datetime, timeout: float) -> Sequence[Outcome]:
        self.tried += len(messages)
        return [UNAVAILABLE] * len(messages)


def test_a_native_delay_that_takes_nothing_makes_nothing_late(
    store: CountingStore, later: Callable[[float], None], seconds: Seconds
) -> None:
    transport = Delaying()
    dispatcher = Dispatcher(store, transport, settings(handover_horizon=600), endpoint="sales")
    store.store_many([message("early", due_time=NOON + timedelta(seconds=89.9)), message("due")])
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, delivered=1, deferred=1)
    for _ in range(90):
        later(1)
        dispatcher.dispatch_due()
    assert transport.bodies("billing") == [b"due", b"early"]


def test_a_native_delay_that_takes_nothing_is_tried_every_few_seconds(
    store: CountingStore, later: Callable[[float], None], seconds: Seconds
) -> None:
    transport = Delaying()
    dispatcher = Dispatcher(store, transport, settings(handover_horizon=600), endpoint="sales")
    store.store(message("early", due_time=NOON + timedelta(seconds=400)))
    for _ in range(300):
        dispatcher.dispatch_due()
        later(1)
    assert transport.tried > 40
