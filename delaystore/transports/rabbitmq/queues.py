"""Queues on a broker: whether they exist, how many messages are in them; declared, deleted, and received from."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from pika import exceptions

from delaystore.errors import ConfigurationError, TransportError, TransportSetupError, TransportUnavailableError
from delaystore.text import UNREAD_HEADERS, named_queue
from delaystore.transports.abc import ReceivedMessage
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.pika_errors import NOT_FOUND, quiet_pika, reason_of, says_missing
from delaystore.transports.rabbitmq.pika_internals import server_properties
from delaystore.transports.rabbitmq.properties import UnreadProperties, read_headers, read_properties
from delaystore.transports.rabbitmq.topology.layout import Exchange, Queue

_NEVER_IN_NAMES: Final = frozenset("\r\n")
"""RabbitMQ drops these from a name, and would answer for another."""
_LOOKING: Final = 3.0
"""Seconds for the broker to say how a queue stands that one can begin without; a frozen classic queue says nothing."""


class QueueAvailability(Enum):
    """How a queue stands."""

    THERE = "there"
    MISSING = "missing"
    DOWN = "down"
    """It exists, but its node is down."""
    UNKNOWN = "unknown"
    """The broker does not say."""


@dataclass(frozen=True, slots=True)
class QueueLook:
    """The result of a look at a queue. `ready`: messages in it that wait for a consumer. `consumers`: how many."""

    availability: QueueAvailability
    ready: int = 0
    reason: str = ""
    consumers: int = 0


def queue_exists(connections: BlockingConnections, name: str) -> bool:
    """Whether there is a queue of that name; raises as `exists`."""
    return exists(connections, Queue(name))


def exists(connections: BlockingConnections, part: Exchange | Queue) -> bool:
    """Whether there is an exchange or a queue of that name, with any type and arguments.

    Raises TransportSetupError where the broker does not say, TransportUnavailableError.
    """
    return not missing(connections, [part])


def missing(connections: BlockingConnections, parts: Iterable[Exchange | Queue]) -> list[Exchange | Queue]:
    """Return the parts that do not exist; raises as `exists`."""
    parts = list(parts)
    counts = _counts(connections, parts)
    return [part for part, count in zip(parts, counts, strict=True) if count is None]


def look_at(connections: BlockingConnections, queue: str) -> QueueLook:
    """How a queue stands at this moment. Raises TransportUnavailableError."""
    try:
        with connections.channel() as channel, quiet_pika():
            answer = channel.queue_declare(queue, passive=True).method
            return QueueLook(QueueAvailability.THERE, answer.message_count, consumers=answer.consumer_count)
    except exceptions.ChannelClosedByBroker as error:
        reason = reason_of(error)
        if error.reply_code != NOT_FOUND:
            return QueueLook(QueueAvailability.UNKNOWN, reason=reason)
        return QueueLook(QueueAvailability.MISSING if says_missing(error) else QueueAvailability.DOWN, reason=reason)


def surely_missing(broker: Broker, queue: str) -> bool:
    """Whether there is no queue of that name. False also where it is down, or does not answer within 3 seconds."""
    with closing(BlockingConnections(broker, answer=_LOOKING)) as connections:
        try:
            return look_at(connections, queue).availability is QueueAvailability.MISSING
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
    """Ready messages of each queue, 0 for each exchange, None for missing parts. One channel for all."""
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
                # A queue that exists but is down: its reason says what to do.
                remedy = "" if error.reply_code == NOT_FOUND else "; grant permission or correct the name"
                raise TransportSetupError(
                    f"{parts[len(counts)]} cannot be looked up: {reason_of(error)}{remedy}"
                ) from None
            counts.append(None)
    return counts


QUEUE_TYPES: Final = ("quorum", "classic")
_TYPE: Final = "x-queue-type"
LIFTED_LIMIT: Final = 100_000
"""A delivery limit that is never reached, as NServiceBus sets it.

RabbitMQ 3 takes -1 for 0, and 4.0 and 4.1 write to the log of a queue every five seconds if a policy says -1.
"""
_FIRST_WITH_LIMIT: Final = 4
_FIRST_WAIT: Final = 0.1
"""Seconds for a ready message to arrive, where the caller does not want to wait."""
_GATHER: Final = 0.01
"""Seconds after a message has come to an empty queue in which others join its batch."""
_LINGER: Final = 0.03
"""Seconds without another message after which the rest is taken to have gone to another consumer."""
MAX_PREFETCH: Final = 65535
"""basic.qos has 16 bits for the number."""


class DecodedDelivery(NamedTuple):
    """A message as pika hands it to a consumer."""

    method: Any
    properties: Any
    body: bytes


def declare_queue(
    connections: BlockingConnections,
    queue: str,
    queue_type: str,
    *,
    whatever_exists: bool = True,
    lift_limit: bool = False,
) -> None:
    """Create the durable queue unless one of that name exists, of any type and arguments.

    `whatever_exists` False: one that exists must be of that type. `lift_limit`: people may look at its messages, and
    give them back, as often as they like.
    Raises TransportSetupError with the broker's reason, TransportUnavailableError.
    """
    name = named_queue(queue)
    if queue_exists(connections, name) and whatever_exists:
        return
    try:
        with connections.channel() as channel, quiet_pika():
            arguments = (
                error_queue_arguments(queue_type, broker_version(channel)) if lift_limit else {_TYPE: queue_type}
            )
            channel.queue_declare(name, durable=True, arguments=arguments)
    except exceptions.ChannelClosedByBroker as error:
        if not whatever_exists and _TYPE in error.reply_text:
            raise TransportSetupError(_of_another_type(name, queue_type, reason_of(error))) from None
        if not queue_exists(connections, name):  # otherwise another process declared it meanwhile
            raise TransportSetupError(
                f"queue {name!r} cannot be declared: {reason_of(error)}; declare it yourself or grant permission"
            ) from None


def error_queue_arguments(queue_type: str, version: str) -> dict[str, Any]:
    """The arguments of a queue whose messages may be given back as often as one likes, on a broker of that version."""
    if queue_type == "quorum" and has_default_limit(version):
        return {_TYPE: queue_type, "x-delivery-limit": LIFTED_LIMIT}
    return {_TYPE: queue_type}


def _of_another_type(name: str, wanted: str, reason: str) -> str:
    (other,) = set(QUEUE_TYPES) - {wanted}
    return (
        f"queue {name!r} is a {other} queue, and no {wanted} one ({reason}); write --queue-type {other}, or delete it "
        "once it is empty"
    )


def has_default_limit(version: str) -> bool:
    """Whether quorum queues of a broker of that version drop a message that was given back too often, by default.

    An unreadable version counts as the newest.
    """
    major = version.partition(".")[0]
    return not major.isdecimal() or int(major) >= _FIRST_WITH_LIMIT


def broker_version(channel: Any) -> str:
    """The version that the broker named when the channel's connection was opened, as in 3.10.8."""
    return str(server_properties(channel).get("version", "unknown"))


def delete_queue(connections: BlockingConnections, queue: str) -> None:
    """Delete the queue and its messages, if it exists.

    Raises TransportSetupError with the broker's reason, TransportUnavailableError.
    """
    name = named_queue(queue)
    try:
        with connections.channel() as channel, quiet_pika():
            channel.queue_delete(name)
    except exceptions.ChannelClosedByBroker as error:
        raise TransportSetupError(f"queue {name!r} cannot be deleted: {reason_of(error)}") from None


@contextmanager
def receive(
    connections: BlockingConnections, queue: str, limit: int, timeout: float
) -> Iterator[Sequence[ReceivedMessage]]:
    """Up to `limit` messages of `queue`, acknowledged when the block ends, requeued if it raises.

    Raises TransportError for a queue that does not exist or may not be read, TransportUnavailableError.
    """
    name = named_queue(queue)
    if limit < 1:
        raise ConfigurationError(f"limit must be a whole number from 1, not {limit!r}")
    with connections.channel() as channel:
        try:
            with quiet_pika():
                deliveries = _collect(channel, name, min(limit, MAX_PREFETCH), timeout)
        except exceptions.ChannelClosed as error:
            raise TransportError(f"queue {name!r} cannot be received from: {reason_of(error)}") from None
        for delivery in deliveries:
            if isinstance(delivery.properties, UnreadProperties):
                raise TransportError(
                    f"queue {name!r} has a message whose headers cannot be read: "
                    f"{delivery.properties.headers[UNREAD_HEADERS]}; take it out with another program"
                )
        yield [read_delivery(delivery) for delivery in deliveries]
        if deliveries:
            with quiet_pika():
                channel.basic_ack(deliveries[-1].method.delivery_tag, multiple=True)
                # AMQP answers no acknowledgement; the answer to this shows that it has arrived
                ready_on(channel, name)


def _collect(channel: Any, name: str, limit: int, timeout: float) -> list[DecodedDelivery]:
    """Receive ready messages, or else the first message to come and messages that follow it shortly.

    No more is asked for than is ready, so that nothing is on its way when the consumer is cancelled: such messages go
    back out of order on a quorum queue, and count against its delivery limit.
    """
    waiting = ready_on(channel, name)
    arrived = consume(channel, name, min(limit, max(waiting, 1)), max(timeout, _FIRST_WAIT), _LINGER)
    if arrived and not waiting and limit > 1:
        time.sleep(_GATHER)
        followed = min(limit - 1, ready_on(channel, name))
        if followed:
            arrived += consume(channel, name, followed, _LINGER, _LINGER)
    return arrived


def consume(channel: Any, name: str, count: int, timeout: float, linger: float, tag: str = "") -> list[DecodedDelivery]:
    """Up to `count` messages; fewer if the first does not come within `timeout` seconds, or the next in `linger`.

    `tag`: the consumer's name; empty: the broker gives it one.
    """
    arrived: list[DecodedDelivery] = []
    channel.basic_qos(prefetch_count=count)
    tag = channel.basic_consume(
        name, lambda _channel, *delivery: arrived.append(DecodedDelivery(*delivery)), consumer_tag=tag or None
    )
    deadline = time.monotonic() + timeout
    seen = 0
    while len(arrived) < count and (remaining := deadline - time.monotonic()) > 0 and channel.consumer_tags:
        channel.connection.process_data_events(time_limit=remaining)
        if len(arrived) > seen:
            seen = len(arrived)
            deadline = time.monotonic() + linger
    channel.basic_cancel(tag)
    return arrived


def read_delivery(delivery: DecodedDelivery) -> ReceivedMessage:
    """The message that a consumer got, as the sender gave it."""
    method, properties, body = delivery
    message_id = properties.message_id
    return ReceivedMessage(
        message_id=message_id if isinstance(message_id, str) else (message_id or b"").decode(errors="replace"),
        body=body,
        headers=read_headers(properties, redelivered=method.redelivered),
        properties=read_properties(properties),
    )
