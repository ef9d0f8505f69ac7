"""Copies of messages, published as they came."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from delaystore.address import Address
from delaystore.transports.abc import Outcome
from delaystore.transports.rabbitmq.owner import Owner
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.publication import Publishable
from delaystore.transports.rabbitmq.publisher import Sending
from delaystore.transports.rabbitmq.raw.connection import RawConnection
from delaystore.transports.rabbitmq.raw.properties import RawProperties
from delaystore.transports.rabbitmq.topology import Binding, Queue


@dataclass(frozen=True, slots=True)
class Copy:
    """What is published in a message's place; a `Publishable`."""

    address: Address
    properties: RawProperties
    body: bytes
    mandatory: bool = True
    requires: Sequence[Queue | Binding] = ()

    @property
    def message_id(self) -> str | None:
        """The message's own id; None: it has none."""
        return self.properties.message_id

    @property
    def suspect(self) -> bool:
        """Whether it has what the broker checks: a user, an expiration."""
        return not self.properties.fields.keys().isdisjoint(("user_id", "expiration"))

    def content_header(self, channel_number: int) -> bytes:
        """The frame that holds the properties."""
        return self.properties.content_header(channel_number, len(self.body))


class CopyPublisher:
    """Publishes copies with confirms, on a connection of its own. Several threads may share it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._quarantine = threading.Lock()
        self._owner: Owner | None = None

    def publish(self, copies: Sequence[Publishable], timeout: float) -> Sequence[Outcome]:
        """Publish, and return one outcome for each, within about `timeout` seconds."""
        return Sending(copies, timeout, self._running_owner, self._quarantine).run()

    def close(self) -> None:
        """End the connection; may be called twice."""
        with self._lock:
            owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()

    def _running_owner(self) -> Owner:
        with self._lock:
            if self._owner is None or not self._owner.alive:
                self._owner = Owner(self._broker, RawConnection)
            return self._owner
