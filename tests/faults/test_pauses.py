"""Pauses and limits with real servers: obeyed by every dispatcher, and nothing is lost or doubled, whoever dies."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport, Transport
from tests.faults.arrivals import assert_arrived, drain
from tests.faults.backlog import DESTINATION, ids, message, messages, open_store
from tests.faults.patience import wait_until
from tests.faults.process import DispatcherProcess, dispatchers
from tests.faults.scale import scaled

CLOSED = "closed"
KILLS = scaled(2, 30)
LEASE = 2.0
OBEYED_WITHIN = 1.0


def parked(store: SqlDelayedMessageStore) -> int:
    return store.count_parked(1_000_000)


@pytest.mark.long
def test_every_dispatcher_obeys_a_pause_within_a_second_and_then_a_resume(
    postgresql_url: str, rabbitmq_url: str, rabbitmq_transport: Transport
) -> None:
    store = open_store(postgresql_url)
    for queue in (DESTINATION, CLOSED):
        rabbitmq_transport.declare(queue)
    before, after, others = messages(2000, CLOSED), messages(2000, CLOSED), messages(2000)
    with dispatchers(3, postgresql_url, rabbitmq_url, batch_size=100) as processes:
        store.store_many(before)
        store.pause(CLOSED, by="test")
        time.sleep(OBEYED_WITHIN)
        sent = drain(rabbitmq_transport, CLOSED)
        for start in range(0, len(after), 100):
            store.store_many(after[start : start + 100])
            store.store_many(others[start : start + 100])
        wait_until(lambda: parked(store) == len(before) + len(after) - len(sent), "all are parked")
        assert_arrived(drain(rabbitmq_transport, DESTINATION), ids(others), duplicates=0)
        assert not drain(rabbitmq_transport, CLOSED), "they came after the pause"
        assert store.resume(CLOSED, by="test")
        wait_until(lambda: store.count() == 0, "the store is empty")
        wait_until(lambda: not store.destinations(), "nothing is resuming any more")
        assert [process.terminate() for process in processes] == [0] * 3
    assert_arrived(sent + drain(rabbitmq_transport, CLOSED), ids(before + after), duplicates=0)
    store.close()


def kill_once(store: SqlDelayedMessageStore, url: str, reached: Callable[[int], bool]) -> None:
    """Start a dispatcher, and kill it once `reached` holds for the number of parked messages."""
    with DispatcherProcess(url, url, lease=LEASE, batch_size=100) as victim:
        wait_until(lambda: reached(parked(store)), "it is at work", pause=0.001)
        time.sleep(random.uniform(0, 0.02))
        victim.kill()


@pytest.mark.long
def test_dispatchers_killed_while_they_park_and_unpark_lose_nothing(database_url: str) -> None:
    store, transport = open_store(database_url), SqlQueueTransport(database_url)
    for queue in (DESTINATION, CLOSED):
        transport.declare(queue)
    sent = messages(scaled(10_000, 200_000), CLOSED)
    store.store_many(sent)
    store.pause(CLOSED, by="test")
    for number in range(KILLS):
        done = number * len(sent) // (2 * KILLS)
        kill_once(store, database_url, done.__lt__)
    with DispatcherProcess(database_url, database_url, lease=LEASE):
        wait_until(lambda: parked(store) == len(sent), "all are parked")
    assert not drain(transport, CLOSED)
    store.resume(CLOSED, by="test")
    for number in range(KILLS):
        left = len(sent) - number * len(sent) // (2 * KILLS)
        kill_once(store, database_url, left.__gt__)
    with DispatcherProcess(database_url, database_url, lease=LEASE):
        wait_until(lambda: store.count() == 0, "the store is empty")
        wait_until(lambda: not store.destinations(), "nothing is resuming any more")
    assert_arrived(drain(transport, CLOSED), ids(sent), duplicates=KILLS * 200)
    store.close()
    transport.close()


@pytest.mark.parametrize("seconds", [scaled(3, 20)])
def test_two_dispatchers_never_exceed_a_limit_together(database_url: str, seconds: int) -> None:
    rate = 100
    store, transport = open_store(database_url), SqlQueueTransport(database_url)
    for queue in (DESTINATION, CLOSED):
        transport.declare(queue)
    store.limit_rate(CLOSED, float(rate), by="test")
    sent, others = messages(rate * (seconds + 1), CLOSED), messages(100)
    with dispatchers(2, database_url, database_url, batch_size=50) as processes:
        began = time.monotonic()
        store.store_many(sent)
        store.store_many(others)
        wait_until(lambda: store.count() == 0, "the store is empty")
        took = time.monotonic() - began
        assert [process.terminate() for process in processes] == [0, 0]
    assert took >= seconds - 0.1, "those of a second at once, and so many in each second after that"
    assert_arrived(drain(transport, CLOSED), ids(sent), duplicates=0)
    assert_arrived(drain(transport, DESTINATION), ids(others), duplicates=0)
    store.close()
    transport.close()


@contextmanager
def single_connection(url: str) -> Iterator[SqlDelayedMessageStore]:
    from sqlalchemy import create_engine

    with ExitStack() as stack:
        engine = create_engine(url, pool_size=1, max_overflow=0, pool_timeout=20)
        stack.callback(engine.dispose)
        store = open_store(url)  # makes the tables
        store.close()
        yield SqlDelayedMessageStore(engine)


@pytest.mark.long
def test_a_pool_of_one_connection_is_enough_for_a_limited_destination(
    postgresql_url: str, rabbitmq_url: str, rabbitmq_transport: Transport
) -> None:
    from delaystore.dispatcher import Dispatcher
    from tests.faults.backlog import ENDPOINT

    rabbitmq_transport.declare(CLOSED)
    with single_connection(postgresql_url) as store:
        dispatcher = Dispatcher(store, rabbitmq_transport, endpoint=ENDPOINT)
        store.limit_rate(CLOSED, 50.0, by="test")
        sent = [message(CLOSED) for _ in range(150)]
        store.store_many(sent)
        dispatcher.start()
        try:
            wait_until(lambda: store.count() == 0, "the store is empty", pause=0.2)
        finally:
            assert dispatcher.stop(60)
        store.close()
    assert_arrived(drain(rabbitmq_transport, CLOSED), ids(sent), duplicates=0)
