"""A program that publishes by AMQP 1.0, in JavaScript, to an exchange with delaystore behind it."""

import time
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import pytest

from tests.ingress.clients import node
from tests.ingress.clients.pika_client import PikaClient
from tests.ingress.ground import queue_bound
from tests.ingress.service import CLOCK, Service
from tests.integration.ingress_path import version_of
from tests.servers import RabbitMQ, RabbitMQVhosts


@pytest.fixture
def broker(rabbitmq: RabbitMQVhosts) -> Iterator[RabbitMQVhosts]:
    """One that takes AMQP 1.0: RabbitMQ 4 does, 3 with a plugin."""
    if version_of(rabbitmq.url) >= (4, 0):
        yield rabbitmq
    else:
        with RabbitMQ(management=True, plugins=("rabbitmq_amqp1_0",)) as own:
            yield own


@pytest.mark.long
def test_a_publisher_of_amqp_1_delays_by_an_annotation(broker: RabbitMQVhosts, postgresql_url: str) -> None:
    url = broker.create_vhost()
    service = Service(postgresql_url, url, broker.management_url or "", "shop").create("topic")
    queue_bound(url, "invoices", service.out, "order.*")
    parts = urlsplit(url)
    exchanges = "exchanges" if version_of(url) >= (4, 0) else "exchange"
    with service:
        before = time.time()
        node.run(
            "publish_amqp1.js",
            host=parts.hostname,
            port=parts.port,
            username=parts.username,
            password=unquote(parts.password or ""),
            vhost=broker.vhost_name(url),
            address=f"/{exchanges}/shop/order.7",
            messages=[
                {"body": "later", "delay": 1500, "id": "one"},
                {"body": "sooner", "delay": 500, "id": "two"},
            ],
        )
        found = PikaClient().consume(url, "invoices", 2)
    assert [(one.body, one.key, one.properties["message_id"]) for one in found] == [
        ("sooner", "order.7", "two"),
        ("later", "order.7", "one"),
    ]
    assert found[0].at - before >= 0.5 - CLOCK
    assert found[1].at - before >= 1.5 - CLOCK
