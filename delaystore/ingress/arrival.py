"""A message as it came to an ingress queue."""

from typing import NamedTuple

from delaystore.transports.rabbitmq.raw import RawProperties


class Arrival(NamedTuple):
    """A message as it came, not yet acknowledged.

    `queue`: the queue that it was read from. `exchange`, `routing_key`: where it was published to; bytes where they are
    no UTF-8. `properties`: undecoded, headers too. `tag`: by which its channel knows it.
    """

    queue: str
    exchange: str | bytes
    routing_key: str | bytes
    properties: RawProperties
    body: bytes
    redelivered: bool
    tag: int
