"""What an observer hears of sending and of the messages of a pass, and what it may add to them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from delaystore.delivery import AsyncDelayedDelivery, DelayedDelivery
from delaystore.dispatcher import Dispatcher, DispatchObserver, DispatchReport, PassReport, Sending, SettledMessages
from delaystore.errors import DuplicateMessageError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.testing import FakeTransaction, SettableClock
from tests.dispatching import REFUSED, UNROUTABLE, CountingStore, ScriptedTransport, message, settings


class Stamping(Sending):
    def __init__(self, ended: list[BaseException | None]) -> None:
        self._ended = ended

    def stamped(self, message: DelayedMessage) -> DelayedMessage:
        return replace(message, headers={**message.headers, "stamp": "yes"})

    def ended(self, error: BaseException | None) -> None:
        self._ended.append(error)


class Follower(DispatchObserver):
    """Stamps each message; keeps how calls have ended, and what was settled."""

    def __init__(self) -> None:
        self.ended: list[BaseException | None] = []
        self.settled: list[tuple[PassReport, SettledMessages]] = []

    def send_begins(self, message: DelayedMessage | None) -> Sending:
        return Stamping(self.ended)

    def messages_settled(self, report: PassReport, messages: SettledMessages) -> None:
        self.settled.append((report, messages))


class Broken(DispatchObserver):
    """Raises wherever it is asked."""

    def send_begins(self, message: DelayedMessage | None) -> Sending:
        raise RuntimeError("no tracer")

    def messages_settled(self, report: PassReport, messages: SettledMessages) -> None:
        raise RuntimeError("no tracer")


class BrokenSending(Sending):
    def stamped(self, message: DelayedMessage) -> DelayedMessage:
        raise RuntimeError("no stamp")

    def ended(self, error: BaseException | None) -> None:
        raise RuntimeError("no end")


@pytest.fixture
def follower() -> Follower:
    return Follower()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(SettableClock())


def test_each_sent_message_is_stamped(store: CountingStore, follower: Follower) -> None:
    delivery = DelayedDelivery("sales", store, observer=follower)
    delivery.send("billing", b"", delay=1, message_id="a", headers={"own": 1})
    delivery.send("billing", b"", delay=1, message_id="b", key="k")
    assert delivery.send_many(iter([message("c"), message("d")])) == 2
    stamped = {one.message_id: dict(one.headers) for one in delivery.list().messages}
    assert stamped == {
        "a": {"own": 1, "stamp": "yes"},
        "b": {"stamp": "yes"},
        "c": {"stamp": "yes"},
        "d": {"stamp": "yes"},
    }
    assert follower.ended == [None, None, None]


def test_an_enlisted_send_is_stamped(follower: Follower) -> None:
    store = InMemoryDelayedMessageStore(SettableClock())
    delivery = DelayedDelivery("sales", store, observer=follower)
    transaction = FakeTransaction()
    enlisted = delivery.enlist(transaction)
    enlisted.send("billing", b"", delay=1, message_id="a")
    enlisted.send_many([message("b")])
    transaction.commit()
    assert [dict(one.headers) for one in delivery.list().messages] == [{"stamp": "yes"}] * 2
    assert follower.ended == [None, None]


async def send_awaited(store: InMemoryDelayedMessageStore, follower: Follower) -> None:
    async with AsyncDelayedDelivery("sales", store, observer=follower) as delivery:
        await delivery.send("billing", b"", delay=1)
        await delivery.send_many([message("b")])


def test_an_awaited_send_is_stamped(follower: Follower) -> None:
    import asyncio

    store = InMemoryDelayedMessageStore(SettableClock())
    asyncio.run(send_awaited(store, follower))
    assert [dict(one.headers) for one in store.list().messages] == [{"stamp": "yes"}] * 2


def test_the_observer_hears_why_a_call_failed(store: CountingStore, follower: Follower) -> None:
    delivery = DelayedDelivery("sales", store, observer=follower)
    delivery.send("billing", b"", delay=1, message_id="a")
    with pytest.raises(DuplicateMessageError):
        delivery.send("billing", b"", delay=1, message_id="a")

    def failing() -> Iterator[DelayedMessage]:
        yield message("b")
        raise KeyError("the caller's own")

    with pytest.raises(KeyError):
        delivery.send_many(failing())
    assert [type(error) for error in follower.ended] == [type(None), DuplicateMessageError, KeyError]


def test_a_stamp_for_which_there_is_no_room_is_left_out(store: CountingStore, follower: Follower) -> None:
    transport = ScriptedTransport()
    transport.check_error = lambda one: UnsupportedMessageError("full") if "stamp" in one.headers else None
    delivery = DelayedDelivery("sales", store, transport, observer=follower)
    delivery.send("billing", b"", delay=1)
    delivery.send_many([message("b")])
    assert [dict(one.headers) for one in delivery.list().messages] == [{}, {}]
    transport.check_error = lambda one: UnsupportedMessageError("never")
    with pytest.raises(UnsupportedMessageError):
        delivery.send("billing", b"", delay=1)


@pytest.mark.parametrize("sending", [None, BrokenSending()])
def test_what_it_raises_harms_no_send(
    store: CountingStore, sending: Sending | None, caplog: pytest.LogCaptureFixture
) -> None:
    class Raising(Broken):
        def send_begins(self, message: DelayedMessage | None) -> Sending:
            return super().send_begins(message) if sending is None else sending

    transport = ScriptedTransport()
    delivery = DelayedDelivery("sales", store, transport, observer=Raising())
    for _ in range(2):
        delivery.send("billing", b"body", delay=0)
    assert Dispatcher(store, transport, observer=Raising()).dispatch_due().delivered == 2
    assert {record.getMessage() for record in caplog.records} == {
        "the observer raised an error on a Sending; dispatching continues",
        "the observer raised an error on a SettledMessages; dispatching continues",
    }
    assert transport.bodies("billing") == [b"body"] * 2


def test_it_hears_of_each_message_of_a_pass(store: CountingStore, follower: Follower) -> None:
    transport = ScriptedTransport()
    transport.outcomes |= {"full": REFUSED, "nowhere": UNROUTABLE}
    store.store_many([message("a"), message("b", "full"), message("c", "nowhere")])
    Dispatcher(store, transport, settings(), endpoint="sales", observer=follower).dispatch_due()
    ((report, settled),) = follower.settled
    ids = {outcome: [one.message_id for one in messages] for outcome, messages in settled.by_outcome.items()}
    assert {outcome: found for outcome, found in ids.items() if found} == {
        "fetched": ["a", "b", "c"],
        "delivered": ["a"],
        "failed": ["b"],
        "moved_to_error_queue": ["c"],
    }
    assert ids.keys() == DispatchReport().counts().keys() - {"claims_lost"}
    assert settled.reasons["c"] == "no such queue"
    assert report.counts.fetched == 3


def test_nobody_pays_for_what_is_not_overridden(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*anything: object) -> None:
        pytest.fail("nobody asked for this")

    monkeypatch.setattr("delaystore.dispatcher._batch._settled", unwanted)
    monkeypatch.setattr("delaystore.delivery._sending.MessageFactory._followed", unwanted)
    monkeypatch.setattr(DispatchObserver, "send_begins", unwanted)
    delivery = DelayedDelivery("sales", store, ScriptedTransport(), observer=DispatchObserver())
    delivery.send("billing", b"", delay=0)
    delivery.send_many([message("b")])
    assert Dispatcher(store, ScriptedTransport(), observer=DispatchObserver()).dispatch_due().delivered == 2
