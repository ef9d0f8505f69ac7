"""Which clock says what is due: the one of the server that has the transaction."""

from datetime import datetime, timedelta

from typing_extensions import override

from delaystore.dispatcher import Dispatcher
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
