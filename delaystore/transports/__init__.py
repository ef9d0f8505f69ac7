"""How due messages reach their destinations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from delaystore.registry import open_url
from delaystore.transports.abc import Transport
from delaystore.transports.memory import InMemoryTransport

if TYPE_CHECKING:
    from delaystore.transports.rabbitmq import RabbitMQTransport
    from delaystore.transports.sql_queue import SqlQueueTransport

__all__ = ["InMemoryTransport", "RabbitMQTransport", "SqlQueueTransport", "Transport", "open_transport"]
_HOMES: Final = {
    "RabbitMQTransport": "delaystore.transports.rabbitmq",
    "SqlQueueTransport": "delaystore.transports.sql_queue",
}


def open_transport(url: str) -> Transport:
    """The transport for `url`, from the entry points `delaystore.transports`.

    Raises UnknownSchemeError, ConfigurationError, MissingDependencyError.
    """
    transport: Transport = open_url("delaystore.transports", "transport", url)
    return transport


def __getattr__(name: str) -> Any:
    """Import a transport at its first use: pika is an extra, and SQLAlchemy loads slowly."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
