"""RabbitMQ, by AMQP 0-9-1.

`_transport` is the transport; `connector`, `nodes` and `owner` keep its connections, `publisher` and `channels` publish
with pipelined confirms, `consuming` consumes, `queues` and `_open_queue` inspect queues, `native` and `topology` have
the native delays. pika's private members are touched in `pika_internals` alone.
May be changed freely: everything but the names in `__all__`. May import: the ground, and the contract of `transports`.
"""

from typing import TYPE_CHECKING

from delaystore.registry import lazily

if TYPE_CHECKING:
    from delaystore.transports.abc import Transport
    from delaystore.transports.rabbitmq._transport import RabbitMQTransport

__all__ = ["RabbitMQTransport", "open_rabbitmq"]
__getattr__, __dir__ = lazily(__name__, {"RabbitMQTransport": "delaystore.transports.rabbitmq._transport"})


def open_rabbitmq(url: str) -> "Transport":
    """Open the transport to a RabbitMQ broker; the entry point of its schemes.

    Args:
        url: An `amqp://` or `amqps://` URL; its query may have `queue_type` and `delays`, as RabbitMQTransport says.

    Returns:
        The transport. It connects when it is first used.

    Raises:
        ConfigurationError: The URL cannot work.
        MissingDependencyError: pika is not installed.

    """
    transport: Transport = __getattr__("RabbitMQTransport")(url)
    return transport
