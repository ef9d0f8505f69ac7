from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest

from delaystore.testing import Outage, RecordingTransport, TransportCapabilities, TransportConformance, TransportFactory
from delaystore.transports.memory import InMemoryTransport


class TestInMemoryTransport(TransportConformance):
    capabilities: ClassVar = TransportCapabilities(open_queues=True)

    @pytest.fixture
    def transport_factory(self) -> TransportFactory:
        transport = InMemoryTransport()
        return lambda: transport


class TestRecordingTransport(TransportConformance):
    capabilities: ClassVar = TransportCapabilities(
        unroutable=False, queue_addresses=False, outages=True, availability=True
    )

    @pytest.fixture
    def recording(self) -> RecordingTransport:
        return RecordingTransport()

    @pytest.fixture
    def transport_factory(self, recording: RecordingTransport) -> TransportFactory:
        return lambda: recording

    @pytest.fixture
    def outage(self, recording: RecordingTransport) -> Outage:
        @contextmanager
        def pretended() -> Iterator[None]:
            recording.unavailable_reason = "a pretended outage"
            yield
            recording.unavailable_reason = None

        return pretended
