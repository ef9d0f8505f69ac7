"""The private cluster does what the tests of clusters, and the chaos suite, rely on."""

import pika
import pytest
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker

from tests.faults.patience import wait_until
from tests.servers import RabbitMQCluster


def publish(url: str, queue: str, body: bytes) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)


def consume_one(url: str, queue: str) -> bytes | None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        body: bytes | None = connection.channel().basic_get(queue, auto_ack=True)[2]
        return body


def test_each_node_serves_the_same_queues(rabbitmq_cluster: RabbitMQCluster, cluster_vhost: str) -> None:
    first, second, third = rabbitmq_cluster.urls(cluster_vhost)
    rabbitmq_cluster.declare_quorum_queue(cluster_vhost, "queue")
    publish(second, "queue", b"body")
    assert consume_one(third, "queue") == b"body"
    assert first == cluster_vhost


def test_one_url_names_all_nodes(rabbitmq_cluster: RabbitMQCluster, cluster_vhost: str) -> None:
    ports = [f"127.0.0.1:{node.port}" for node in rabbitmq_cluster.nodes]
    url = rabbitmq_cluster.url_of_all(cluster_vhost)
    assert url == cluster_vhost.replace(ports[0], ",".join(ports))


@pytest.mark.soak
def test_a_quorum_queue_is_led_by_the_node_asked_for_until_that_is_killed(
    rabbitmq_cluster: RabbitMQCluster, cluster_vhost: str
) -> None:
    rabbitmq_cluster.declare_quorum_queue(cluster_vhost, "queue", leader=2)
    publish(cluster_vhost, "queue", b"body")
    assert rabbitmq_cluster.leader_of(cluster_vhost, "queue") == 2
    rabbitmq_cluster.nodes[2].kill()
    with pytest.raises(AMQPConnectionError):
        publish(rabbitmq_cluster.urls(cluster_vhost)[2], "queue", b"body")
    wait_until(lambda: rabbitmq_cluster.leader_of(cluster_vhost, "queue") in (0, 1), "another node leads")
    assert consume_one(cluster_vhost, "queue") == b"body"


def test_a_classic_queue_is_gone_with_its_home_node_until_that_is_back(
    rabbitmq_cluster: RabbitMQCluster, cluster_vhost: str
) -> None:
    rabbitmq_cluster.declare_classic_queue(cluster_vhost, "queue", home=1)
    publish(cluster_vhost, "queue", b"body")
    rabbitmq_cluster.nodes[1].stop()
    with pytest.raises(ChannelClosedByBroker, match=r"down or inaccessible|stopped by supervisor"):
        consume_one(cluster_vhost, "queue")
    rabbitmq_cluster.nodes[1].start()
    assert consume_one(cluster_vhost, "queue") == b"body"


@pytest.mark.soak
def test_a_node_that_is_parted_from_the_others_leads_no_longer_until_the_cluster_is_made_whole(
    rabbitmq_cluster: RabbitMQCluster, cluster_vhost: str
) -> None:
    rabbitmq_cluster.declare_quorum_queue(cluster_vhost, "queue", leader=0)
    publish(cluster_vhost, "queue", b"body")
    rabbitmq_cluster.part(0)
    wait_until(lambda: rabbitmq_cluster.leader_of(cluster_vhost, "queue") in (1, 2), "another node leads")
    wait_until(lambda: not rabbitmq_cluster.knows(1), "the first node takes the second one to be down")
    rabbitmq_cluster.restore()
    assert not rabbitmq_cluster.partitioned()
    wait_until(lambda: rabbitmq_cluster.leader_of(cluster_vhost, "queue") is not None, "some node leads")
    assert consume_one(cluster_vhost, "queue") == b"body"
