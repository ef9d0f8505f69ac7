"""RabbitMQ, by AMQP 0-9-1."""

from typing import TYPE_CHECKING, Any

from delaystore.extras import needed_for

if TYPE_CHECKING:
    from delaystore.transports.abc import Transport
    from delaystore.transports.rabbitmq._transport import RabbitMQTransport

__all__ = ["RabbitMQTransport", "open_rabbitmq"]


def __getattr__(name: str) -> Any:
    """Import the transport at its first use: a topology needs no pika. Raises MissingDependencyError."""
    if name == "RabbitMQTransport":
        return _transport_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_rabbitmq(url: str) -> "Transport":
    """The transport for an `amqp://` or `amqps://` URL; raises ConfigurationError, MissingDependencyError."""
    return _transport_class()(url)


def _transport_class() -> "type[RabbitMQTransport]":
    with needed_for("RabbitMQTransport"):
        from delaystore.transports.rabbitmq._transport import RabbitMQTransport
    return RabbitMQTransport
