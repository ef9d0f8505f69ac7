"""Publishing rejected messages again, once the cause is corrected."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.errors import TransportSetupError
from delaystore.headers import REJECTED_REASON
from delaystore.ingress._restoring import IrretrievableError, restored
from delaystore.operations.error_groups import grouped_reason
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.consuming import Consumed, Consumer
from delaystore.transports.rabbitmq.copies import Copy, CopyPublisher
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.queues import ready_counts
from delaystore.transports.rabbitmq.raw import Delivery, MalformedPropertiesError, RawProperties, text_of

_PREFETCH: Final = 65_535
"""Messages, the most that AMQP knows. As many that cannot be published end a retry: no more come."""
_AT_ONCE: Final = 200
_MOST_BYTES: Final = 16 * 1024 * 1024
_TIMEOUT: Final = 30.0
"""Seconds for the confirms of one batch."""
_QUIET: Final = 5.0
"""Seconds without a message: others have taken the rest, or hold it."""


class RejectedFilter:
    """Rejected messages that meet all that is given; nothing given: all of them.

    `message_id`: equal to it. `reason`: of the same group, ids and numbers aside.
    """

    def __init__(self, message_id: str | None = None, reason: str | None = None) -> None:
        self.message_id = message_id
        self._reason = None if reason is None else grouped_reason(reason)

    def matches(self, properties: RawProperties) -> bool:
        """Whether a message with these properties meets all that is given."""
        if self.message_id is not None and properties.message_id != self.message_id:
            return False
        return self._reason is None or _grouped_reason(properties) == self._reason


@dataclass(slots=True)
class Retry:
    """What became of what was in a rejected queue: `found` messages at the beginning.

    `published`: confirmed by where they came from, and off the queue. `stayed`: how many are in the queue as before, by
    the reason. `passed_over`: how many the filter leaves there. `stopped`: somebody asked to stop before all were
    tried.
    """

    found: int
    published: int = 0
    stayed: Counter[str] = field(default_factory=Counter)
    passed_over: int = 0
    stopped: bool = False

    @property
    def tried(self) -> int:
        """Messages that were taken up."""
        return self.published + self.left

    @property
    def left(self) -> int:
        """Messages that were taken up, and are in the queue as before."""
        return self.stayed.total() + self.passed_over


def retry_rejected(
    broker: Broker,
    queue: str,
    wanted: RejectedFilter | None = None,
    *,
    dry_run: bool = False,
    on_progress: Callable[[int, int], object] = lambda _done, _total: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Retry:
    """Publish what is in the rejected queue `queue` to where it came from, each as it was, and take it off the queue.

    `wanted`: only what it matches; None: all. Only what is there at the beginning is tried: what is rejected anew
    stays. A copy is confirmed before the message is acknowledged; if the process dies in between, it is in both.
    `dry_run`: publish nothing, and say what would be. `on_progress` gets how many were tried, of how many. Raises
    TransportSetupError where there is no such queue, TransportError and TransportUnavailableError: what was not
    acknowledged is in the queue.
    """
    result = Retry(_depth(broker, queue))
    wanted = wanted or RejectedFilter()
    if not result.found:
        return result
    with closing(CopyPublisher(broker)) as publisher, Consumer(broker, queue, (queue,), _PREFETCH) as consumer:
        while result.tried < result.found and result.left < _PREFETCH and not result.stopped:
            consumed = _next(consumer, min(_AT_ONCE, result.found - result.tried))
            if not consumed:
                break
            chosen = [each.delivery for each in consumed if wanted.matches(each.delivery.properties)]
            result.passed_over += len(consumed) - len(chosen)
            done = _try(publisher, chosen, result, dry_run)
            if len(done) < len(consumed):
                consumer.keep_back()
            consumer.acknowledge(done)
            on_progress(result.tried, result.found)
            result.stopped = stopping() and result.tried < result.found
        consumer.stop()
        consumer.finish()
    return result


def _grouped_reason(properties: RawProperties) -> str | None:
    """None: it does not say."""
    try:
        reason = text_of(dict(properties.headers).get(REJECTED_REASON.encode()))
    except MalformedPropertiesError:
        return None
    return None if reason is None else grouped_reason(reason, properties.message_id or "")


def _depth(broker: Broker, queue: str) -> int:
    with closing(BlockingConnections(broker)) as connections:
        (ready,) = ready_counts(connections, (queue,))
    if ready is None:
        raise TransportSetupError(f"there is no queue {queue!r} on {broker.label}; correct its name")
    return ready


def _next(consumer: Consumer, most: int) -> Sequence[Consumed]:
    ends = time.monotonic() + _QUIET
    while not consumer.prefetched and (patience := ends - time.monotonic()) > 0:
        consumer.receive(patience)  # it may return at once for messages that were taken before
    return consumer.take(most, _MOST_BYTES)


def _try(publisher: CopyPublisher, deliveries: Sequence[Delivery], result: Retry, dry_run: bool) -> Sequence[int]:
    """Publish them, note what became of them, and return the tags of those to be acknowledged."""
    copies: list[tuple[int, Copy]] = []
    for each in deliveries:
        try:
            copies.append((each.tag, restored(each)))
        except IrretrievableError as error:
            result.stayed[str(error)] += 1
    if dry_run:
        result.published += len(copies)
        return ()
    done: list[int] = []
    outcomes = publisher.publish([copy for _, copy in copies], _TIMEOUT) if copies else ()
    for (tag, copy), outcome in zip(copies, outcomes, strict=True):
        if outcome.kind is OutcomeKind.DELIVERED:
            done.append(tag)
        else:
            result.stayed[f"{_where(copy.address)} did not take it: {outcome.reason or outcome.kind.value}"] += 1
    result.published += len(done)
    return done


def _where(address: Address) -> str:
    exchange, key = address
    return f"the queue {key!r}" if exchange == DEFAULT_EXCHANGE else f"the exchange {exchange!r}"
