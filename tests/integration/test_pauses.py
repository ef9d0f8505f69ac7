"""Pauses and limits within one transaction, exactly once, and beside it, on each database."""

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, make_url

from delaystore.dispatcher import Dispatcher, DispatchReport
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport
from tests.integration.sql_stores import message

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
    narrow.close()
    engine.dispose()
    transport.close()
