from functools import partial
from typing import ClassVar

import pytest

from delaystore.testing import Outage, TransportCapabilities, TransportConformance, TransportFactory
from delaystore.transports import RabbitMQTransport
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2
from tests.conformance.outages import outage_of
from tests.servers import RabbitMQ


@pytest.mark.long_tests(  # tests/faults/test_servers_killed.py has outages of RabbitMQ
    "test_an_outage_leaves_all_unconfirmed_and_passes",
    "test_a_transport_says_why_it_cannot_send_and_when_it_can_again",
)
class TestRabbitMQ(TransportConformance):
    capabilities: ClassVar = TransportCapabilities(
        native_delays=True, outages=True, availability=True, open_queues=True, decimal_scale=False
    )

    @pytest.fixture
    def transport_factory(self, private_rabbitmq: RabbitMQ) -> TransportFactory:
        url = private_rabbitmq.create_vhost()
        return partial(RabbitMQTransport, url, queue_type="classic", delays=NSERVICEBUS_V2)

    @pytest.fixture
    def outage(self, private_rabbitmq: RabbitMQ) -> Outage:
        return outage_of(private_rabbitmq)


class TestRabbitMQQuorumQueues(TransportConformance):
    capabilities: ClassVar = TransportCapabilities(open_queues=True)

    @pytest.fixture
    def transport_factory(self, rabbitmq_url: str) -> TransportFactory:
        return partial(RabbitMQTransport, rabbitmq_url)
