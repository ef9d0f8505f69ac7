"""Pauses and limits within one transaction, exactly once, and beside it, on each database."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url

from delaystore.dispatcher import Dispatcher, DispatchReport
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.records import FURTHEST
from delaystore.testing import SettableClock
from delaystore.transports import InMemoryTransport, SqlQueueTransport
from tests.dispatching import running, wait_until
from tests.integration.sql_stores import message, opened
from tests.servers import PostgreSQL, ShiftedClock

pytestmark = pytest.mark.long_runs("mariadb")

EXACTLY_ONCE = DelayedDeliverySettings(transaction_mode=TransactionMode.TRANSACTION_SCOPE, max_body_bytes=1000)


@pytest.fixture
def transport(database_url: str) -> Iterator[SqlQueueTransport]:
    transport = SqlQueueTransport(database_url)
    for queue in ("billing", "closed", "slow"):
        transport.declare(queue)
    yield transport
    transport.close()


def arrived(transport: SqlQueueTransport, queue: str) -> int:
    with transport.receive(queue, 1000) as messages:
        return len(messages)


@pytest.mark.long_runs
@pytest.mark.parametrize("settings", [EXACTLY_ONCE, DelayedDeliverySettings(max_body_bytes=1000)])
def test_a_pass_parks_postpones_and_forwards_in_one_transaction(
    store: SqlDelayedMessageStore, transport: SqlQueueTransport, settings: DelayedDeliverySettings
) -> None:
    now = store.now()
    store.store_many(message(now, -1, destination=name) for name in ("billing", "closed", "slow") for _ in range(10))
    store.pause("closed", by="test")
    store.limit_rate("slow", 0.01, by="test")
    dispatcher = Dispatcher(store, transport, settings)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=30, delivered=11, parked=10, postponed=9)
    assert [arrived(transport, queue) for queue in ("billing", "closed", "slow")] == [10, 0, 1]
    assert store.count() == 19
    assert store.resume("closed", by="test")
    while store.unpark():
        pass
    dispatcher = Dispatcher(store, transport, settings)
    assert dispatcher.dispatch_due() == DispatchReport(fetched=10, delivered=10)
    assert arrived(transport, "closed") == 10
    assert store.count() == store.count(destination="slow") == 9


def test_a_pool_of_one_connection_will_do(database_url: str, store: SqlDelayedMessageStore) -> None:
    """Whoever asks on another connection would wait for the one that the pass has."""
    engine = create_engine(make_url(database_url), pool_size=1, max_overflow=0, pool_timeout=20)
    narrow = SqlDelayedMessageStore(engine)
    transport = SqlQueueTransport(database_url)
    transport.declare("slow")
    store.limit_rate("slow", 5.0, by="test")
    now = store.now()
    store.store_many(message(now, -1, destination="slow") for _ in range(20))
    dispatcher = Dispatcher(narrow, transport, DelayedDeliverySettings(max_body_bytes=1000), "sales")
    report = dispatcher.dispatch_due()
    assert report.delivered + report.postponed == 20
    assert 5 <= report.delivered == arrived(transport, "slow") < 20
    # The question that got no connection in time has one now; a pool that is disposed of would never give it one.
    wait_until(lambda: not any(each.name == "delaystore-question" for each in threading.enumerate()), "it is answered")
    narrow.close()
    engine.dispose()
    transport.close()


def change_limit(store: SqlDelayedMessageStore, how: str) -> None:
    if how == "pause":
        store.pause("slow", by="test")
    store.limit_rate("slow", {"raise": 10_000.0, "lower": 0.001}.get(how), by="test")
    if how == "pause":
        store.resume("slow", by="test")


@pytest.mark.long_runs("mariadb", "sqlite")
@pytest.mark.parametrize("how", ["lift", "raise", "pause", "lower"])
def test_another_limit_lets_go_at_once_what_the_one_before_had_postponed(
    store: SqlDelayedMessageStore, transport: SqlQueueTransport, how: str
) -> None:
    """For three hours, unless it is changed."""
    store.limit_rate("slow", 0.01, by="test")
    now = store.now()
    store.store_many(message(now, -number, destination="slow") for number in range(100))
    with running(Dispatcher(store, transport, DelayedDeliverySettings(max_body_bytes=1000))):
        wait_until(lambda: all(each.next_attempt > now for each in store.list().messages), "the limit")
        change_limit(store, how)
        if how != "lower":
            wait_until(lambda: store.count() == 0, "what was postponed")
        wait_until(lambda: not any(each.resuming for each in store.destinations()), "the end of it")
    assert store.count() == (99 if how == "lower" else 0)


def test_a_clock_that_steps_back_keeps_nothing_postponed_for_longer_than_a_limit_may(database_url: str) -> None:
    clock = SettableClock(datetime(2031, 1, 1, 12, tzinfo=UTC))
    with opened(database_url, clock=clock) as store:
        store.limit_rate("slow", 1.0, by="test")
        store.store_many(message(clock.now(), -20_000, destination="slow") for _ in range(50))
        dispatcher = Dispatcher(store, InMemoryTransport(auto_declare=True), DelayedDeliverySettings())
        assert dispatcher.dispatch_due().postponed >= 49, "50 if the answer about the limit came late"
        clock.advance(-7200)
        assert [each.resuming for each in store.destinations()] == [True]
        assert dispatcher.dispatch_due().postponed >= 49, "the next one is granted in a second"
        assert max(each.next_attempt for each in store.list().messages) <= clock.now() + FURTHEST
        assert [each.resuming for each in store.destinations()] == [False]


@pytest.mark.long
def test_a_server_whose_clock_steps_back_keeps_nothing_postponed(start_server: Callable[[Any], PostgreSQL]) -> None:
    server = start_server(lambda: PostgreSQL(clock=ShiftedClock()))
    assert server.clock is not None
    with opened(server.create_database()) as store:
        store.limit_rate("slow", 2.0, by="test")
        now = store.now()
        store.store_many(message(now, -20_000, destination="slow") for _ in range(100))
        with running(Dispatcher(store, InMemoryTransport(auto_declare=True), DelayedDeliverySettings())):
            wait_until(lambda: store.count() < 99, "the limit")
            server.clock.set(-7200)
            time.sleep(10.0)  # each connection carries its reading of the clock on for 10 s

            def none_is_far() -> bool:
                return all(each.next_attempt <= store.now() + FURTHEST for each in store.list().messages)

            wait_until(none_is_far, "messages postponed by the clock before it stepped back")
            assert store.count() > 10


def test_a_connection_that_carries_an_earlier_reading_on_leaves_no_message_postponed(
    start_server: Callable[[Any], PostgreSQL],
) -> None:
    """A message postponed to before that reading is due on one clock, and two hours away on the other."""
    server = start_server(lambda: PostgreSQL(clock=ShiftedClock()))
    assert server.clock is not None
    url = server.create_database()
    with opened(url) as store, opened(url) as earlier, opened(url) as later:
        store.limit_rate("slow", 2.0, by="test")
        now = store.now()
        store.store_many(message(now, -20_000, destination="slow") for _ in range(40))
        dispatcher = Dispatcher(store, InMemoryTransport(auto_declare=True), DelayedDeliverySettings())
        earlier.destinations()
        assert dispatcher.dispatch_due().postponed == 38
        server.clock.set(-7200)
        time.sleep(2.0)
        later.allowance("slow", 1)
        while earlier.unpark(ahead=timedelta(0)):
            pass
        assert max(each.next_attempt for each in later.list().messages) <= later.now() + FURTHEST
