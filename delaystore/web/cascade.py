"""The cascade of delay queues that the page shows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delaystore.cascades import CascadeStatus

_SAMPLE = 0
"""Undeliverable messages that are read: none, so that looking changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """A cascade on a RabbitMQ broker. `broker`: amqp[s]://...; `management`: the URL of its management API.

    `name`: as of `delaystore delays --cascade`. Without `management` the page shows what AMQP tells.
    """

    broker: str
    management: str | None = None
    name: str = "nservicebus-v2"

    def __repr__(self) -> str:
        return f"<Cascade {self.name}>"  # the URLs hold passwords

    def status(self) -> "CascadeStatus":
        """How it is doing now; changes nothing. Raises TransportError, ConfigurationError."""
        from delaystore.cascades import BrokerClient, read_status
        from delaystore.transports.rabbitmq.topology import topology_named

        with BrokerClient(self.broker, self.management) as client:
            return read_status(client, topology_named(self.name), sample=_SAMPLE, watch=0)
