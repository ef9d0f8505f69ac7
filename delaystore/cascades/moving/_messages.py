"""A message that is moved: as it waits in the source, and as it is published to the target."""

from collections.abc import Sequence
from dataclasses import dataclass

from delaystore.address import Address
from delaystore.cascades.moving._raw import RawProperties
from delaystore.transports.rabbitmq.topology import Binding, Queue


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message read from a level queue, not yet acknowledged. `routing_key`: bytes where it is no UTF-8."""

    tag: int
    level: int
    queue: str
    routing_key: str | bytes
    properties: RawProperties
    body: bytes
    redelivered: bool


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
