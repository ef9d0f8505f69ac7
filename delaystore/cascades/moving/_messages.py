"""A message that is moved, as it waits in the source."""

from dataclasses import dataclass

from delaystore.transports.rabbitmq.raw import RawProperties


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
