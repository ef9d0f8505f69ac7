"""How due messages reach their destinations."""

from typing import TYPE_CHECKING, Any

from delaystore.transports.abc import Transport
from delaystore.transports.memory import InMemoryTransport
from delaystore.transports.registry import open_transport
from delaystore.transports.sql_queue import SqlQueueTransport

if TYPE_CHECKING:
    from delaystore.transports.rabbitmq import RabbitMQTransport

__all__ = ["InMemoryTransport", "RabbitMQTransport", "SqlQueueTransport", "Transport", "open_transport"]


def __getattr__(name: str) -> Any:
    """Import the RabbitMQ transport when it is asked for: pika is an extra."""
    if name == "RabbitMQTransport":
        from delaystore.transports.rabbitmq import RabbitMQTransport

        return RabbitMQTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
