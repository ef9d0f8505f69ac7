"""Reading all level queues of a cascade at once."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self

from delaystore.cascades.moving._messages import WaitingMessage
from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.errors import TransportError, TransportUnavailableError
from delaystore.transports.rabbitmq.consuming import Consumed, Consumer
from delaystore.transports.rabbitmq.queues import ready_counts


class Reader:
    """Consumes what waits in the level queues, the highest level first, since messages walk down meanwhile.

    What is not acknowledged when the block ends goes back to its queue. Used by one thread.
    `prefetch`: how many messages of each queue may be unacknowledged.
    """

    def __init__(self, source: BrokerCascade, prefetch: int) -> None:
        ready = ready_counts(source.connections, source.queues)
        self._levels = [level for level, count in reversed(list(enumerate(ready))) if count is not None]
        self._queues = source.queues
        self._consumer = Consumer(
            source.broker, source.name, [source.queues[level] for level in self._levels], prefetch
        )

    def __enter__(self) -> Self:
        with _run_again():
            self._consumer.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.__exit__(*error)

    @property
    def prefetched(self) -> int:
        """How many messages have come and are not taken yet."""
        return len(self._consumer.prefetched)

    @property
    def prefetched_bytes(self) -> int:
        """Bytes of their bodies."""
        return self._consumer.prefetched_bytes

    def receive(self, patience: float) -> None:
        """Add what comes to what is prefetched; returns as soon as there is any, or after `patience` seconds.

        Raises TransportUnavailableError if the connection is lost, TransportError if a queue is deleted.
        """
        with _run_again():
            self._consumer.receive(patience)

    def wake(self, future: "Future[Any] | None" = None) -> None:
        """End a `receive` under way, from any thread."""
        self._consumer.wake(future)

    def take(self, most: int, most_bytes: int) -> list[WaitingMessage]:
        """Up to `most` messages of those prefetched, and about `most_bytes` bytes of bodies: one at least."""
        return [self._waiting(consumed) for consumed in self._consumer.take(most, most_bytes)]

    def acknowledge(self, messages: Iterable[WaitingMessage]) -> None:
        """Take `messages` off the source; raises as `receive`."""
        with _run_again():
            self._consumer.acknowledge(message.tag for message in messages)

    def keep_back(self) -> None:
        """Some messages that were taken stay in the source."""
        self._consumer.keep_back()

    def finish(self) -> None:
        """Wait until the broker has all acknowledgements; raises as `receive`."""
        with _run_again():
            self._consumer.finish()

    def _waiting(self, consumed: Consumed) -> WaitingMessage:
        level = self._levels[consumed.queue]
        _, tag, redelivered, _, key, properties, body = consumed.delivery
        return WaitingMessage(tag, level, self._queues[level], key, properties, body, redelivered)


@contextmanager
def _run_again() -> Iterator[None]:
    """Raise errors with what to do about them."""
    try:
        yield
    except TransportUnavailableError as error:
        raise TransportUnavailableError(f"{error}; run it again, what was not acknowledged is still there") from None
    except TransportError as error:
        raise TransportError(f"{error}; run it again") from None
