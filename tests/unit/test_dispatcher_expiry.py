"""Messages whose latest delivery has passed: they expire, and go to the error queue or are dropped with an entry."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from delaystore.dispatcher import DispatchObserver, DispatchReport, PassReport, SettledMessages
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.errors import StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.testing import SettableClock
from delaystore.text import EXCEPTION_MESSAGE, EXCEPTION_TYPE, FAILED_QUEUE
from delaystore.transports.abc import Outcome, OutcomeKind
from tests.dispatching import NOON, REFUSED, CountingStore, FiveMethodStore, ScriptedTransport, message, settings

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def limited(
    message_id: str, destination: str = "billing", due_time: datetime = NOON, late: timedelta = MINUTE
) -> DelayedMessage:
    return DelayedMessage(
        message_id=message_id,
        destination=destination,
        due_time=due_time,
        body=message_id.encode(),
        not_after=due_time + late,
    )


def dispatcher_of(store: Any, transport: ScriptedTransport, **changes: Any) -> Dispatcher:
    return Dispatcher(store, transport, settings(**changes), endpoint="sales", name="night shift")


@pytest.mark.parametrize("behind", [timedelta(0), MINUTE])
def test_a_message_in_time_is_delivered(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock, behind: timedelta
) -> None:
    store.store_many([limited("a"), message("b")])
    clock.advance(behind.total_seconds())
    assert dispatcher_of(store, transport).dispatch_due() == DispatchReport(fetched=2, delivered=2)
    assert transport.bodies("billing") == [b"a", b"b"]


def test_an_expired_message_goes_to_the_error_queue_with_the_reason(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.store_many([limited("a"), message("b"), limited("c", late=timedelta(days=1)), limited("d", late=SECOND)])
    clock.advance(3600)
    with caplog.at_level(logging.WARNING):
        report = dispatcher_of(store, transport).dispatch_due()
    assert report == DispatchReport(fetched=4, delivered=2, expired=2)
    assert transport.bodies("billing") == [b"b", b"c"]
    copies = transport.arrived("error")
    assert [copy.headers[EXCEPTION_TYPE] for copy in copies] == ["delaystore.Expired"] * 2
    assert copies[0].headers[EXCEPTION_MESSAGE] == "the latest delivery has passed: it was 2027-01-01 12:01:00Z"
    assert copies[0].headers[FAILED_QUEUE] == "billing"
    assert store.count() == 0
    assert store.changes() == []
    assert [record.getMessage() for record in caplog.records if "moved" in record.getMessage()] == [
        "moved 2 messages to the error queue 'error'; first 'a' to 'billing': the latest delivery has passed"
    ]


def test_expired_messages_are_dropped_with_an_entry_for_each_pass(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.store_many([limited(f"m{number}") for number in range(3)])
    store.store(limited("alone", "shipping", NOON + 2 * MINUTE))
    clock.advance(61)
    dispatcher = dispatcher_of(store, transport, on_expired="drop")
    with caplog.at_level(logging.WARNING):
        assert dispatcher.dispatch_due() == DispatchReport(fetched=3, expired=3)
    clock.advance(3600)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, expired=1)
    assert store.count() == 0
    assert transport.bodies("error") == transport.bodies("billing") == []
    alone, three = store.changes()
    assert (three.action, three.way, three.by, three.count) == ("expire", "dispatcher", "night shift", 3)
    assert three.about == "3 messages past their latest delivery, the first m0"
    assert (alone.message_id, alone.destination, alone.count) == ("alone", "shipping", 1)
    assert (alone.old_due_time, alone.new_due_time) == (NOON + 2 * MINUTE, None)
    assert "3 messages to 'billing' dropped: Expired: the latest delivery has passed; 'm0', ..." in caplog.text


def test_an_undone_pass_drops_nothing(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.store(limited("a"))
    clock.advance(3600)
    dispatcher = dispatcher_of(store, transport, on_expired="drop")

    def fail(*_: object) -> None:
        raise StoreUnavailableError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("delaystore.stores.memory._transaction.InMemoryTransaction.note_changes", fail)
        with pytest.raises(StoreUnavailableError):
            dispatcher.dispatch_due()
    assert (store.count(), store.changes()) == (1, [])
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, expired=1)
    assert (store.count(), len(store.changes())) == (0, 1)


def test_a_store_without_an_audit_trail_drops_nothing(transport: ScriptedTransport) -> None:
    store = FiveMethodStore()
    store.store(limited("a", due_time=NOON.replace(year=2020)))
    dispatcher = dispatcher_of(store, transport, on_expired="drop")
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, expired=1)
    assert transport.bodies("error") == [b"a"]


def test_a_retry_after_the_latest_delivery_expires(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    transport.outcomes["billing"] = REFUSED
    store.store(limited("a", late=SECOND))
    dispatcher = dispatcher_of(store, transport, retry_span=3600)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, failed=1)
    transport.outcomes.clear()
    clock.advance(4000)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, expired=1)
    assert transport.bodies("billing") == []
    assert transport.bodies("error") == [b"a"]


def test_a_pause_does_not_extend_it(store: CountingStore, transport: ScriptedTransport, clock: SettableClock) -> None:
    store.store_many([limited("a", "closed"), message("b", "closed"), limited("c", "closed", late=timedelta(days=1))])
    store.pause("closed", by="me")
    dispatcher = dispatcher_of(store, transport)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=3, parked=3)
    store.store(limited("late", "closed"))
    clock.advance(3600)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, expired=1)  # claimed before it could be parked
    assert store.resume("closed", by="me")
    assert dispatcher_of(store, transport).dispatch_due() == DispatchReport(fetched=3, delivered=2, expired=1)
    assert transport.bodies("closed") == [b"b", b"c"]
    assert transport.bodies("error") == [b"late", b"a"]


def test_a_limit_does_not_extend_it(store: CountingStore, transport: ScriptedTransport, clock: SettableClock) -> None:
    store.limit_rate("slow", 1, by="me")
    store.store_many([limited(name, "slow", late=SECOND) for name in "abc"])
    dispatcher = dispatcher_of(store, transport)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=3, delivered=1, postponed=2)
    clock.advance(10)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, expired=2)


def test_a_message_that_has_arrived_does_not_expire(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was confirmed, and could not be removed; the next pass comes after its latest delivery."""
    store.store(limited("a"))
    dispatcher = dispatcher_of(store, transport)

    def fail(*_: object) -> None:
        raise StoreUnavailableError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("delaystore.stores.memory._transaction.InMemoryTransaction.remove_ended", fail)
        with pytest.raises(StoreUnavailableError):
            dispatcher.dispatch_due()
    clock.advance(3600)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, delivered=1)
    assert (transport.bodies("billing"), transport.bodies("error")) == ([b"a"], [])


def test_an_expired_message_stays_while_the_error_queue_refuses_it(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    transport.outcomes["error"] = REFUSED
    store.store(limited("a"))
    clock.advance(3600)
    dispatcher = dispatcher_of(store, transport)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, failed=1)
    kept = store.get("a")
    assert kept is not None
    assert kept.failures[0].kind == "Expired"
    transport.outcomes.clear()
    clock.advance(7200)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, expired=1)


class Heard(DispatchObserver):
    def __init__(self) -> None:
        self.passes: list[PassReport] = []
        self.settled: list[SettledMessages] = []

    def pass_ended(self, report: PassReport) -> None:
        self.passes.append(report)

    def messages_settled(self, report: PassReport, messages: SettledMessages) -> None:
        self.settled.append(messages)


@pytest.mark.parametrize("on_expired", ["drop", "error-queue"])
def test_observers_health_and_heartbeats_tell_of_it(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock, on_expired: str
) -> None:
    heard = Heard()
    dispatcher = Dispatcher(store, transport, settings(on_expired=on_expired), endpoint="sales", observer=heard)
    store.store_many([limited("a"), message("b")])
    clock.advance(3600)
    dispatcher.dispatch_due()
    done = heard.passes[0]
    assert done.counts == DispatchReport(fetched=2, delivered=1, expired=1)
    assert done.by_destination == {"billing": done.counts}
    settled = heard.settled[0]
    assert [each.message_id for each in settled.by_outcome["expired"]] == ["a"]
    assert settled.by_outcome["moved_to_error_queue"] == []
    assert settled.reasons == {"a": "the latest delivery has passed: it was 2027-01-01 12:01:00Z"}
    assert dispatcher.health().expired == 1
    (activity,) = store.activity(NOON)
    assert (activity.expired, activity.moved_to_error_queue, activity.delivered) == (1, 0, 1)


class Handing(ScriptedTransport):
    """Has a native delay."""

    longest_native_delay = timedelta(days=1)

    def send_delayed(self, messages: Sequence[DelayedMessage], now: datetime, timeout: float) -> Sequence[Outcome]:
        return [Outcome(OutcomeKind.DELIVERED) for _ in messages]


def test_a_message_that_is_handed_over_early_is_in_time(store: CountingStore) -> None:
    store.store(limited("a", due_time=NOON + MINUTE))
    assert dispatcher_of(store, Handing(), handover_horizon=3600).dispatch_due() == DispatchReport(
        fetched=1, delivered=1
    )
