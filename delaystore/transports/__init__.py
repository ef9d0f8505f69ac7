"""Transports: how due messages reach their destinations.

`abc` is the contract: one outcome for each message, always. `rabbitmq`, `sql_queue` and `memory` implement it.
May be changed freely: everything but the contract, which other people's transports implement.
May import: the ground, `stores` (SQL queues live in the store's database).
"""

from typing import TYPE_CHECKING

from delaystore.registry import lazily, open_url
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
    """Open the transport for a URL, by the entry points `delaystore.transports`.

    Args:
        url: Such as `amqp://broker`, `sqlite:///queues.db` or `memory://`.

    Returns:
        The transport. It connects when it is first used.

    Raises:
        UnknownSchemeError: No transport is registered for the URL's scheme.
        ConfigurationError: The URL cannot work.
        MissingDependencyError: The transport needs a library that is not installed.

    Example:
        ```python
        transport = open_transport("amqp://user:password@broker/vhost")
        ```

    """
    transport: Transport = open_url("delaystore.transports", "transport", url)
    return transport
