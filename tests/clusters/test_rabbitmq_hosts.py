"""A transport that is given all nodes of a cluster goes on when one of them fails."""

import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from delaystore.cascades import BrokerClient
from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.errors import TransportError, TransportSetupError
from delaystore.message import DelayedMessage, new_message_id
from delaystore.transports import RabbitMQTransport
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2
from tests.faults.patience import wait_until
from tests.servers import RabbitMQCluster

LONG = 60.0


@pytest.fixture
def transport(
    rabbitmq_cluster: RabbitMQCluster, cluster_vhost: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RabbitMQTransport]:
    """Given all nodes, in their order; it begins with the first."""
    monkeypatch.setattr("random.choice", lambda hosts: hosts[0])
    with closing(RabbitMQTransport(rabbitmq_cluster.url_of_all(cluster_vhost))) as opened:
        yield opened


def send(transport: RabbitMQTransport, queue: str) -> OutcomeKind:
    message = DelayedMessage(message_id=new_message_id(), destination=queue, due_time=datetime.now(UTC), body=b"")
    (outcome,) = transport.send([message], None, LONG)
    return outcome.kind


def connected_to(records: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in records.records]
    return [line.split()[4] for line in lines if line.startswith("connected to RabbitMQ at ")]


def test_it_goes_on_at_another_node_when_its_own_is_killed(
    rabbitmq_cluster: RabbitMQCluster,
    cluster_vhost: str,
    transport: RabbitMQTransport,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "delaystore")
    rabbitmq_cluster.declare_quorum_queue(cluster_vhost, "queue", leader=1)
    first, second, _ = (f"127.0.0.1:{node.port}" for node in rabbitmq_cluster.nodes)
    assert send(transport, "queue") is OutcomeKind.DELIVERED
    transport.declare("queue")  # by a connection of another kind
    rabbitmq_cluster.nodes[0].kill()
    wait_until(lambda: send(transport, "queue") is OutcomeKind.DELIVERED, "messages are confirmed again")
    transport.declare("queue")
    assert connected_to(caplog) == [first, second]
    assert f"the connection to RabbitMQ at {first}" in caplog.text


def test_it_passes_by_a_frozen_node(
    rabbitmq_cluster: RabbitMQCluster,
    cluster_vhost: str,
    transport: RabbitMQTransport,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "delaystore")
    rabbitmq_cluster.declare_quorum_queue(cluster_vhost, "queue", leader=1)
    first, second, _ = (f"127.0.0.1:{node.port}" for node in rabbitmq_cluster.nodes)
    rabbitmq_cluster.nodes[0].pause()
    assert transport.unavailable() == "connecting"
    wait_until(lambda: connected_to(caplog) == [second], "the second node takes the connection")
    assert f"{first} " in caplog.records[0].getMessage()
    assert caplog.records[0].getMessage().endswith("no answer to the connection attempt within 5 s")


def test_a_classic_queue_whose_node_is_down_is_waited_for(
    rabbitmq_cluster: RabbitMQCluster, cluster_vhost: str, transport: RabbitMQTransport
) -> None:
    rabbitmq_cluster.declare_classic_queue(cluster_vhost, "queue", home=1)
    rabbitmq_cluster.nodes[1].stop()
    gone = "is (down or inaccessible|stopped by supervisor)"  # by RabbitMQ 3, and 4
    advice = f"{gone}; wait for that node, on which alone a classic queue lives, or use a quorum queue$"
    for call in (transport.declare, transport.declare_error_queue):
        with pytest.raises(TransportSetupError, match=advice):
            call("queue")
    with pytest.raises(TransportError, match=f"{advice}|541 INTERNAL_ERROR$"):  # which RabbitMQ 4 breaks off with
        transport.delete("queue")
    with pytest.raises(TransportError, match=advice), transport.receive("queue"):
        pass


def test_the_management_api_may_be_another_nodes(rabbitmq_cluster: RabbitMQCluster, cluster_vhost: str) -> None:
    """A cluster that was given no name has another one on each node."""
    for node in rabbitmq_cluster.nodes:
        with BrokerClient(cluster_vhost, node.management_url) as client:
            client.check_same_cluster()


def test_two_nodes_of_a_cluster_are_one_broker(rabbitmq_cluster: RabbitMQCluster, cluster_vhost: str) -> None:
    """Or messages would be moved from a cascade into itself."""
    first, second, _ = rabbitmq_cluster.urls(cluster_vhost)
    with BrokerCascade(first, NSERVICEBUS_V2, "v2") as one, BrokerCascade(second, NSERVICEBUS_V2, "v2") as other:
        assert one.same_broker(other)
