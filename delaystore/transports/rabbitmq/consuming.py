"""Consuming queues on a connection of its own, and acknowledging in as few acknowledgements as can be."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, Self

from pika import exceptions

from delaystore.errors import TransportError, TransportUnavailableError
from delaystore.transports.rabbitmq.blocking import open_connection
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.pika_internals import call_on_delivery, closing_reason
from delaystore.transports.rabbitmq.raw import RawDelivery


class Acknowledgement(NamedTuple):
    """A delivery tag. `multiple`: all before it are acknowledged too."""

    tag: int
    multiple: bool


class Acknowledgements:
    """Which deliveries of one channel to acknowledge. Tags count from 1.

    As long as none is unacknowledged, one acknowledgement covers all before the first that is not done. Those behind it
    are acknowledged singly: if they waited for it, a kill would leave more of them in both places.
    """

    def __init__(self) -> None:
        self._before = 0
        """All up to this tag are done."""
        self._behind: set[int] = set()
        self._unacknowledged = False

    def done(self, tags: Iterable[int]) -> list[Acknowledgement]:
        """Return the acknowledgements to send now that these are done."""
        fresh = sorted(tags)
        # `multiple` covers every earlier tag of the channel, also of messages that are still being handled. So it goes
        # only as far as all are done, and not at all once one message stays unacknowledged.
        if not self._unacknowledged:
            self._behind.update(fresh)
            while self._before + 1 in self._behind:
                self._before += 1
                self._behind.remove(self._before)
        covered = [tag for tag in fresh if tag <= self._before]
        together = [Acknowledgement(covered[-1], multiple=True)] if covered else []
        return together + [Acknowledgement(tag, multiple=False) for tag in fresh[len(covered) :]]

    def acknowledge_singly(self) -> None:
        """One delivery may never be done; from now on each is acknowledged on its own."""
        self._unacknowledged = True
        self._behind.clear()


_HEARTBEAT: Final = 60
"""Seconds. Heartbeats are answered whenever messages are received."""
_LONGEST_UNREAD: Final = 10.0
"""Seconds: a sixth of the connection's heartbeat; the broker lets two heartbeats pass."""


class Consumed(NamedTuple):
    """A message that came. `queue`: the number of its queue, of those given. `at`: when, by time.monotonic."""

    queue: int
    delivery: RawDelivery
    at: float

    @property
    def size(self) -> int:
        """Bytes of its body and of its properties."""
        return self.delivery.size


class Consumer:
    """Consumes queues, in their order, on one channel; messages that are not acknowledged when the block ends go back.

    Used by one thread, except for `wake`. As long as `receive` is not called, nothing more is read from the socket:
    the caller bounds the messages in memory, in bytes too, by calling it only while there is room, and `keep_alive`
    else.

    `name`: the consumed queues, for messages to people. `prefetch`: how many messages of each queue may be
    unacknowledged. `remedy`: what errors end with. `prefetched`: messages that have come and are not taken yet,
    `prefetched_bytes` bytes with properties.
    """

    def __init__(self, broker: Broker, name: str, queues: Sequence[str], prefetch: int, *, remedy: str = "") -> None:
        self.prefetched: deque[Consumed] = deque()
        self.prefetched_bytes = 0
        self._broker = broker
        self._name = name
        self._queues = queues
        self._prefetch = prefetch
        self._remedy = remedy
        self._acknowledgements = Acknowledgements()
        self.acknowledge_singly = self._acknowledgements.acknowledge_singly
        """To be called once a message that was taken may stay in its queue."""
        self._connection: Any = None
        self._channel: Any = None
        self._awake = False
        """Whether the `receive` under way has been woken since there is enough."""
        self._enough = 0
        """Bytes that are."""
        self._read_at = time.monotonic()

    def __enter__(self) -> Self:
        """Raises TransportUnavailableError, TransportError for a queue that is missing or may not be read."""
        self._connection = open_connection(self._broker, heartbeat=_HEARTBEAT)
        try:
            with self._translated("cannot be read"):
                self._consume()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with quiet_pika(), suppress(exceptions.AMQPError):
            if self._connection.is_open:
                self._connection.close()

    def receive(self, timeout: float, enough: int = 0) -> None:
        """Add incoming messages to `prefetched`; returns as soon as they are enough, or after `timeout` seconds, or
        at `wake`.

        `enough`: bytes, and a message at least. Raises TransportUnavailableError if the connection is lost,
        TransportError if a queue is deleted, or the broker closes the channel: as where a message stays unacknowledged
        for longer than its consumer_timeout.
        """
        with self._translated("cannot be read any more"):
            self._awake, self._enough = False, enough
            self._connection.process_data_events(time_limit=timeout)
            self._read_at = time.monotonic()
            if not self._channel.is_open:
                raise closing_reason(self._channel)

    def keep_alive(self) -> None:
        """Instead of `receive` where there is no room: answer heartbeats; raises as `receive`.

        To notice its end, too, it reads the bytes that are there, some 64 KiB, every few seconds.
        """
        if time.monotonic() - self._read_at >= _LONGEST_UNREAD:
            self.receive(0)

    def wake(self, _future: "Future[Any] | None" = None) -> None:
        """End a `receive` under way, from any thread."""
        with suppress(exceptions.AMQPError):
            self._connection.add_callback_threadsafe(lambda: None)

    def take(self, most: int, most_bytes: int) -> list[Consumed]:
        """Up to `most` messages of those prefetched, and about `most_bytes` bytes: one at least."""
        taken: list[Consumed] = []
        size = 0
        waiting = self.prefetched
        while waiting and len(taken) < most:
            after = size + waiting[0].size
            if taken and after > most_bytes:
                break
            taken.append(waiting.popleft())
            size = after
        self.prefetched_bytes -= size
        return taken

    def acknowledge(self, tags: Iterable[int]) -> None:
        """Take messages off their queues; raises as `receive`."""
        with self._translated("did not take acknowledgements"):
            for tag, multiple in self._acknowledgements.done(tags):
                self._channel.basic_ack(tag, multiple=multiple)

    def give_back(self, tags: Iterable[int]) -> None:
        """Have messages, after `acknowledge_singly`, come again from their queues; raises as `receive`."""
        with self._translated("did not take messages back"):
            for tag in tags:
                self._channel.basic_nack(tag, requeue=True)

    def stop(self) -> None:
        """Have no more come: prefetched messages stay there, to go back at the end. Raises as `receive`."""
        with self._translated("cannot be given up"):
            for number in range(len(self._queues)):
                self._channel.basic_cancel(str(number))

    def finish(self) -> None:
        """Wait until the broker has all acknowledgements; raises as `receive`."""
        with self._translated("did not take the last acknowledgements"):
            self._channel.basic_qos(prefetch_count=1)  # AMQP does not answer acknowledgements; this answer follows them

    def _consume(self) -> None:
        call_on_delivery(self._connection, self._collect)
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=self._prefetch)
        self._channel.add_on_cancel_callback(self._cancelled)
        for number, name in enumerate(self._queues):
            self._channel.basic_consume(name, self._collect_slowly, consumer_tag=str(number))

    def _collect(self, delivery: RawDelivery) -> None:
        self.prefetched.append(Consumed(int(delivery.consumer), delivery, time.monotonic()))
        self.prefetched_bytes += delivery.size
        if self.prefetched_bytes >= self._enough and not self._awake:
            self._awake = True
            self.wake()

    def _collect_slowly(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """For messages that come in several frames."""
        where = (method.exchange, method.routing_key)
        self._collect(
            RawDelivery(method.consumer_tag, method.delivery_tag, method.redelivered, *where, properties, body)
        )

    def _cancelled(self, frame: Any) -> None:
        queue = self._queues[int(frame.method.consumer_tag)]
        raise TransportError(
            f"the broker ended the reading of the queue {queue!r}: it was deleted, or its node went, or a message that "
            f"was taken from it stayed unacknowledged for longer than consumer_timeout{self._remedy}"
        )

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            with quiet_pika():
                yield
        except exceptions.ChannelClosedByBroker as error:
            raise TransportError(
                f"{self._name} on {self._broker.label} {what}: {reason_of(error)}{self._remedy}"
            ) from None
        except exceptions.AMQPError as error:
            raise TransportUnavailableError(
                f"the connection to RabbitMQ at {self._broker.label} was lost: {reason_of(error)}{self._remedy}"
            ) from None
