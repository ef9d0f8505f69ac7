"""What an observer hears of dispatching, and that it harms nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from delaystore.breakers import FailureRateCircuitBreaker
from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import (
    BreakerChange,
    BreakerState,
    Dispatcher,
    DispatchObserver,
    DispatchReport,
    PassReport,
    _batch,
)
from delaystore.dispatcher import _passes as passes_module
from delaystore.errors import StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.testing import SettableClock
from delaystore.transports.abc import Outcome, OutcomeKind
from tests.dispatching import (
    NOON,
    REFUSED,
    UNCONFIRMED,
    UNROUTABLE,
    CountingStore,
    ScriptedTransport,
    message,
    running,
    settings,
    wait_until,
)


class Recorder(DispatchObserver):
    """Keeps what it hears; raises `error` when there is one."""

    def __init__(self) -> None:
        self.reports: list[PassReport] = []
        self.changes: list[tuple[str, str, str]] = []
        self.error: Exception | None = None

    def pass_ended(self, report: PassReport) -> None:
        self.reports.append(report)
        self._raise()

    def breaker_changed(self, change: BreakerChange) -> None:
        self.changes.append((change.name, change.before.value, change.after.value))
        self._raise()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error


class StoreWithABlock(CountingStore):
    """Knows whether a transaction is open."""

    open = False

    @contextmanager
    def transaction(self) -> Iterator[DelayedMessageStore]:
        with super().transaction() as tx:
            self.open = True
            try:
                yield tx
            finally:
                self.open = False


class TransportWithDelays(ScriptedTransport):
    """Delays nothing for `crowded`."""

    @property
    def longest_native_delay(self) -> timedelta:
        return timedelta(days=1)

    def send_delayed(self, messages: Any, now: Any, timeout: float) -> list[Outcome]:
        not_delayable = Outcome(OutcomeKind.NOT_DELAYABLE, "too crowded")
        return [not_delayable if one.destination == "crowded" else Outcome(OutcomeKind.DELIVERED) for one in messages]


@pytest.fixture
def store(clock: SettableClock) -> StoreWithABlock:
    return StoreWithABlock(clock)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def dispatcher(store: CountingStore, transport: ScriptedTransport, recorder: Recorder) -> Dispatcher:
    return Dispatcher(store, transport, settings(), endpoint="sales", observer=recorder)


OUTCOMES: Mapping[str, tuple[dict[str, Any], DispatchReport]] = {
    "delivered": ({}, DispatchReport(fetched=1, delivered=1)),
    "refused": ({"there": REFUSED}, DispatchReport(fetched=1, failed=1)),
    "unroutable": ({"there": UNROUTABLE}, DispatchReport(fetched=1, moved_to_error_queue=1)),
    "not moved": ({"there": UNROUTABLE, "error": REFUSED}, DispatchReport(fetched=1, failed=1)),
    "deferred": ({"there": UNCONFIRMED}, DispatchReport(fetched=1, deferred=1)),
}


@pytest.mark.parametrize("kind", OUTCOMES)
def test_it_hears_what_became_of_the_messages_of_each_destination(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, recorder: Recorder, kind: str
) -> None:
    answers, there = OUTCOMES[kind]
    transport.outcomes |= answers
    store.store_many([message("a"), message("b"), message("c", "there")])
    total = dispatcher.dispatch_due()
    (report, *idle) = recorder.reports
    assert report.by_destination == {"billing": DispatchReport(fetched=2, delivered=2), "there": there}
    assert report.counts == total == DispatchReport(fetched=2, delivered=2) + there
    assert (report.began, report.error) == (NOON, None)
    assert all(one.counts == DispatchReport() and not one.by_destination for one in idle)


def test_it_hears_of_an_outage(
    dispatcher: Dispatcher, store: CountingStore, transport: ScriptedTransport, recorder: Recorder
) -> None:
    transport.outcomes["billing"] = UNCONFIRMED
    store.store_many([message("a"), message("b")])
    dispatcher.dispatch_due()
    assert recorder.reports[0].by_destination == {"billing": DispatchReport(fetched=2, unconfirmed=2)}
    assert recorder.reports[0].lateness == []
    assert recorder.changes == [("dispatch", "disarmed", "armed")]
    transport.outcomes.clear()
    dispatcher.dispatch_due()
    assert recorder.changes[1:] == [("dispatch", "armed", "disarmed")]


def test_it_hears_what_is_handed_over_early_and_what_is_kept(store: CountingStore, recorder: Recorder) -> None:
    horizon = settings(handover_horizon=60)
    dispatcher = Dispatcher(store, TransportWithDelays(), horizon, endpoint="sales", observer=recorder)
    soon = NOON + timedelta(seconds=30)
    store.store_many([message("a"), message("b", due_time=soon), message("c", "crowded", soon)])
    dispatcher.dispatch_due()
    assert recorder.reports[0].by_destination == {
        "billing": DispatchReport(fetched=2, delivered=2),
        "crowded": DispatchReport(fetched=1, not_delayable=1),
    }
    assert recorder.reports[0].lateness == [0.0]  # of the one that was due; the other is early


def test_lateness_is_from_the_due_time_to_the_confirm(
    dispatcher: Dispatcher,
    store: CountingStore,
    transport: ScriptedTransport,
    recorder: Recorder,
    clock: SettableClock,
) -> None:
    def deliver_late(one: DelayedMessage) -> Outcome:
        clock.advance(1)
        return Outcome(OutcomeKind.DELIVERED)

    transport.outcomes |= {"slow": deliver_late, "full": REFUSED}
    store.store_many([message("a", "slow", NOON - timedelta(seconds=9)), message("b"), message("c", "full")])
    dispatcher.dispatch_due()
    assert recorder.reports[0].lateness == [10.0, 1.0]
    assert recorder.reports[0].began == NOON


def test_durations_are_of_the_phases(
    dispatcher: Dispatcher, store: CountingStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(100))
    monkeypatch.setattr("delaystore.dispatcher.observer.time.monotonic", lambda: float(next(ticks)))
    store.store(message("a"))
    dispatcher.dispatch_due()
    monkeypatch.undo()
    durations = recorder.reports[0].durations
    assert (durations.fetch, durations.forward, durations.settle, durations.total) == (1, 1, 1, 3)


def test_it_is_called_outside_of_the_transaction(
    store: StoreWithABlock, transport: ScriptedTransport, recorder: Recorder
) -> None:
    class Asking(Recorder):
        def _raise(self) -> None:
            assert not store.open

    asking = Asking()
    dispatcher = Dispatcher(
        store, transport, settings(maximum_recovery_failures_per_second=0.001), endpoint="sales", observer=asking
    )
    transport.outcomes |= {"nowhere": UNROUTABLE, "error": REFUSED, "billing": UNCONFIRMED}
    store.store_many([message("a"), message("b", "nowhere")])
    dispatcher.dispatch_due()
    assert asking.reports
    assert {name for name, _, _ in asking.changes} == {"recovery"}


def test_a_pass_that_was_undone_did_nothing_and_says_why(
    transport: ScriptedTransport, recorder: Recorder, clock: SettableClock
) -> None:
    class StoreThatLosesACommit(CountingStore):
        lose = False

        @contextmanager
        def transaction(self) -> Iterator[DelayedMessageStore]:
            with super().transaction() as tx:
                yield tx
                if self.lose:
                    self.lose = False
                    raise StoreUnavailableError("the database is gone")

    store = StoreThatLosesACommit(clock)
    dispatcher = Dispatcher(store, transport, settings(), endpoint="sales", observer=recorder)
    store.store(message("a"))
    store.lose = True
    with pytest.raises(StoreUnavailableError):
        dispatcher.dispatch_due()
    (undone,) = recorder.reports
    assert (undone.counts, undone.by_destination, undone.lateness) == (DispatchReport(), {}, ())
    assert isinstance(undone.error, StoreUnavailableError)
    dispatcher.dispatch_due()
    assert recorder.reports[1].by_destination == {"billing": DispatchReport(fetched=1, delivered=1)}
    assert recorder.reports[1].lateness == ()  # it arrived earlier


def test_what_it_raises_is_logged_once_for_each_kind_and_harms_nothing(
    dispatcher: Dispatcher,
    store: CountingStore,
    transport: ScriptedTransport,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder.error = RuntimeError("no metrics server")
    for name in ("a", "b", "c"):
        store.store(message(name))
        assert dispatcher.dispatch_due().delivered == 1
    recorder.error = ValueError("no such label")
    dispatcher.dispatch_due()
    assert transport.bodies("billing") == [b"a", b"b", b"c"]
    assert [record.getMessage() for record in caplog.records] == [
        "the observer raised an error on a PassReport; dispatching continues"
    ] * 2


def test_an_observer_that_raises_does_not_end_the_loop(
    store: CountingStore, transport: ScriptedTransport, recorder: Recorder
) -> None:
    recorder.error = RuntimeError("no metrics server")
    with running(Dispatcher(store, transport, settings(), endpoint="sales", observer=recorder)) as dispatcher:
        store.store(message("a"))
        dispatcher.wake_up()
        wait_until(lambda: store.count() == 0)
        assert dispatcher.health().breakers["fetch"] == "disarmed"


def test_without_an_observer_nothing_is_computed(
    store: CountingStore, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwanted(*anything: object) -> None:
        pytest.fail("nobody asked for this")

    monkeypatch.setattr(_batch, "Stopwatch", unwanted)
    monkeypatch.setattr(_batch, "_by_outcome", unwanted)
    monkeypatch.setattr(passes_module, "observed", unwanted)
    monkeypatch.setattr("delaystore.breakers.BreakerChange", unwanted)
    transport.outcomes["there"] = UNCONFIRMED
    store.store_many([message("a"), message("b", "there")])
    dispatcher = Dispatcher(store, transport, settings(), endpoint="sales")
    assert dispatcher.dispatch_due() == DispatchReport(fetched=2, delivered=1, deferred=1)


def test_it_hears_of_the_stores_breaker_too(recorder: Recorder) -> None:
    class StoreThatIsDown(CountingStore):
        def store(self, message: DelayedMessage) -> None:
            self._note("store")

    store = StoreThatIsDown()
    delivery = DelayedDelivery("sales", store, observer=recorder)
    store.error = StoreUnavailableError("the database is down")
    with pytest.raises(StoreUnavailableError):
        delivery.send("billing", b"", delay=1)
    store.error = None
    delivery.send("billing", b"", delay=1)
    assert recorder.changes == [("store", "disarmed", "armed"), ("store", "armed", "disarmed")]


def test_the_end_of_the_rate_breakers_window_is_told_when_somebody_looks() -> None:
    changes: list[tuple[BreakerState, BreakerState]] = []
    now = 1000.0
    breaker = FailureRateCircuitBreaker(
        "recovery", 0.1, None, lambda: now, on_change=lambda before, after: changes.append((before, after))
    )
    breaker.failure(ConnectionError())
    breaker.failure(ConnectionError(), 3)
    now += 30
    assert breaker.state is BreakerState.DISARMED
    assert changes == [
        (BreakerState.DISARMED, BreakerState.ARMED),
        (BreakerState.ARMED, BreakerState.TRIGGERED),
        (BreakerState.TRIGGERED, BreakerState.DISARMED),
    ]


def test_an_idle_pass_notices_that_the_recovery_breakers_window_has_ended(
    dispatcher: Dispatcher,
    store: CountingStore,
    transport: ScriptedTransport,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport.outcomes |= {"nowhere": UNROUTABLE, "error": REFUSED}
    store.store(message("a", "nowhere"))
    dispatcher.dispatch_due()
    monkeypatch.setattr("delaystore.breakers.RATE_WINDOW", 0.0)
    dispatcher.dispatch_due()
    assert recorder.changes == [("recovery", "disarmed", "armed"), ("recovery", "armed", "disarmed")]
