"""Fetching: by the clock of the server that has the transaction, and less where the store does not answer in time."""

from datetime import datetime, timedelta

import pytest
from typing_extensions import override

from delaystore.dispatcher import Dispatcher
from delaystore.errors import StoreUnavailableError
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.testing import SettableClock
from tests.dispatching import NOON, CountingStore, ScriptedTransport, message, settings


class AheadStore(CountingStore):
    """Four seconds ahead of its own transactions, as a clock that another server told."""

    @override
    def now(self) -> datetime:
        return super().now() + timedelta(seconds=4)


def test_a_transactions_own_clock_says_what_is_due() -> None:
    clock, transport = SettableClock(NOON), ScriptedTransport()
    store: InMemoryDelayedMessageStore = AheadStore(clock)
    store.store(message("early", due_time=NOON + timedelta(seconds=2)))
    dispatcher = Dispatcher(store, transport, settings())
    dispatcher.dispatch_due()
    assert transport.batches == []
    clock.advance(2)
    dispatcher.dispatch_due()
    assert transport.batches == [["early"]]


def test_after_a_fetch_that_did_not_end_in_time_less_is_asked_for() -> None:
    store, transport = CountingStore(SettableClock(NOON)), ScriptedTransport()
    store.store_many(message(f"{n:02}") for n in range(60))
    dispatcher = Dispatcher(store, transport, settings(max_body_bytes=1000))
    store.error = StoreUnavailableError("no answer within 30 s")
    with pytest.raises(StoreUnavailableError):
        dispatcher.dispatch_due()
    store.error = None
    dispatcher.dispatch_due()
    assert len(transport.batches[0]) == 32
