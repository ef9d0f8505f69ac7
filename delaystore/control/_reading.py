"""Reading requests from the queue, doing them, and acknowledging what is answered."""

import time
from typing import Final

from delaystore.calls import StopFlag
from delaystore.control._answering import Answering, Request
from delaystore.control._replies import Replies
from delaystore.control._senders import sender_of
from delaystore.control._standing import Standing
from delaystore.dispatcher.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.errors import StoreError, TransportError
from delaystore.transports.rabbitmq.consuming.consumer import Consumed, Consumer

PREFETCH: Final = 1000
"""Requests that are in this process, at most."""
_BATCH: Final = 500
"""Requests that one transaction does, at most."""
_BYTES: Final = 16 * 2**20
"""Bytes of requests beyond which no more are read from the socket, and of answers beyond which no more are made."""
_IDLE: Final = 5.0
"""Seconds that reading waits for a request."""
_OWING: Final = 0.2
"""Seconds that it waits while answers are to be published again."""


class Reading:
    """One connection's requests, from when they come until they are acknowledged. Used by one thread."""

    def __init__(
        self,
        consumer: Consumer,
        answering: Answering,
        replies: Replies,
        breaker: RepeatedFailuresOverTimeCircuitBreaker,
        standing: Standing,
        stopping: StopFlag,
    ) -> None:
        self._consumer = consumer
        self._answering = answering
        self._replies = replies
        self._breaker = breaker
        self._standing = standing
        self._stopping = stopping
        self._waiting: list[Consumed] = []
        """Taken, and not done."""

    def run(self) -> None:
        """Until it is to stop. What is not answered by then goes back to the queue.

        Raises TransportUnavailableError if the connection is lost, TransportError if the broker ends the channel.
        """
        while not self._stopping.is_set():
            self._turn()
        self._consumer.finish()

    def _turn(self) -> None:
        if not self._waiting:
            self._receive(_IDLE if self._replies.is_empty else _OWING)
            self._waiting = self._consumer.take(_BATCH, _BYTES)
        pause = self._do() if self._waiting else 0.0
        self._consumer.acknowledge(self._replies.publish())
        if self._replies.is_rejected_missing:
            raise TransportError("the queue for rejected requests is gone; it is declared again")
        if pause:
            self._rest(pause)

    def _do(self) -> float:
        """Do some of what waits. Returns the seconds to wait, where the store does nothing, or answers pile up."""
        if self._replies.size >= _BYTES:
            return _OWING
        requests = [Request(each.delivery.body, sender_of(each.delivery.properties)) for each in self._waiting]
        try:
            answers = self._answering.answer(requests)
        except StoreError as error:
            self._standing.store = str(error)
            return self._breaker.failure(error)
        self._standing.store = None
        self._breaker.success()
        for each, answer in zip(self._waiting, answers, strict=False):
            self._replies.add(each.delivery, answer)
        del self._waiting[: len(answers)]
        return 0.0

    def _rest(self, seconds: float) -> None:
        """Wait, and keep the connection alive meanwhile."""
        until = time.monotonic() + seconds
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            self._receive(left)

    def _receive(self, patience: float) -> None:
        """Read on while there is room; what is there already is not waited for."""
        if self._consumer.prefetched_bytes < _BYTES:
            self._consumer.receive(0 if self._consumer.prefetched and not self._waiting else patience)
        elif self._waiting:
            self._stopping.wait(patience)
            self._consumer.keep_alive()
