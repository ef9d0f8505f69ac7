"""Limited destinations: what is granted goes, the others are shown again later."""

import random
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typing_extensions import override

from delaystore.dispatcher import Dispatcher, DispatchReport, _pauses_and_limits
from delaystore.errors import StoreError
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.stores.records import Allowance, is_postponed, postponed_until
from delaystore.testing import SettableClock
from delaystore.transports.abc import Outcome, OutcomeKind
from tests.dispatching import NOON, CountingStore, ScriptedTransport, message, running, settings, wait_until

SECOND = timedelta(seconds=1)


def test_what_is_granted_goes_and_the_others_come_when_they_may(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    dispatcher = Dispatcher(store, transport, settings())
    store.store_many([*(message(f"{number:02}", "slow") for number in range(30)), message("fast")])
    store.limit_rate("slow", 10.0, by="me")
    assert dispatcher.dispatch_due() == DispatchReport(fetched=31, delivered=11, postponed=20)
    assert dispatcher.dispatch_due() == DispatchReport()
    clock.advance(1)
    assert dispatcher.dispatch_due().delivered == 10
    clock.advance(1)
    assert dispatcher.dispatch_due().delivered == 10
    assert transport.bodies("slow") == [f"{number:02}".encode() for number in range(30)]
    assert store.count() == 0


def test_a_postponed_message_has_not_failed(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    dispatcher = Dispatcher(store, transport, settings(number_of_retries=0))
    store.store_many([message("a", "slow"), message("b", "slow")])
    store.limit_rate("slow", 0.1, by="me")
    assert dispatcher.dispatch_due().postponed == 1
    kept = store.get("b")
    assert kept is not None
    assert (kept.failure_count, kept.due_time, kept.next_attempt > NOON + 9 * SECOND) == (0, NOON, True)
    assert store.count_failing(10) == 0


def test_where_the_pass_gets_no_answer_beside_it_the_store_is_asked_before_the_next_fetch(
    transport: ScriptedTransport,
    clock: SettableClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As with a pool of one connection, which the pass has."""

    class StoreOfOneConnection(CountingStore):
        one = threading.RLock()

        def transaction(self) -> Any:
            return Held(super().transaction(), self.one)

        def allowance(self, destination: str, wanted: int) -> Allowance:
            with self.one:
                return super().allowance(destination, wanted)

    monkeypatch.setattr(_pauses_and_limits, "ANSWER_TIMEOUT", 0.05)
    store = StoreOfOneConnection(clock)
    store.limit_rate("slow", 10.0, by="me")
    dispatcher = Dispatcher(store, transport, settings())
    store.store_many([*(message(f"{number:02}", "slow") for number in range(15)), message("z")])
    assert dispatcher.dispatch_due().delivered <= 11
    clock.advance(2)
    wait_until(lambda: dispatcher.dispatch_due() is not None and store.count() == 0)
    assert len(transport.bodies("slow")) == 15
    assert [record.levelname for record in caplog.records] == ["WARNING"]


class Held:
    """A transaction that holds the one connection."""

    def __init__(self, inner: Any, connection: Any) -> None:
        self._inner = inner
        self._connection = connection

    def __enter__(self) -> Any:
        self._connection.acquire()
        return self._inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        try:
            return self._inner.__exit__(*error)
        finally:
            self._connection.release()


def test_more_than_was_asked_for_before_the_fetch_is_asked_for_again(
    store: CountingStore, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pauses_and_limits, "ANSWER_TIMEOUT", 0.0)  # nobody answers in no time
    dispatcher = Dispatcher(store, transport, settings())
    store.limit_rate("slow", 10.0, by="me")
    store.store_many(message(f"{number:02}", "slow") for number in range(3))
    original = store.allowance

    def allowance(destination: str, wanted: int) -> Allowance:
        if not store.get("late"):
            store.store(message("late", "slow"))
        return original(destination, wanted)

    monkeypatch.setattr(store, "allowance", allowance)
    report = dispatcher.dispatch_due()
    assert report.delivered + report.postponed >= 4


def test_a_store_that_fails_when_asked_undoes_the_pass(
    store: CountingStore, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allowance(destination: str, wanted: int) -> Allowance:
        raise StoreError("no right to update")

    dispatcher = Dispatcher(store, transport, settings())
    store.limit_rate("slow", 10.0, by="me")
    store.store(message("a", "slow"))
    monkeypatch.setattr(store, "allowance", allowance)
    with pytest.raises(StoreError, match="no right"):
        dispatcher.dispatch_due()
    assert transport.batches == []
    assert store.count() == 1


def test_dispatchers_share_a_limit(transport: ScriptedTransport) -> None:
    """The messages of one second at once, and 50 in each after that: 100 in the first, at most."""
    memory: dict[str, Any] = {}
    stores = [CountingStore(memory=memory) for _ in range(2)]
    others = [ScriptedTransport() for _ in stores]
    stores[0].limit_rate("slow", 50.0, by="me")
    began = time.monotonic()
    stores[0].store_many(message(f"{number:03}", "slow", datetime.now(UTC)) for number in range(150))
    dispatchers = [
        Dispatcher(store, other, settings(poll_interval=0.1)) for store, other in zip(stores, others, strict=True)
    ]
    with running(dispatchers[0]), running(dispatchers[1]):
        wait_until(lambda: stores[0].count() == 0)
    assert time.monotonic() - began >= 1.9
    assert sum(len(other.bodies("slow")) for other in others) == 150


def test_a_limit_that_is_lifted_limits_no_more(
    store: InMemoryDelayedMessageStore, transport: ScriptedTransport
) -> None:
    dispatcher = Dispatcher(store, transport, settings())
    store.limit_rate("slow", 1.0, by="me")
    store.limit_rate("slow", None, by="me")
    store.store_many(message(f"{number:02}", "slow") for number in range(30))
    assert dispatcher.dispatch_due() == DispatchReport(fetched=30, delivered=30)


def test_a_limit_that_is_lifted_while_a_pass_sends_postpones_nothing(
    store: CountingStore,
) -> None:
    class Lifting(ScriptedTransport):
        @override
        def send(self, *given: Any) -> Any:
            store.limit_rate("slow", None, by="me")
            return super().send(*given)

    dispatcher = Dispatcher(store, Lifting(), settings())
    store.limit_rate("slow", 1.0, by="me")
    store.store_many(message(f"{number:02}", "slow") for number in range(30))
    assert dispatcher.dispatch_due().delivered == 30


def test_what_fails_is_shown_again_at_no_time_of_a_limit(
    store: CountingStore, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its time it is told from what a limit has postponed; the clock of this test is at a whole second."""
    monkeypatch.setattr(random, "random", lambda: 0.0)
    transport.outcomes["slow"] = Outcome(OutcomeKind.REFUSED, "full")
    dispatcher = Dispatcher(store, transport, settings(number_of_retries=1, retry_span=10))
    store.store(message("a", "slow"))
    assert dispatcher.dispatch_due().failed == 1
    failed = store.get("a")
    assert failed is not None
    assert failed.next_attempt - NOON == timedelta(seconds=10, microseconds=1)
    assert not is_postponed(failed)
    assert is_postponed(replace(failed, next_attempt=postponed_until(failed.next_attempt)))
