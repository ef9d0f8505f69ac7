"""RabbitMQ, by AMQP 0-9-1."""

from typing import TYPE_CHECKING

from delaystore.registry import lazily

if TYPE_CHECKING:
    from delaystore.transports.abc import Transport
    from delaystore.transports.rabbitmq._transport import RabbitMQTransport

__all__ = ["RabbitMQTransport", "open_rabbitmq"]
__getattr__, __dir__ = lazily(__name__, {"RabbitMQTransport": "delaystore.transports.rabbitmq._transport"})


def open_rabbitmq(url: str) -> "Transport":
    """The transport for an `amqp://` or `amqps://` URL; raises ConfigurationError, MissingDependencyError."""
    transport: Transport = __getattr__("RabbitMQTransport")(url)
    return transport
