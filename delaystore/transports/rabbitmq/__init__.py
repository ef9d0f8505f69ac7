"""RabbitMQ, by AMQP 0-9-1."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delaystore.transports.abc import Transport
    from delaystore.transports.rabbitmq._transport import RabbitMQTransport

__all__ = ["RabbitMQTransport", "open_rabbitmq"]


def __getattr__(name: str) -> Any:
    """Import the transport at its first use: a topology needs no pika."""
    if name == "RabbitMQTransport":
        from delaystore.transports.rabbitmq._transport import RabbitMQTransport

        return RabbitMQTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_rabbitmq(url: str) -> "Transport":
    """The transport for an `amqp://` or `amqps://` URL; raises ConfigurationError."""
    from delaystore.transports.rabbitmq._transport import RabbitMQTransport

    return RabbitMQTransport(url)
