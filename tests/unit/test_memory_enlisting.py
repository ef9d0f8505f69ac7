"""The in-memory store in the transaction of a double, which code under test takes for its own."""

from collections.abc import Callable

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, MessageBeingStoredError, StoreError
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports import InMemoryTransport
from tests.dispatching import wait_until


class Transaction:
    """Tells of its ends, one after the other."""

    def __init__(self) -> None:
        self._on_commit: list[Callable[[], None]] = []
        self._on_rollback: list[Callable[[], None]] = []

    def on_commit(self, action: Callable[[], None]) -> None:
        self._on_commit.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self._on_rollback.append(action)

    def commit(self) -> None:
        self._end(self._on_commit)

    def rollback(self) -> None:
        self._end(self._on_rollback)

    def _end(self, actions: list[Callable[[], None]]) -> None:
        self._on_commit, self._on_rollback = [], []
        for action in actions:
            action()


@pytest.fixture
def delivery() -> DelayedDelivery:
    return DelayedDelivery("sales", InMemoryDelayedMessageStore())


def test_a_commit_shows_it_all_and_a_rollback_nothing(delivery: DelayedDelivery) -> None:
    transaction = Transaction()
    old, moved = (delivery.send("billing", b"", delay=60) for _ in range(2))

    def work() -> str:
        enlisted = delivery.enlist(transaction)
        sent = enlisted.send("billing", b"new", delay=60)
        again = delivery.enlist(transaction)
        assert again.cancel(enlisted.send("billing", b"", delay=60)) is ManagementOutcome.DONE
        assert again.cancel(old) is ManagementOutcome.DONE
        assert again.cancel(old) is ManagementOutcome.NOT_FOUND
        assert again.reschedule(moved, delay=3600) is ManagementOutcome.DONE
        assert again.reschedule(sent, delay=3600) is ManagementOutcome.DONE
        seen = again.get(sent)
        assert seen is not None
        assert seen.body == b"new"
        assert again.get(old) is None
        assert delivery.get(sent) is None
        assert delivery.count() == 2
        assert delivery.cancel(old) is ManagementOutcome.BEING_DISPATCHED
        with pytest.raises(MessageBeingStoredError):
            delivery.send("billing", b"", delay=60, message_id=sent)
        return sent

    before = delivery.list()
    work()
    transaction.rollback()
    assert delivery.list() == before
    sent = work()
    transaction.commit()
    assert {message.message_id for message in delivery.list().messages} == {sent, moved}
    assert delivery.cancel(sent) is ManagementOutcome.DONE


def test_an_id_cancelled_in_the_transaction_may_be_sent_again_in_it(delivery: DelayedDelivery) -> None:
    transaction = Transaction()
    delivery.send("billing", b"first", delay=60, message_id="one")
    enlisted = delivery.enlist(transaction)
    enlisted.cancel("one")
    enlisted.send("billing", b"second", delay=60, message_id="one")
    assert enlisted.cancel("one") is ManagementOutcome.DONE
    enlisted.send("billing", b"third", delay=60, message_id="one")
    transaction.commit()
    assert [message.body for message in delivery.list().messages] == [b"third"]
    with pytest.raises(StoreError, match="has ended"):
        enlisted.send("billing", b"", delay=60)


def test_the_commit_wakes_the_dispatcher() -> None:
    transaction = Transaction()
    transport = InMemoryTransport(auto_declare=True)
    with DelayedDelivery("sales", InMemoryDelayedMessageStore(), transport) as delivery:
        delivery.enlist(transaction).send("billing", b"", delay=0)
        transaction.commit()
        wait_until(lambda: delivery.count() == 0, "it is forwarded")


def test_what_a_dispatcher_has_is_told_apart(delivery: DelayedDelivery) -> None:
    due = delivery.send("billing", b"", delay=0)
    assert delivery._store.fetch_due(delivery._store.now(), 5)
    enlisted = delivery.enlist(Transaction())
    assert enlisted.cancel(due) is ManagementOutcome.BEING_DISPATCHED
    assert enlisted.reschedule(due, delay=60) is ManagementOutcome.BEING_DISPATCHED


def test_anything_else_is_refused(delivery: DelayedDelivery) -> None:
    with pytest.raises(ConfigurationError, match="only in an object with on_commit and on_rollback"):
        delivery.enlist(object())
