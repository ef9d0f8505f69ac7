from typing import ClassVar

import pytest

from delaystore.testing import RecordingTransport, TransportCapabilities, TransportConformance
from delaystore.testing.kit.transport import TransportFactory
from delaystore.transports.memory import InMemoryTransport


class TestInMemoryTransport(TransportConformance):
    @pytest.fixture
    def transport_factory(self) -> TransportFactory:
        transport = InMemoryTransport()
        return lambda: transport


class TestRecordingTransport(TransportConformance):
    capabilities: ClassVar = TransportCapabilities(unroutable=False, queue_addresses=False)

    @pytest.fixture
    def transport_factory(self) -> TransportFactory:
        transport = RecordingTransport()
        return lambda: transport
