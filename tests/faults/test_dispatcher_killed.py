"""A dispatcher's process is killed in the middle of a batch, and another takes over."""

import random
import time
from itertools import cycle, islice
from typing import Any

import pytest

from delaystore.settings import TransactionMode
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport
from delaystore.transports.abc import Transport
from tests.faults.arrivals import assert_arrived, drain
from tests.faults.backlog import DESTINATION, ids, message, messages, open_store
from tests.faults.patience import wait_until
from tests.faults.process import DispatcherProcess
from tests.faults.scale import scaled

KILLS = scaled(2, 20)
BATCH = 200
WORKERS = 2  # a backlog is forwarded by two threads, each with a batch under way
LINGER = 0.05
LEASE = 2.0


def kill_mid_batch(store: str, transport: str, batches: int, **options: Any) -> None:
    """Start a dispatcher, and SIGKILL it at some moment of that batch: before it is sent, meanwhile, or after."""
    with DispatcherProcess(store, transport, linger=LINGER, batch_size=BATCH, **options) as victim:
        for _ in range(batches):
            victim.await_batch()
        time.sleep(random.uniform(0, LINGER))
        victim.kill()


def kill_again_and_again(
    store: SqlDelayedMessageStore, url: str, transport: Transport, target: str, **options: Any
) -> list[str]:
    """Send, kill one dispatcher after the other, let a last one finish; what was sent."""
    transport.declare(DESTINATION)
    sent = messages(KILLS * 2000)
    store.store_many(sent)
    for batches in islice(cycle((4, 1, 3, 2)), KILLS):  # the first has forwarded some
        kill_mid_batch(url, target, batches, **options)
    assert 0 < store.count() < len(sent)
    with DispatcherProcess(url, target, **options) as survivor:
        wait_until(lambda: store.count() == 0, "the store is empty")
        assert survivor.terminate() == 0
    store.close()
    return ids(sent)


def test_a_dispatcher_killed_mid_batch_again_and_again_loses_nothing(
    postgresql_url: str, rabbitmq_url: str, rabbitmq_transport: Transport
) -> None:
    store = open_store(postgresql_url)
    sent = kill_again_and_again(store, postgresql_url, rabbitmq_transport, rabbitmq_url)
    assert_arrived(drain(rabbitmq_transport, DESTINATION), sent, duplicates=KILLS * WORKERS * BATCH)


def test_in_exactly_once_mode_kills_neither_lose_nor_repeat_a_message(database_url: str) -> None:
    mode = TransactionMode.TRANSACTION_SCOPE
    store, transport = open_store(database_url, mode), SqlQueueTransport(database_url)
    sent = kill_again_and_again(store, database_url, transport, database_url, lease=LEASE, transaction_mode=mode)
    assert_arrived(drain(transport, DESTINATION), sent, duplicates=0)
    transport.close()


def test_on_sqlite_what_a_killed_dispatcher_had_claimed_is_forwarded_once_its_lease_ends(sqlite_url: str) -> None:
    store, transport = open_store(sqlite_url), SqlQueueTransport(sqlite_url)
    transport.declare(DESTINATION)
    store.store(message())
    with DispatcherProcess(sqlite_url, sqlite_url, linger=60, lease=LEASE) as victim:
        victim.await_batch()
    with store.transaction() as tx:
        assert not tx.fetch_due(store.now(), 1), "the lease outlives its owner"
    with DispatcherProcess(sqlite_url, sqlite_url, lease=LEASE):
        wait_until(lambda: store.next() is None, "the message is gone")
    arrived = drain(transport, DESTINATION)
    assert sum(arrived.values()) in (1, 2)
    store.close()
    transport.close()


@pytest.mark.long
def test_dispatchers_that_are_told_to_end_finish_their_batch(
    postgresql_url: str, rabbitmq_url: str, rabbitmq_transport: Transport
) -> None:
    store = open_store(postgresql_url)
    rabbitmq_transport.declare(DESTINATION)
    sent = messages(KILLS * 1000)
    store.store_many(sent)
    for _ in range(KILLS):
        before = store.count()
        with DispatcherProcess(postgresql_url, rabbitmq_url, linger=LINGER, batch_size=BATCH) as process:
            process.await_batch()
            assert process.terminate() == 0
        assert 0 < store.count() < before
    with DispatcherProcess(postgresql_url, rabbitmq_url) as process:
        wait_until(lambda: store.count() == 0, "the store is empty")
        assert process.terminate() == 0
    store.close()
    assert_arrived(drain(rabbitmq_transport, DESTINATION), ids(sent), duplicates=0)
