"""A queue of Celery's, whose messages are looked at one by one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amqp import Message
from amqp.exceptions import AccessRefused, NotFound

from delaystore.errors import TransportSetupError, TransportUnavailableError
from delaystore.integrations.celery._limits import is_counted, refuse_limit, refuse_quorum, unknown_limit
from delaystore.transports.rabbitmq.delay_headers import COUNTED_BY_QUEUE


class WorkQueue:
    """A queue, each of whose messages is taken once; what is not acknowledged has its place again at the end.

    `unlimited`: messages may be given back as often as one likes.
    """

    def __init__(self, channel: Any, name: str, *, unlimited: bool) -> None:
        self._channel = channel
        self._name = name
        self._unlimited = unlimited
        self._unsettled = False
        self.ready: int = channel.queue_declare(name, passive=True).message_count
        """How many messages it had at the beginning, without those that workers have reserved."""

    def messages(self) -> Iterator[Any]:
        """As many as were ready, as py-amqp has them, with their bodies as bytes.

        Raises ConfigurationError at the first that perhaps must not be given back.
        """
        for _ in range(self.ready):
            message = self._channel.basic_get(self._name)
            self._unsettled = False
            if message is None:
                return
            if not self._unlimited and is_counted(message):
                self._replace(message)
                raise unknown_limit(self._name)
            yield message

    def acknowledge(self, delivery_tag: int) -> None:
        """Take a message out of the queue, for good once that is settled."""
        self._channel.basic_ack(delivery_tag)
        self._unsettled = True

    def settle(self) -> None:
        """Wait until the queue has all acknowledgements.

        None has an answer, and the channel of a quorum queue forgets at its end those that it has not passed on yet:
        all but the first 32 of many. What is got next, in their order, comes after them.
        """
        message = self._channel.basic_get(self._name) if self._unsettled else None
        if message is not None and not self._unlimited and is_counted(message):
            self._replace(message)

    def _replace(self, message: Any) -> None:
        """Put a copy, which was never given back, into the queue, and take the message out then."""
        headers = message.properties["application_headers"]
        kept = {name: headers[name] for name in headers.keys() - COUNTED_BY_QUEUE}
        copy = Message(message.body, **{**message.properties, "application_headers": kept})
        self._channel.basic_publish_confirm(copy, exchange="", routing_key=self._name)
        self.acknowledge(message.delivery_tag)


@contextmanager
def open_queue(app: Any, name: str, management: str | None = None) -> Iterator[WorkQueue]:
    """The queue of that name at the broker of `app`; at the end it has again what was not acknowledged.

    `management`: the URL of the management API, which tells whether the queue has a delivery limit.
    Raises ConfigurationError where it has one, or may have one; TransportSetupError where there is no such queue;
    TransportUnavailableError when the broker fails.
    """
    with app.connection_for_read() as connection:
        transport = connection.transport
        if transport.driver_type != "amqp":
            raise TransportSetupError(f"only queues of RabbitMQ can be drained, and {transport.driver_type} is none")
        try:
            channel = connection.channel()
            channel.auto_decode = False
            try:
                queue = WorkQueue(channel, name, unlimited=management is not None)
                if management is None:
                    refuse_quorum(app, name)
                else:
                    refuse_limit(connection, name, management)
                try:
                    yield queue
                finally:
                    queue.settle()
            finally:
                channel.close()
        except NotFound:
            raise TransportSetupError(f"there is no queue {name!r} at {connection.as_uri()}") from None
        except AccessRefused as error:
            raise TransportSetupError(f"the broker refuses access: {error}") from None
        except (*connection.connection_errors, *connection.channel_errors) as error:
            raise TransportUnavailableError(f"{connection.as_uri()}: {error or type(error).__name__}") from error
