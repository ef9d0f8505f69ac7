"""How due messages reach their destinations."""

from typing import TYPE_CHECKING, Any

from delaystore.transports.abc import Transport
from delaystore.transports.memory import InMemoryTransport
from delaystore.transports.registry import open_transport

if TYPE_CHECKING:
    from delaystore.transports.rabbitmq import RabbitMQTransport
    from delaystore.transports.sql_queue import SqlQueueTransport

__all__ = ["InMemoryTransport", "RabbitMQTransport", "SqlQueueTransport", "Transport", "open_transport"]


def __getattr__(name: str) -> Any:
    """Import these when they are asked for: pika is an extra, and SQLAlchemy takes its time."""
    if name == "RabbitMQTransport":
        from delaystore.transports.rabbitmq import RabbitMQTransport

        return RabbitMQTransport
    if name == "SqlQueueTransport":
        from delaystore.transports.sql_queue import SqlQueueTransport

        return SqlQueueTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
