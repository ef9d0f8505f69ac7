"""Reading all level queues of a cascade at once."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Self

from pika import exceptions

from delaystore.cascades.moving._messages import WaitingMessage
from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.errors import TransportError, TransportUnavailableError
from delaystore.transports.rabbitmq.existence import ready_counts
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.raw.connection import Delivery, open_raw


class Acknowledgement(NamedTuple):
    """A delivery tag. `multiple`: all before it are acknowledged too."""

    tag: int
    multiple: bool


class Acknowledgements:
    """Which deliveries of one channel to acknowledge, in as few acknowledgements as possible. Tags count from 1.

    As long as none is kept back, one acknowledgement covers all before the first that is not done. Those behind it are
    acknowledged singly: if they waited for it, a kill would leave more of them in both source and target.
    """

    def __init__(self) -> None:
        self._before = 0
        """All up to this tag are done."""
        self._behind: set[int] = set()
        self._kept_back = False

    def done(self, tags: Iterable[int]) -> list[Acknowledgement]:
        """What to acknowledge now that the copies of these are confirmed."""
        fresh = sorted(tags)
        if not self._kept_back:
            self._behind.update(fresh)
            while self._before + 1 in self._behind:
                self._before += 1
                self._behind.remove(self._before)
        covered = [tag for tag in fresh if tag <= self._before]
        together = [Acknowledgement(covered[-1], multiple=True)] if covered else []
        return together + [Acknowledgement(tag, multiple=False) for tag in fresh[len(covered) :]]

    def keep_back(self) -> None:
        """One delivery never will be done; from now on each is acknowledged by itself."""
        self._kept_back = True
        self._behind.clear()


class Reader:
    """Consumes what waits in the level queues, the highest level first, since messages walk down meanwhile.

    What is not acknowledged when the block ends goes back to its queue. Used by one thread.
    `prefetch`: how many messages of each queue may be unacknowledged. `prefetched`: what has come and is not taken
    yet, with bodies of `prefetched_bytes` bytes.
    """

    def __init__(self, source: BrokerCascade, prefetch: int) -> None:
        self.prefetched: deque[WaitingMessage] = deque()
        self.prefetched_bytes = 0
        self._source = source
        self._prefetch = prefetch
        self._acknowledgements = Acknowledgements()
        self._connection: Any = None
        self._awake = False
        """Whether the `receive` under way has been told that there is something."""
        self._channel: Any = None

    def __enter__(self) -> Self:
        self._connection = open_raw(self._source.broker)
        try:
            with self._translated("cannot be read"):
                self._consume()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def receive(self, patience: float) -> None:
        """Add what comes to `prefetched`; returns as soon as there is any, or after `patience` seconds, or at `wake`.

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
        """Up to `most` messages of those prefetched, and about `most_bytes` bytes of bodies: one at least."""
        taken: list[WaitingMessage] = []
        size = 0
        waiting = self.prefetched
        while waiting and len(taken) < most and (not taken or size + len(waiting[0].body) <= most_bytes):
            taken.append(waiting.popleft())
            size += len(taken[-1].body)
        self.prefetched_bytes -= size
        return taken

    def acknowledge(self, messages: Iterable[WaitingMessage]) -> None:
        """Take `messages` off the source; raises as `receive`."""
        self._acknowledge(self._acknowledgements.done(message.tag for message in messages))

    def keep_back(self) -> None:
        """Some messages that were taken stay in the source."""
        self._acknowledgements.keep_back()

    def finish(self) -> None:
        """Wait until the broker has all acknowledgements; raises as `receive`."""
        with self._translated("did not take the last acknowledgements"):
            self._channel.basic_qos(prefetch_count=1)  # AMQP does not answer acknowledgements; this answer follows them

    def _consume(self) -> None:
        ready = ready_counts(self._source.connections, self._source.queues)
        self._connection._impl.on_delivery = self._collect
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=self._prefetch)
        self._channel.add_on_cancel_callback(self._cancelled)
        for level, name in reversed(list(enumerate(self._source.queues))):
            if ready[level] is not None:
                self._channel.basic_consume(name, self._collect_slowly, consumer_tag=str(level))

    def _collect(self, delivery: Delivery) -> None:
        consumer, tag, redelivered, _, key, properties, body = delivery
        level = int(consumer)
        queue = self._source.queues[level]
        self.prefetched.append(WaitingMessage(tag, level, queue, key, properties, body, redelivered))
        self.prefetched_bytes += len(body)
        if not self._awake:
            self._awake = True
            self.wake()

    def _collect_slowly(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """For what comes in several frames."""
        tag, redelivered = method.delivery_tag, method.redelivered
        self._collect(
            Delivery(method.consumer_tag, tag, redelivered, method.exchange, method.routing_key, properties, body)
        )

    def _cancelled(self, _frame: Any) -> None:
        raise TransportError(f"a level queue of {self._source.name} was deleted while it was read; run it again")

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
                f"{self._source.name} on {self._source.broker.label} {what}: {reason_of(error)}"
            ) from None
        except exceptions.AMQPError as error:
            raise TransportUnavailableError(
                f"the connection to RabbitMQ at {self._source.broker.label} was lost: {reason_of(error)}; run it "
                "again, what was not acknowledged is still there"
            ) from None

    def _close(self) -> None:
        with quiet_pika(), suppress(exceptions.AMQPError):
            if self._connection.is_open:
                self._connection.close()
