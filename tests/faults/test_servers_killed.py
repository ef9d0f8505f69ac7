"""PostgreSQL and RabbitMQ are killed and restarted, while an application sends and a dispatcher forwards."""

from collections.abc import Callable, Iterator

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport, Transport, open_transport
from tests.faults.arrivals import assert_arrived, drain
from tests.faults.backlog import DESTINATION, ENDPOINT, ids, messages
from tests.faults.patience import wait_until
from tests.faults.scale import scaled
from tests.faults.sender import Sender
from tests.long import long
from tests.servers import PostgreSQL, RabbitMQ
from tests.servers.server import Server

OUTAGES = scaled(1, 10)
BATCH = 500
WORKERS = 2  # a backlog is forwarded by two threads, each with a batch under way
AT_RISK = WORKERS * BATCH
"""Messages on their way when RabbitMQ dies: they may have arrived, but nobody heard the confirms."""


@pytest.fixture
def delivery(private_postgresql: PostgreSQL, private_rabbitmq: RabbitMQ) -> Iterator[DelayedDelivery]:
    """A delivery between the two servers, its dispatcher running."""
    delivery = DelayedDelivery(
        ENDPOINT,
        SqlDelayedMessageStore(private_postgresql.create_database()),
        open_transport(private_rabbitmq.create_vhost()),
        DelayedDeliverySettings(batch_size=BATCH, max_body_bytes=1024),
    )
    delivery.setup_infrastructure()
    transport_of(delivery).declare(DESTINATION)
    private_rabbitmq.sync_queues()
    with delivery:
        yield delivery


def transport_of(delivery: DelayedDelivery) -> Transport:
    transport = delivery._transport
    assert transport is not None
    return transport


def burst_through(delivery: DelayedDelivery, fault: Callable[[], None], at_risk: int = AT_RISK) -> None:
    """Send and forward a burst, with `fault` in the middle of it, while sends go on.

    `at_risk`: how many messages the fault may duplicate.
    """
    sent: list[str] = []
    doubtful: list[str] = []
    with Sender(delivery) as sender:
        for _ in range(OUTAGES):
            backlog = messages(10_000)
            delivery.send_many(backlog)
            sent += ids(backlog)
            await_delivered(delivery, 2000)
            fault()
            sender.await_more(100)
    wait_until(lambda: delivery.count() == 0, "the store is empty")
    delivery.stop()
    sent += sender.acknowledged
    doubtful += sender.doubtful
    arrived = drain(transport_of(delivery), DESTINATION)
    sent += set(doubtful) & set(arrived)  # stored, though the send raised
    assert_arrived(arrived, sent, duplicates=OUTAGES * at_risk)
    assert not drain(transport_of(delivery), "error")


def await_delivered(delivery: DelayedDelivery, count: int) -> None:
    wanted = delivery.health().delivered + count
    wait_until(lambda: delivery.health().delivered >= wanted, f"{count} more messages are delivered")


def restart(*servers: Server) -> None:
    """Kill them all, then start them."""
    for server in servers:
        server.kill()
    for server in servers:
        server.start()


def test_postgresql_killed_and_restarted(delivery: DelayedDelivery, private_postgresql: PostgreSQL) -> None:
    # the one dispatcher remembers what the broker has confirmed, and removes it when PostgreSQL is back
    burst_through(delivery, lambda: restart(private_postgresql), at_risk=0)


def test_rabbitmq_killed_and_restarted(delivery: DelayedDelivery, private_rabbitmq: RabbitMQ) -> None:
    burst_through(delivery, lambda: restart(private_rabbitmq))


@pytest.mark.long
def test_both_killed_and_restarted(
    delivery: DelayedDelivery, private_postgresql: PostgreSQL, private_rabbitmq: RabbitMQ
) -> None:
    burst_through(delivery, lambda: restart(private_rabbitmq, private_postgresql))


@pytest.mark.parametrize("kind", ["postgresql", long("mariadb")])
def test_in_exactly_once_mode_a_killed_database_neither_loses_nor_repeats_a_message(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(f"private_{kind}")
    url = server.create_database()
    settings = DelayedDeliverySettings(
        batch_size=100, max_body_bytes=1024, transaction_mode=TransactionMode.TRANSACTION_SCOPE
    )
    transport, sent = SqlQueueTransport(url), list[str]()
    transport.declare(DESTINATION)
    with DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(url), transport, settings) as delivery:
        for _ in range(OUTAGES):
            backlog = messages(10_000)
            delivery.send_many(backlog)
            sent += ids(backlog)
            await_delivered(delivery, 1000)
            restart(server)
        wait_until(lambda: delivery.count() == 0, "the store is empty")
        delivery.stop()
        assert_arrived(drain(transport, DESTINATION), sent, duplicates=0)
