"""How due messages reach their destinations."""

from typing import TYPE_CHECKING

from delaystore.extras import lazily
from delaystore.registry import open_url
from delaystore.transports.abc import Transport
from delaystore.transports.memory import InMemoryTransport

if TYPE_CHECKING:
    from delaystore.transports.rabbitmq import RabbitMQTransport
    from delaystore.transports.sql_queue import SqlQueueTransport

__all__ = ["InMemoryTransport", "RabbitMQTransport", "SqlQueueTransport", "Transport", "open_transport"]
__getattr__, __dir__ = lazily(
    __name__,
    {
        "RabbitMQTransport": "delaystore.transports.rabbitmq",
        "SqlQueueTransport": "delaystore.transports.sql_queue",
    },
)


def open_transport(url: str) -> Transport:
    """The transport for `url`, from the entry points `delaystore.transports`.

    Raises UnknownSchemeError, ConfigurationError, MissingDependencyError.
    """
    transport: Transport = open_url("delaystore.transports", "transport", url)
    return transport
