"""RabbitMQ, by AMQP 0-9-1."""

from delaystore.transports.abc import Transport
from delaystore.transports.rabbitmq.transport import RabbitMQTransport

__all__ = ["RabbitMQTransport", "open_rabbitmq"]


def open_rabbitmq(url: str) -> Transport:
    """The transport for an `amqp://` or `amqps://` URL; raises ConfigurationError."""
    return RabbitMQTransport(url)
