"""Destinations that a cluster cannot serve for a while: no retry is used, nothing else waits, and all arrives."""

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher._retries import Deferral
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.transports import RabbitMQTransport
from tests.faults.arrivals import assert_arrived, drain
from tests.faults.patience import wait_until
from tests.servers import RabbitMQCluster

STUCK, WELL, ERROR = "stuck", "well", "error"
MANY = 500
LONG_OUTAGE = 300.0
AFTER_RECOVERY = 120
"""Seconds. It takes less than 65, on a machine that is not noisy."""
Outage = Callable[[], object]


@pytest.fixture(autouse=True)
def impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In short outages messages are deferred for a few seconds only, so that the tests take less."""
    if request.node.get_closest_marker("soak") is None:
        for module in ("_retries", "_settlement"):
            monkeypatch.setattr(f"delaystore.dispatcher.{module}.UNAVAILABLE", Deferral(timedelta(seconds=4), 0.5))


@pytest.fixture
def transport(cluster_vhost: str, rabbitmq_cluster: RabbitMQCluster) -> Iterator[RabbitMQTransport]:
    """At the first node, where the destination WELL and the error queue live."""
    for name in (WELL, ERROR):
        rabbitmq_cluster.declare_classic_queue(cluster_vhost, name)
    transport = RabbitMQTransport(cluster_vhost)
    yield transport
    transport.close()


@pytest.fixture
def delivery(transport: RabbitMQTransport) -> Iterator[DelayedDelivery]:
    # one retry less, and a refusal leads to the error queue at once
    settings = DelayedDeliverySettings(number_of_retries=0)
    with DelayedDelivery("sales", InMemoryDelayedMessageStore(), transport, settings) as delivery:
        yield delivery


def send(delivery: DelayedDelivery, destination: str, count: int) -> list[str]:
    return [delivery.send(destination, b"body", delay=0) for _ in range(count)]


def assert_outage_costs_nothing(
    delivery: DelayedDelivery,
    transport: RabbitMQTransport,
    caplog: pytest.LogCaptureFixture,
    begin: Outage,
    end: Outage,
    seconds: float = 0.0,
) -> None:
    """Fail unless STUCK takes nothing between `begin` and `end`, at least for so long, and all of this holds."""
    caplog.set_level(logging.WARNING, "delaystore")
    before = {name: send(delivery, name, 50) for name in (STUCK, WELL)}
    wait_until(lambda: delivery.count() == 0, "everything flows")
    begin()
    began = time.monotonic()
    stuck = send(delivery, STUCK, MANY)
    well = send(delivery, WELL, MANY)
    wait_until(lambda: delivery.count() == MANY, "the others flow, though they came later")
    while time.monotonic() - began < seconds:
        well += send(delivery, WELL, 10)
        wait_until(lambda: delivery.count() == MANY, "the others go on flowing")
        time.sleep(0.5)
    assert delivery.health().failed == 0
    end()
    wait_until(lambda: delivery.count() == 0, "everything flows again", patience=AFTER_RECOVERY)
    assert delivery.stop()
    # what was on its way when the outage began may have arrived, unheard, and is sent again
    assert_arrived(drain(transport, STUCK), [*before[STUCK], *stuck], duplicates=MANY)
    assert_arrived(drain(transport, WELL), [*before[WELL], *well])
    assert not drain(transport, ERROR)
    told = [record.getMessage() for record in caplog.records if repr(STUCK) in record.getMessage()]
    assert ["suspended" in line for line in told] == [True, False]


@pytest.mark.parametrize("seconds", [5.0, pytest.param(LONG_OUTAGE, marks=pytest.mark.soak)])
def test_a_quorum_queue_without_its_majority(
    rabbitmq_cluster: RabbitMQCluster,
    cluster_vhost: str,
    delivery: DelayedDelivery,
    transport: RabbitMQTransport,
    caplog: pytest.LogCaptureFixture,
    seconds: float,
) -> None:
    rabbitmq_cluster.declare_quorum_queue(cluster_vhost, STUCK, leader=1)
    rabbitmq_cluster.sync_queues()

    def lose_the_majority() -> None:
        for node in rabbitmq_cluster.nodes[1:]:
            node.kill()

    assert_outage_costs_nothing(delivery, transport, caplog, lose_the_majority, rabbitmq_cluster.start, seconds)


def test_a_classic_queue_whose_node_is_down(
    rabbitmq_cluster: RabbitMQCluster,
    cluster_vhost: str,
    delivery: DelayedDelivery,
    transport: RabbitMQTransport,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rabbitmq_cluster.declare_classic_queue(cluster_vhost, STUCK, home=2)
    node = rabbitmq_cluster.nodes[2]
    assert_outage_costs_nothing(delivery, transport, caplog, node.stop, node.start)


def test_a_quorum_queue_whose_leader_is_frozen(
    rabbitmq_cluster: RabbitMQCluster,
    cluster_vhost: str,
    delivery: DelayedDelivery,
    transport: RabbitMQTransport,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rabbitmq_cluster.declare_quorum_queue(cluster_vhost, STUCK, leader=2)

    def others_elect() -> None:
        """The node stays frozen."""
        wait_until(lambda: rabbitmq_cluster.leader_of(cluster_vhost, STUCK) in (0, 1), "another node leads")

    assert_outage_costs_nothing(delivery, transport, caplog, rabbitmq_cluster.nodes[2].pause, others_elect)
