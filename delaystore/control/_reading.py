"""The control queue's batches: requests that are done, answered, and then acknowledged."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from typing_extensions import override

from delaystore.control._answering import Answering, Request
from delaystore.control._replies import Replies
from delaystore.control._senders import sender_of
from delaystore.control._standing import Standing
from delaystore.dispatcher.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.errors import StoreError, TransportError
from delaystore.ingress.consuming import BatchHandler
from delaystore.transports.rabbitmq.consuming import Consumed, Consumer

PREFETCH: Final = 1000
"""Requests that are in this process, at most."""
BATCH: Final = 500
"""Requests that one transaction does, at most."""
BYTES: Final = 16 * 2**20
"""Bytes of the requests of one batch, and of answers beyond which no more are made."""
_OWING: Final = 0.2
"""Seconds between two looks at whether answers may be published again, where so many are owed."""


class ControlHandler(BatchHandler[Consumed]):
    """Does requests and answers them. Those that the store does not do wait in memory, and are tried again."""

    def __init__(
        self,
        answering: Answering,
        replies: Replies,
        breaker: RepeatedFailuresOverTimeCircuitBreaker,
        standing: Standing,
    ) -> None:
        self._answering = answering
        self._replies = replies
        self._breaker = breaker
        self._standing = standing
        self._waiting: list[Consumed] = []
        """Taken, and not done."""
        self._not_before = 0.0
        """When to try these again, by time.monotonic."""
        self._done: Sequence[int] = ()
        """Tags of requests that can be acknowledged."""

    @property
    @override
    def held_bytes(self) -> int:
        return self.size_of(self._waiting)

    @property
    @override
    def due_in(self) -> float | None:
        waiting = [max(0.0, self._not_before - time.monotonic())] if self._waiting else []
        owed = self._replies.due_in
        return min([*waiting, *([] if owed is None else [owed])], default=None)

    @property
    @override
    def takes_more(self) -> bool:
        return not self._waiting

    @override
    def next_batch(self, take: Callable[[], Sequence[Consumed]]) -> Sequence[Consumed] | None:
        if not self._waiting:
            self._waiting = list(take())
        due = self.due_in
        return None if due is None or due > 0 else list(self._waiting)

    @override
    def size_of(self, batch: Sequence[Consumed]) -> int:
        return sum(each.delivery.size for each in batch)

    @override
    def handle(self, batch: Sequence[Consumed]) -> None:
        if batch and time.monotonic() >= self._not_before:
            self._do(batch)
        self._done = self._replies.publish()

    @override
    def settle(self, batch: Sequence[Consumed], consumer: Consumer, *, failed: bool) -> None:
        if failed:
            return
        consumer.acknowledge(self._done)
        if self._replies.is_rejected_missing:
            raise TransportError("the queue for rejected requests is gone; it is declared again")

    def _do(self, batch: Sequence[Consumed]) -> None:
        """Do some of the requests: as many as the store does in one transaction."""
        if self._replies.size >= BYTES:
            self._not_before = time.monotonic() + _OWING
            return
        requests = [Request(each.delivery.body, sender_of(each.delivery.properties)) for each in batch]
        try:
            answers = self._answering.answer(requests)
        except StoreError as error:
            self._standing.store = str(error)
            self._not_before = time.monotonic() + self._breaker.failure(error)
            return
        self._standing.store = None
        self._breaker.success()
        for each, answer in zip(batch, answers, strict=False):
            self._replies.add(each.delivery, answer)
        del self._waiting[: len(answers)]
