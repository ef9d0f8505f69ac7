"""Rejected messages: copied with the reason, restored, and published again."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from delaystore.errors import TransportError, TransportSetupError
from delaystore.ingress._entries import IngestEntry, IngestResult
from delaystore.operations.failed_message import grouped_reason
from delaystore.text import DEFAULT_EXCHANGE, FORWARDED_TO, HOPS, REJECTED_PROPERTIES, REJECTED_REASON, Address
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.consuming import Consumed, Consumer
from delaystore.transports.rabbitmq.copies import CARBON_COPIES, Copy, PropertiesKeptAsBytesError, copy_with_reason
from delaystore.transports.rabbitmq.copies import restored as properties_restored
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.publisher import BatchPublisher
from delaystore.transports.rabbitmq.queues import ready_counts
from delaystore.transports.rabbitmq.raw import (
    MalformedPropertiesError,
    RawDelivery,
    RawProperties,
    bytes_value,
    text_of,
    text_value,
)
from delaystore.transports.rabbitmq.raw import TableEntry as Header

EXCHANGE: Final = "delaystore.rejected-exchange"
"""The exchange that it was published to."""
ROUTING_KEY: Final = "delaystore.rejected-routing-key"
_COPY_TIMEOUT: Final = 3.0
"""Seconds for the confirms of one batch. A message that is confirmed later counts as well, and is not published
again."""
_ASKING: Final = 1.0
"""Seconds for the confirm of the message that asks whether a silent queue takes messages again; good ones wait as
long."""
_LONGEST_PAUSE: Final = 30.0
"""Seconds between two such questions; each pause is twice the last."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_REASON: Final = 1000
"""Characters."""

logger = logging.getLogger("delaystore.ingress")


class RejectedQueue:
    """Publishes copies of messages, with the reason, to the rejected queue.

    A queue that takes none is asked with one message at a time, and seldom, as the good ones wait meanwhile. `declare`
    makes the queue again where it is gone; raises TransportError where that cannot be.
    """

    def __init__(self, publisher: BatchPublisher, queue: str, declare: Callable[[], None]) -> None:
        self._publisher = publisher
        self._queue = queue
        self._declare = declare
        self._pause = 0.0
        """Seconds between two questions; 0: the queue takes messages."""
        self._asks_at = 0.0
        self._gone = False
        """Whether there was no such queue."""
        self._trouble: str | None = None

    def reject(self, entries: Sequence[IngestEntry]) -> str | None:
        """Give each entry whose copy is confirmed its result. Why others are left without; None: there are none."""
        waiting = [entry for entry in entries if not self._is_under_way(entry)]
        if waiting and self._pause and time.monotonic() >= self._asks_at:
            self._ask(waiting[0])
            waiting = waiting[1:]
        if waiting and not self._pause:
            self._publish(waiting, _COPY_TIMEOUT)
        return None if all(entry.result is IngestResult.REJECTED for entry in entries) else self._trouble

    def _is_under_way(self, entry: IngestEntry) -> bool:
        """Whether its copy may still be confirmed, or is."""
        arrived = entry.copy_late is not None and entry.copy_late.arrived
        if arrived:
            self._note_rejected(entry)
            self._pause = 0.0
        return arrived is not False

    def _ask(self, entry: IngestEntry) -> None:
        try:
            if self._gone:
                self._declare()
        except TransportError as error:
            self._rest(str(error))
        else:
            self._publish([entry], _ASKING)

    def _publish(self, entries: Sequence[IngestEntry], timeout: float) -> None:
        outcomes = self._publisher.publish([_copy(entry, self._queue) for entry in entries], timeout)
        for entry, outcome in zip(entries, outcomes, strict=True):
            entry.copy_late = outcome.late
            # Only a confirmed copy counts: the original is acknowledged after this, and is then gone from its queue.
            if outcome.kind is OutcomeKind.DELIVERED:
                self._note_rejected(entry)
            else:
                self._trouble = f"the queue {self._queue!r} takes no rejected messages: {outcome.reason}"
        kinds = {outcome.kind for outcome in outcomes}
        self._gone = OutcomeKind.UNROUTABLE in kinds
        if self._gone or (OutcomeKind.DELIVERED not in kinds and any(kind.passes for kind in kinds)):
            self._rest(self._trouble)
        else:
            self._pause = 0.0

    def _rest(self, trouble: str | None) -> None:
        self._trouble = trouble
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) or _FIRST_PAUSE
        self._asks_at = time.monotonic() + self._pause

    def _note_rejected(self, entry: IngestEntry) -> None:
        entry.result, entry.copy_late = IngestResult.REJECTED, None
        _log(entry, self._queue)


def _log(entry: IngestEntry, queue: str) -> None:
    message_id = entry.incoming.properties.message_id
    which = "a message without an id" if message_id is None else f"the message {message_id!r}"
    logger.warning("rejected %s of %r, moved to %r: %s", which, entry.incoming.queue, queue, entry.objection)


def _copy(entry: IngestEntry, queue: str) -> Copy:
    incoming, reason = entry.incoming, entry.objection or ""
    said = [
        Header(REJECTED_REASON.encode(), text_value(reason[:_LONGEST_REASON])),
        Header(EXCHANGE.encode(), _name(incoming.exchange)),
        Header(ROUTING_KEY.encode(), _name(incoming.routing_key)),
    ]
    return copy_with_reason(queue, incoming.properties, incoming.body, said, REJECTED_PROPERTIES)


def _name(name: str | bytes) -> bytes:
    return text_value(name) if isinstance(name, str) else bytes_value(name)


_ADDED: Final = frozenset(
    name.encode() for name in (REJECTED_REASON, EXCHANGE, ROUTING_KEY, FORWARDED_TO, HOPS, "x-delivery-count")
)
"""Headers that the message did not have when it came, or, as those of a loop, is to have no more."""


class IrretrievableError(ValueError):
    """A message that cannot be published as it was; why."""


def restored(delivery: RawDelivery) -> Copy:
    """The message as it was published, to where it was published. Raises IrretrievableError."""
    try:
        properties = properties_restored(delivery.properties, REJECTED_PROPERTIES)
    except MalformedPropertiesError:
        raise IrretrievableError("its properties cannot be read") from None
    except PropertiesKeptAsBytesError:
        raise IrretrievableError("its properties were kept as bytes; publish it again from your program") from None
    address = _origin(properties.headers)
    own = [entry for entry in properties.headers if entry.name not in _ADDED]
    if address.exchange == DEFAULT_EXCHANGE and any(name in CARBON_COPIES for name, _ in own):
        raise IrretrievableError("it has CC, and those queues have their copies; publish it again from your program")
    return Copy(address, properties.changed(own), delivery.body)


def _origin(entries: Sequence[Header]) -> Address:
    headers = dict(entries)
    if REJECTED_REASON.encode() not in headers:
        raise IrretrievableError("no ingress has rejected it: it has no header delaystore.rejected-reason")
    for header in (EXCHANGE, ROUTING_KEY):
        if sum(name == header.encode() for name, _ in entries) > 1:
            raise IrretrievableError(f"it has the header {header} twice; publish it again from your program")
    exchange, key = text_of(headers.get(EXCHANGE.encode())), text_of(headers.get(ROUTING_KEY.encode()))
    if exchange is None or key is None:
        raise IrretrievableError("its exchange or its routing key is no text; publish it again from your program")
    return Address(exchange, key)


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
    """The result of publishing a rejected queue again, with `found` messages at the beginning.

    `published`: confirmed by where they came from, and off the queue. `stayed`: how many are in the queue as before, by
    the reason. `passed_over`: how many the filter leaves there. `stopped`: `stopping` ended it before all were
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
    """Publish the messages of a rejected queue to where they came from, each as it was, and remove them from the queue.

    Only messages that are there at the beginning are tried. A copy is confirmed before the message is acknowledged: if
    the process dies in between, it is in both places.

    Args:
        broker: The broker.
        queue: The rejected queue.
        wanted: Which messages; None: all.
        dry_run: Publish nothing, and report the messages that would be published.
        on_progress: Called with the number of messages tried, and their total.
        stopping: Asked after each batch whether to stop.

    Returns:
        The results of the messages.

    Raises:
        TransportSetupError: There is no such queue.
        TransportError, TransportUnavailableError: Unacknowledged messages are in the queue.

    """
    result = Retry(_depth(broker, queue))
    wanted = wanted or RejectedFilter()
    if not result.found:
        return result
    with closing(BatchPublisher(broker)) as publisher, Consumer(broker, queue, (queue,), _PREFETCH) as consumer:
        while result.tried < result.found and result.left < _PREFETCH and not result.stopped:
            consumed = _next(consumer, min(_AT_ONCE, result.found - result.tried))
            if not consumed:
                break
            chosen = [each.delivery for each in consumed if wanted.matches(each.delivery.properties)]
            result.passed_over += len(consumed) - len(chosen)
            done = _try(publisher, chosen, result, dry_run)
            if len(done) < len(consumed):
                consumer.acknowledge_singly()
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
    while not consumer.prefetched and (timeout := ends - time.monotonic()) > 0:
        consumer.receive(timeout)  # it may return at once for messages that were taken before
    return consumer.take(most, _MOST_BYTES)


def _try(publisher: BatchPublisher, deliveries: Sequence[RawDelivery], result: Retry, dry_run: bool) -> Sequence[int]:
    """Publish them, note their results, and return the tags to be acknowledged."""
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
