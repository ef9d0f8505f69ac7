"""A queue of Celery's, whose messages are looked at one by one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amqp.exceptions import AccessRefused, NotFound

from delaystore.errors import TransportSetupError, TransportUnavailableError


class WorkQueue:
    """A queue, each of whose messages is taken once; what is not acknowledged has its place again at the end."""

    def __init__(self, channel: Any, name: str) -> None:
        self._channel = channel
        self._name = name
        self.ready: int = channel.queue_declare(name, passive=True).message_count
        """How many messages it had at the beginning, without those that workers have reserved."""

    def messages(self) -> Iterator[Any]:
        """As many as were ready, as py-amqp has them, with their bodies as bytes."""
        for _ in range(self.ready):
            message = self._channel.basic_get(self._name)
            if message is None:
                return
            yield message

    def acknowledge(self, delivery_tag: int) -> None:
        """Take a message out of the queue, for good once the queue is closed without an error."""
        self._channel.basic_ack(delivery_tag)


@contextmanager
def open_queue(app: Any, name: str) -> Iterator[WorkQueue]:
    """The queue of that name at the broker of `app`; at the end it has again what was not acknowledged.

    Raises TransportSetupError where there is no such queue, TransportUnavailableError when the broker fails.
    """
    with app.connection_for_read() as connection:
        transport = connection.transport
        if transport.driver_type != "amqp":
            raise TransportSetupError(f"only queues of RabbitMQ can be drained, and {transport.driver_type} is none")
        try:
            channel = connection.channel()
            channel.auto_decode = False
            try:
                yield WorkQueue(channel, name)
            finally:
                channel.close()
        except NotFound:
            raise TransportSetupError(f"there is no queue {name!r} at {connection.as_uri()}") from None
        except AccessRefused as error:
            raise TransportSetupError(f"the broker refuses access: {error}") from None
        except (*connection.connection_errors, *connection.channel_errors) as error:
            raise TransportUnavailableError(f"{connection.as_uri()}: {error or type(error).__name__}") from error
