"""What the tests of the transport contract have in common."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar
from uuid import uuid4

import pytest

from delaystore.message import DelayedMessage
from delaystore.testing._capabilities import SelectedByCapabilities, TransportCapabilities
from delaystore.testing._kit.messages import exactly
from delaystore.testing._kit.waiting import DEADLINE, eventually
from delaystore.transports.abc import OutcomeKind, ReceivedMessage, Transport

TransportFactory = Callable[[], Transport]
Outage = Callable[[], AbstractContextManager[object]]


def sent(transport: Transport, *batch: DelayedMessage) -> list[OutcomeKind]:
    """Send `batch`; returns the kinds of its outcomes."""
    return [outcome.kind for outcome in transport.send(batch, None, DEADLINE)]


def received(transport: Transport, queue: str, count: int) -> list[ReceivedMessage]:
    """Take `count` messages from `queue`."""
    found: list[ReceivedMessage] = []

    def take() -> bool:
        with transport.receive(queue, count - len(found), timeout=1) as some:
            found.extend(some)
        return len(found) >= count

    eventually(take, f"{count} messages in {queue}")
    return found


def assert_arrived(found: Sequence[ReceivedMessage], expected: Sequence[DelayedMessage], *, scale: bool = True) -> None:
    """Fail unless these are those messages; a transport may set properties that were not given.

    `scale`: whether a Decimal's trailing zeros must arrive.
    """
    assert [message.message_id for message in found] == [message.message_id for message in expected]
    for actual, message in zip(found, expected, strict=True):
        assert actual.body == message.body
        assert exactly(actual.headers, scale=scale) == exactly(message.headers, scale=scale)
        properties = {name: actual.properties.get(name) for name in message.properties}
        assert exactly(properties, scale=scale) == exactly(message.properties, scale=scale)


class TransportTests(SelectedByCapabilities):
    """The fixtures. Authors override `transport_factory`, and `outage` if its flag is set."""

    capabilities: ClassVar[TransportCapabilities] = TransportCapabilities()

    @pytest.fixture
    def transport_factory(self) -> TransportFactory:
        """Each call makes another transport on the same broker."""
        raise NotImplementedError("override the fixture transport_factory")

    @pytest.fixture
    def outage(self) -> Outage:
        """For `outages`: makes blocks in which the server is away; at a block's end it is back."""
        raise NotImplementedError("the flag outages asks for the fixture outage")

    @pytest.fixture
    def open_transport(self, transport_factory: TransportFactory) -> Iterator[TransportFactory]:
        """Opens one more transport, closed after the test."""
        transports: list[Transport] = []

        def open_one() -> Transport:
            transports.append(transport := transport_factory())
            return transport

        yield open_one
        for transport in transports:
            transport.close()

    @pytest.fixture
    def transport(self, open_transport: TransportFactory) -> Transport:
        """The transport under test."""
        return open_transport()

    @pytest.fixture
    def queue(self, transport: Transport) -> str:
        """A declared queue, empty."""
        name = f"conformance-{uuid4()}"
        transport.declare(name)
        return name
