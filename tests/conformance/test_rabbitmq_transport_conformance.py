from functools import partial

import pytest

from delaystore.testing import TransportConformance
from delaystore.testing.kit.transport import TransportFactory
from delaystore.transports import RabbitMQTransport


class TestRabbitMQ(TransportConformance):
    @pytest.fixture
    def transport_factory(self, rabbitmq_url: str) -> TransportFactory:
        return partial(RabbitMQTransport, rabbitmq_url, queue_type="classic")


class TestRabbitMQQuorumQueues(TransportConformance):
    @pytest.fixture
    def transport_factory(self, rabbitmq_url: str) -> TransportFactory:
        return partial(RabbitMQTransport, rabbitmq_url)
