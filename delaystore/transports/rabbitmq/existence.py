"""What exists on a broker, asked by passive declarations, which change nothing."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pika import exceptions

from delaystore.errors import TransportSetupError, TransportUnavailableError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.pika_errors import NOT_FOUND, quiet_pika, reason_of, says_missing
from delaystore.transports.rabbitmq.topology.layout import Exchange, Queue

_NEVER_IN_NAMES: Final = frozenset("\r\n")
"""RabbitMQ drops these from a name, and would answer for another."""
_LOOKING: Final = 3.0
"""Seconds for the broker to say how a queue stands that one can begin without; a frozen classic queue says nothing."""


class Standing(Enum):
    """How a queue stands."""

    THERE = "there"
    MISSING = "missing"
    DOWN = "down"
    """It exists, and nobody serves it: its node is down."""
    UNKNOWN = "unknown"
    """The broker does not say."""


@dataclass(frozen=True, slots=True)
class QueueLook:
    """What a look at a queue has shown. `ready`: messages in it that wait for a consumer. `consumers`: how many."""

    standing: Standing
    ready: int = 0
    reason: str = ""
    consumers: int = 0


def queue_exists(connections: BlockingConnections, name: str) -> bool:
    """Whether there is a queue of that name; raises as `exists`."""
    return exists(connections, Queue(name))


def exists(connections: BlockingConnections, part: Exchange | Queue) -> bool:
    """Whether there is an exchange or a queue of that name, whatever its type and arguments.

    Raises TransportSetupError where the broker does not say, TransportUnavailableError.
    """
    return not missing(connections, [part])


def missing(connections: BlockingConnections, parts: Iterable[Exchange | Queue]) -> list[Exchange | Queue]:
    """Those of `parts` that do not exist; raises as `exists`."""
    parts = list(parts)
    counts = _counts(connections, parts)
    return [part for part, count in zip(parts, counts, strict=True) if count is None]


def look_at(connections: BlockingConnections, queue: str) -> QueueLook:
    """How a queue stands at this moment. Raises TransportUnavailableError."""
    try:
        with connections.channel() as channel, quiet_pika():
            answer = channel.queue_declare(queue, passive=True).method
            return QueueLook(Standing.THERE, answer.message_count, consumers=answer.consumer_count)
    except exceptions.ChannelClosedByBroker as error:
        reason = reason_of(error)
        if error.reply_code != NOT_FOUND:
            return QueueLook(Standing.UNKNOWN, reason=reason)
        return QueueLook(Standing.MISSING if says_missing(error) else Standing.DOWN, reason=reason)


def surely_missing(broker: Broker, queue: str) -> bool:
    """Whether there is no queue of that name. False also where it is down, or where nobody tells within 3 seconds."""
    with closing(BlockingConnections(broker, answer=_LOOKING)) as connections:
        try:
            return look_at(connections, queue).standing is Standing.MISSING
        except TransportUnavailableError:
            return False


def ready_counts(connections: BlockingConnections, queues: Iterable[str]) -> list[int | None]:
    """How many messages are ready in each of the queues; None for one that does not exist. Raises as `exists`."""
    return _counts(connections, [Queue(name) for name in queues])


def ready_on(channel: Any, queue: str) -> int:
    """How many messages are ready, asked on an open channel, which the broker closes if the queue does not exist."""
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def _counts(connections: BlockingConnections, parts: Sequence[Exchange | Queue]) -> list[int | None]:
    """What is ready in each queue, 0 for each exchange, None for what does not exist. One channel for all."""
    counts: list[int | None] = []
    while len(counts) < len(parts):
        try:
            with connections.channel() as channel, quiet_pika():
                for part in parts[len(counts) :]:
                    if not _NEVER_IN_NAMES.isdisjoint(part.name):
                        counts.append(None)
                    elif isinstance(part, Queue):
                        counts.append(ready_on(channel, part.name))
                    else:
                        channel.exchange_declare(part.name, passive=True)
                        counts.append(0)
        except exceptions.ChannelClosedByBroker as error:
            if not says_missing(error):
                reason = reason_of(error)
                raise TransportSetupError(
                    f"{parts[len(counts)]} cannot be looked up: {reason}; grant permission or correct the name"
                ) from None
            counts.append(None)
    return counts
