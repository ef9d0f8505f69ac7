"""A steady stream of messages through delaystore, and what arrived of it when."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Self

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

from delaystore.delivery import DelayedDelivery
from delaystore.errors import DuplicateMessageError, StoreError
from tests.faults.patience import PATIENCE, wait_until

PAUSE = 0.02  # seconds between two messages
DELAY = 0.2  # seconds that each waits in the store
LOOK = 0.02
PREFETCH = 200
AGAIN = 0.2  # seconds before a connection or a send is tried again
TIMEOUT = 3.0


class Stream:
    """Sends to `queues` in turn as long as the context lasts, each message until it is acknowledged.

    `consumer_urls`: the broker's nodes; consumers try them in turn.
    """

    def __init__(self, delivery: DelayedDelivery, queues: Sequence[str], consumer_urls: Sequence[str]) -> None:
        self._delivery = delivery
        self._queues = queues
        self._urls = consumer_urls
        self.acknowledged: dict[str, float] = {}
        """When each send returned, by time.monotonic()."""
        self.arrived: list[tuple[float, str, str]] = []
        """When, in which queue, what."""
        self._sending, self._consuming = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._send, daemon=True),
            *(threading.Thread(target=self._consume, args=(queue,), daemon=True) for queue in queues),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        wait_until(lambda: len(self.arrived) > 100, "messages arrive")
        return self

    def __exit__(self, *_: object) -> None:
        self._sending.set()
        self._consuming.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def end(self) -> None:
        """Send no more, and wait until everything has arrived, or nothing more comes for a long time."""
        self._sending.set()
        self._threads[0].join(PATIENCE)
        with suppress(AssertionError):
            wait_until(lambda: not self.missing, "all has arrived", 120)

    @property
    def missing(self) -> int:
        """How many acknowledged messages have not arrived."""
        return len(set(self.acknowledged) - {key for _, _, key in self.arrived})

    @property
    def copies(self) -> int:
        """How many arrivals there were too many."""
        counts = Counter(key for _, _, key in self.arrived)
        return sum(counts.values()) - len(counts)

    def stall(self, since: float, until: float | None = None, queue: str | None = None) -> float:
        """The longest time, in seconds, in which nothing arrived in `queue`; None: in any."""
        end = time.monotonic() if until is None else until
        times = [at for at, where, _ in self.arrived if since <= at <= end and queue in (None, where)]
        moments = [since, *sorted(times), end]
        return max(later - earlier for earlier, later in pairwise(moments))

    def first_sent(self, since: float) -> float:
        """Seconds from `since` to the first send that was acknowledged after it."""
        return min(at for at in self.acknowledged.values() if at >= since) - since

    def first_arrived(self, since: float) -> float:
        """Seconds from `since` to the first arrival after it."""
        return min(at for at, _, _ in self.arrived if at >= since) - since

    def last_of_before(self, since: float) -> float:
        """Seconds from `since` until everything acknowledged before it had arrived."""
        before = {key for key, at in self.acknowledged.items() if at < since}
        first = {key: at for at, _, key in reversed(self.arrived)}
        return max((first[key] for key in before if key in first), default=since) - since

    def _send(self) -> None:
        number = 0
        while not self._sending.wait(PAUSE):
            key = f"stream-{number}"
            self._send_one(key, self._queues[number % len(self._queues)])
            number += 1

    def _send_one(self, key: str, queue: str) -> None:
        while not self._sending.is_set():
            try:
                self._delivery.send(queue, b"x" * 200, delay=DELAY, message_id=key)
            except DuplicateMessageError:
                pass
            except StoreError:
                self._sending.wait(AGAIN)
                continue
            self.acknowledged[key] = time.monotonic()
            return

    def _consume(self, queue: str) -> None:
        number = 0
        while not self._consuming.is_set():
            with suppress(AMQPError, AMQPConnectorException, OSError):
                self._consume_at(self._urls[number % len(self._urls)], queue)
            number += 1
            self._consuming.wait(AGAIN)

    def _consume_at(self, url: str, queue: str) -> None:
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 4
        parameters.socket_timeout = parameters.stack_timeout = parameters.blocked_connection_timeout = TIMEOUT
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=PREFETCH)
            for method, properties, _ in channel.consume(queue, inactivity_timeout=LOOK):
                if method is not None:
                    self._note(queue, properties.message_id, redelivered=method.redelivered)
                    channel.basic_ack(method.delivery_tag)
                if self._consuming.is_set():
                    return

    def _note(self, queue: str, key: str, *, redelivered: bool) -> None:
        if not redelivered or all(key != other for _, _, other in self.arrived):
            self.arrived.append((time.monotonic(), queue, key))
