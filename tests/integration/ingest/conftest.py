"""A broker, and the command line that is told of it."""

from collections.abc import Iterator

import pytest

from tests.integration.ingress_brokers import Broker
from tests.servers import RabbitMQVhosts


@pytest.fixture
def broker(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[Broker]:
    """A virtual host with nothing in it."""
    opened = Broker(rabbitmq_url, rabbitmq.management_url or "")
    yield opened
    opened.close()


@pytest.fixture
def environment(broker: Broker) -> dict[str, str]:
    return {"DELAYSTORE_BROKER": broker.url, "DELAYSTORE_MANAGEMENT": broker.management_url}
