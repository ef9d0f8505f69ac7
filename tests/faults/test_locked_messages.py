"""Overdue messages that another dispatcher has claimed, and a store that others want to write to meanwhile."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import Dispatcher
from delaystore.settings import LONGEST_DISPATCH_TIMEOUT, DelayedDeliverySettings
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport, open_transport
from tests.faults.arrivals import assert_arrived, drain
from tests.faults.backlog import DESTINATION, ENDPOINT, ids, message, messages, open_store
from tests.faults.patience import PATIENCE, wait_until
from tests.faults.scale import scaled
from tests.servers import RabbitMQ

MOST_QUERIES = 40
"""A second, by a dispatcher that finds what is due claimed by another: it looks 20 times, and heartbeats come on
top."""
WATCHED = scaled(2, 30)
"""Seconds."""


@pytest.fixture
def transport(database_url: str) -> Iterator[SqlQueueTransport]:
    transport = SqlQueueTransport(database_url)
    transport.declare(DESTINATION)
    yield transport
    transport.close()


class QueryCount:
    """Counts the statements of a store."""

    def __init__(self, store: SqlDelayedMessageStore) -> None:
        self.count = 0
        event.listen(store.engine, "before_cursor_execute", self._count)

    def _count(self, *_: Any) -> None:
        self.count += 1

    def per_second(self, seconds: float) -> float:
        """The mean rate over the next `seconds`."""
        before, began = self.count, time.monotonic()
        time.sleep(seconds)
        return (self.count - before) / (time.monotonic() - began)


@contextmanager
def held_by_another(url: str) -> Iterator[None]:
    """Another dispatcher has all that is due under way."""
    other = open_store(url)
    with other.transaction() as tx:
        assert tx.fetch_due(other.now(), 100)
        yield
    other.close()


def test_a_dispatcher_does_not_spin_over_what_another_holds(database_url: str, transport: SqlQueueTransport) -> None:
    store = open_store(database_url)
    overdue = messages(3, due_in=-60)
    store.store_many(overdue)
    dispatcher = Dispatcher(store, transport)
    queries = QueryCount(store)
    with held_by_another(database_url):
        dispatcher.start()
        wait_until(lambda: queries.count > 2, "the dispatcher looks")
        rate = queries.per_second(WATCHED)
        print(f"{rate:.1f} queries a second")  # noqa: T201 - a campaign's log tells it
        assert rate <= MOST_QUERIES
        assert store.count() == len(overdue)
        store.store(free := message())
        wait_until(lambda: store.get(free.message_id) is None, "what nobody has claimed is forwarded")
    wait_until(lambda: store.count() == 0, "what the other let go is forwarded", patience=30)
    assert dispatcher.stop(PATIENCE)
    assert_arrived(drain(transport, DESTINATION), ids([*overdue, free]))
    store.close()


@pytest.mark.long
def test_sends_go_on_while_a_batch_waits_for_the_broker(database_url: str, private_rabbitmq: RabbitMQ) -> None:
    transport = open_transport(f"{private_rabbitmq.create_vhost()}?heartbeat={PATIENCE:.0f}")
    transport.declare(DESTINATION)
    settings = DelayedDeliverySettings(dispatch_timeout=LONGEST_DISPATCH_TIMEOUT)
    with DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(database_url), transport, settings) as delivery:
        sent = [delivery.send(DESTINATION, b"warm up", delay=0)]
        wait_until(lambda: delivery.count() == 0, "the dispatcher is at work")
        private_rabbitmq.pause()
        claimed = messages(3, due_in=-60)  # what is due only in a moment looks as if it were claimed
        delivery.send_many(claimed)
        wait_until(lambda: is_any_claimed(delivery, ids(claimed)), "a batch waits for the broker")
        sent += send_promptly(delivery, 50)
        assert is_any_claimed(delivery, ids(claimed))
        private_rabbitmq.resume()
        wait_until(lambda: delivery.count() == 0, "everything flows again")
        delivery.stop()
        assert_arrived(drain(transport, DESTINATION), sent + ids(claimed), duplicates=len(sent) + len(claimed))


def is_any_claimed(delivery: DelayedDelivery, message_ids: Sequence[str]) -> bool:
    """Whether a dispatcher has any of these under way; while this looks, it may miss the others."""
    store = delivery._store
    with store.transaction() as tx:
        free = {each.message_id for each in tx.fetch_due(store.now(), 1000)}
    return any(delivery.get(one) is not None and one not in free for one in message_ids)


def send_promptly(delivery: DelayedDelivery, count: int) -> list[str]:
    """Send so many, long before the batch gives up; their message_ids."""
    sent: list[str] = []

    def send() -> None:
        sent.extend(delivery.send(DESTINATION, b"meanwhile", delay=0) for _ in range(count))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(20)
    assert len(sent) == count, f"only {len(sent)} sends returned while a batch waits for the broker"
    return sent
