"""Reading all level queues of a cascade at once."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

from pika import exceptions

from delaystore.errors import TransportError, TransportUnavailableError
from delaystore.transports.rabbitmq.logs import quiet_pika
from delaystore.transports.rabbitmq.moving.acknowledgements import Acknowledgement, Acknowledgements
from delaystore.transports.rabbitmq.moving.connection import Delivery, open_raw
from delaystore.transports.rabbitmq.moving.messages import WaitingMessage
from delaystore.transports.rabbitmq.moving.places import Place
from delaystore.transports.rabbitmq.reasons import reason_of

_NOT_FOUND: Final = 404


class Reader:
    """Consumes what waits in the level queues, the highest first; messages walk down while one reads.

    What is not acknowledged when the block ends goes back to its queue. Used by one thread.
    `prefetch`: the most unacknowledged messages of each queue. `held`: what has come and is not taken yet,
    with bodies of `held_bytes` bytes.
    """

    def __init__(self, place: Place, prefetch: int) -> None:
        self.held: deque[WaitingMessage] = deque()
        self.held_bytes = 0
        self._place = place
        self._prefetch = prefetch
        self._acknowledgements = Acknowledgements()
        self._connection: Any = None
        self._awake = False
        """Whether the `receive` under way has been told that there is something."""
        self._channel: Any = None

    def __enter__(self) -> Self:
        self._connection = open_raw(self._place.broker)
        try:
            with self._translated("cannot be read"):
                self._consume()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def receive(self, patience: float) -> None:
        """Add what comes to `held`; returns as soon as there is any, or after `patience` seconds, or at `wake`.

        Raises TransportUnavailableError if the connection is lost, TransportError if a queue is deleted.
        """
        with self._translated("cannot be read any more"):
            self._awake = False
            self._connection.process_data_events(time_limit=patience)
            if not self._channel.is_open:
                raise TransportError("the broker closed the channel that messages are read from; run it again")

    def wake(self, _future: "Future[Any] | None" = None) -> None:
        """End a `receive` under way, from any thread."""
        with suppress(exceptions.AMQPError):
            self._connection.add_callback_threadsafe(lambda: None)

    def take(self, most: int, most_bytes: int) -> list[WaitingMessage]:
        """Up to `most` messages of those held, and about `most_bytes` bytes of bodies: one at least."""
        taken: list[WaitingMessage] = []
        size = 0
        while self.held and len(taken) < most and (not taken or size + len(self.held[0].body) <= most_bytes):
            taken.append(self.held.popleft())
            size += len(taken[-1].body)
        self.held_bytes -= size
        return taken

    def acknowledge(self, messages: Iterable[WaitingMessage]) -> None:
        """Take them off the source; raises as `receive`."""
        self._acknowledge(self._acknowledgements.done(message.tag for message in messages))

    def keep_back(self) -> None:
        """Some that were taken stay in the source; raises as `receive`."""
        self._acknowledge(self._acknowledgements.keep_back())

    def finish(self) -> None:
        """Wait until the broker has all acknowledgements; raises as `receive`."""
        with self._translated("did not take the last acknowledgements"):
            self._channel.basic_qos(prefetch_count=1)  # AMQP answers no acknowledgement, but what follows it

    def _consume(self) -> None:
        present = self._present()
        self._connection._impl.on_delivery = self._collect
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=self._prefetch)
        self._channel.add_on_cancel_callback(self._cancelled)
        for level in reversed(present):
            name = self._place.queues[level]
            self._channel.basic_consume(name, self._collect_slowly, consumer_tag=str(level))

    def _present(self) -> list[int]:
        """The levels whose queues exist."""
        found = []
        channel = self._connection.channel()
        for level, name in enumerate(self._place.queues):
            try:
                channel.queue_declare(name, passive=True)
                found.append(level)
            except exceptions.ChannelClosedByBroker as error:
                if error.reply_code != _NOT_FOUND:
                    raise
                channel = self._connection.channel()
        channel.close()
        return found

    def _collect(self, delivery: Delivery) -> None:
        consumer, tag, redelivered, key, properties, body = delivery
        level = int(consumer)
        self.held.append(WaitingMessage(tag, level, self._place.queues[level], key, properties, body, redelivered))
        self.held_bytes += len(body)
        if not self._awake:
            self._awake = True
            self.wake()

    def _collect_slowly(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """For what comes in several frames."""
        tag, redelivered = method.delivery_tag, method.redelivered
        self._collect(Delivery(method.consumer_tag, tag, redelivered, method.routing_key, properties, body))

    def _cancelled(self, _frame: Any) -> None:
        raise TransportError(f"a level queue of {self._place.name} was deleted while it was read; run it again")

    def _acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        with self._translated("did not take acknowledgements"):
            for tag, multiple in acknowledgements:
                self._channel.basic_ack(tag, multiple=multiple)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            with quiet_pika():
                yield
        except exceptions.ChannelClosedByBroker as error:
            raise TransportError(
                f"{self._place.name} on {self._place.broker.label} {what}: {reason_of(error)}"
            ) from None
        except exceptions.AMQPError as error:
            raise TransportUnavailableError(
                f"the connection to RabbitMQ at {self._place.broker.label} was lost: {reason_of(error)}; run it again, "
                "what was not acknowledged is still there"
            ) from None

    def _close(self) -> None:
        with quiet_pika(), suppress(exceptions.AMQPError):
            if self._connection.is_open:
                self._connection.close()
