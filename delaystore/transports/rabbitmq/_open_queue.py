"""How often messages of a queue may be given back, as far as AMQP tells, and copies of messages that were returned
too often.

A quorum queue counts how often a message was given back; one that is given back at its limit is dropped, or
dead-lettered. From RabbitMQ 4.0 on that limit is 20 by default (4.3 counts only messages that a consumer rejects),
before it there is none. Looking gives back, too. So a message that has used up half of its limit is put at the end of
its queue as a copy, which was never given back, and is acknowledged once that is confirmed.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from pika import exceptions, spec
from typing_extensions import override

from delaystore.errors import TransportError, TransportSetupError
from delaystore.text import named_queue
from delaystore.transports.abc import OpenQueue, TakenMessage
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.delay_headers import COUNTED_BY_QUEUE
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.properties import UNENCODABLE
from delaystore.transports.rabbitmq.queues import (
    MAX_PREFETCH,
    DecodedDelivery,
    broker_version,
    consume,
    error_queue_arguments,
    read_delivery,
    ready_on,
)
from delaystore.transports.shared import PortionSizes

_BY_DEFAULT: Final = 20
"""https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling"""
_OTHER_LIMIT: Final = re.compile(r"inequivalent arg 'x-delivery-limit' .* but current is (?:the value )?'(-?\d+)'")
_OTHER_TYPE: Final = re.compile(r"inequivalent arg 'x-queue-type' ")


def delivery_limit(channel: Any, name: str) -> int | None:
    """How often a message of the queue, which exists, may be given back; None: as you like.

    AMQP does not tell a queue's arguments, but it refuses to declare one again with others, and says which it has. So
    the queue is declared as delaystore declares error queues, which changes nothing. A limit that a policy sets is not
    seen: where the arguments set none, or may not be asked for, it is taken to be 20.
    """
    arguments = error_queue_arguments("quorum", broker_version(channel))
    probe = channel.connection.channel()
    try:
        with quiet_pika():
            probe.queue_declare(name, durable=True, arguments=arguments)
    except exceptions.ChannelClosedByBroker as error:
        return _limit_in(error.reply_text)
    probe.close()
    return None


def _limit_in(refusal: str) -> int | None:
    if _OTHER_TYPE.search(refusal):
        return None  # a classic queue counts nothing
    limit = _OTHER_LIMIT.search(refusal)
    return _BY_DEFAULT if limit is None else max(0, int(limit[1]))


def given_back(properties: spec.BasicProperties) -> int:
    """How often the message was given back, as its queue counts; 0 where it counts nothing."""
    counts = [(properties.headers or {}).get(name) for name in COUNTED_BY_QUEUE]
    return max((int(count) for count in counts if isinstance(count, int)), default=0)


class Renewal:
    """Puts copies of messages at the end of their queue. `close` ends its channel."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._channel: Any = None

    def renew(self, channel: Any, method: Any, properties: spec.BasicProperties, body: bytes) -> None:
        """Put a copy, as it first came, into the queue, and acknowledge the message once that is confirmed.

        Raises TransportError where the copy cannot be written, or is not taken: the message stays where it was.
        """
        if self._channel is None:
            self._channel = channel.connection.channel()
            self._channel.confirm_delivery()
        headers = {key: it for key, it in (properties.headers or {}).items() if key not in COUNTED_BY_QUEUE}
        properties.headers = headers or None
        try:
            self._channel.basic_publish("", self._name, body, properties, mandatory=True)
        except (*UNENCODABLE, exceptions.UnroutableError, exceptions.NackError) as error:
            raise self._refusal(str(error) or type(error).__name__) from None
        except exceptions.ChannelClosedByBroker as error:
            raise self._refusal(reason_of(error)) from None
        channel.basic_ack(method.delivery_tag)

    def close(self) -> None:
        """Close the channel, if there is one."""
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    def _refusal(self, reason: str) -> TransportError:
        return TransportError(
            f"a message of {self._name!r} was read so often that RabbitMQ may drop it, after {self._limit} reads, "
            f"and cannot be published again ({reason}); give the queue a policy with a higher delivery-limit first"
        )


_TIMEOUT: Final = 5.0
"""Seconds for the next ready message, after which another consumer is taken to have the ready ones."""
_CONSUMERS: Final = 30
"""Consumers of one channel, at most. A quorum queue takes back what those of a channel had in the order of their names,
as long as there are no more than 32."""
_ROUND: Final = 20.0
"""Seconds for taking messages that were returned before; beyond that the order may change."""
_AT_ONCE: Final = 1_000
_RETURN: Final = 2.0
"""Seconds to wait for a queue to have returned messages again: a quorum queue gets them a moment later."""


@contextmanager
def open_queue(connections: BlockingConnections, queue: str) -> Iterator["OpenRabbitMQQueue"]:
    """Take messages of `queue`; messages that are not removed at the end go back to their places.

    Raises TransportError for a queue that is missing, may not be read, or drops returned messages;
    TransportUnavailableError.
    """
    name = named_queue(queue)
    with connections.channel() as channel:
        with _refusals(name):
            ready_on(channel, name)
            limit = delivery_limit(channel, name)
        if limit == 0:
            raise TransportSetupError(
                f"queue {name!r} has a delivery limit of 0: it drops each message that is read; give it a higher one"
            )
        opened = OpenRabbitMQQueue(channel, name, limit)
        try:
            yield opened
        except Exception:
            with suppress(TransportError, exceptions.AMQPError):  # what is raised already says more
                opened.give_back()
            raise
        else:
            opened.give_back()


class OpenRabbitMQQueue(OpenQueue):
    """Messages are taken by consumers, each of as many as are asked for, and stay unacknowledged.

    `limit`: how often one may be given back; None: as often as one likes.
    """

    def __init__(self, channel: Any, name: str, limit: int | None) -> None:
        self._channel = channel
        self._name = name
        self._worn_at = None if limit is None else max(1, limit // 2)
        self._renewal = Renewal(name, limit or 0)
        self._channels = [channel]
        self._consumers = 0
        self._consumed_before = 0
        """By earlier channels than the last one."""
        self._kept: dict[Any, set[int]] = {channel: set()}
        self._ahead: list[TakenMessage] = []
        """Messages that a removal has fetched for the next `take`."""
        self._among_returned = False
        """Whether the last one that came was given back before."""
        self._portions = PortionSizes()
        self._last_limit = 1

    @override
    def take(self, limit: int) -> Sequence[TakenMessage]:
        self._last_limit = limit
        with _refusals(self._name):
            if not self._ahead:
                self._fetch(self._roomy_channel(), limit)
        taken, self._ahead = self._ahead[:limit], self._ahead[limit:]
        return taken

    @override
    def remove(self, taken: Sequence[TakenMessage]) -> None:
        """Acknowledge `taken`, and fetch the messages that `take` returns next.

        AMQP answers no acknowledgement, and the channel of a quorum queue forgets at its end the ones that it has
        not passed on yet: all except the first 32 of many. A consumer that begins, and one that ends, is answered by
        the queue
        itself: the first answer follows those 32, so that the others leave, and the second follows these.
        """
        with _refusals(self._name):
            for channel in self._channels:
                tags = sorted(one.tag[1] for one in taken if one.tag[0] is channel)
                if tags:
                    self._acknowledge(channel, tags)
                    self._fetch(channel, self._last_limit, settling=True)

    def give_back(self) -> None:
        """End the channels, the first one first, each once the queue has the messages of the channel before again.

        RabbitMQ's queues hear of the ends of two channels in any order.
        """
        with _refusals(self._name):
            if self._channels[-1].is_open:
                self._take_the_returned()
            self._renewal.close()
            if not self._channel.connection.is_open:
                return
            counting = self._channel.connection.channel()
            expected, deadline = ready_on(counting, self._name), time.monotonic() + _RETURN
            for channel in self._channels:
                if channel.is_open:
                    channel.close()
                expected += len(self._kept[channel])
                while ready_on(counting, self._name) < expected and time.monotonic() < deadline:
                    time.sleep(0.01)
            counting.close()

    def _take_the_returned(self) -> None:
        """Take following messages that were returned before, too, so that all go back together.

        In a quorum queue, returned messages come before messages that were never returned, and each return goes
        behind the earlier returns. Without this, inspecting the first messages would put them last.
        """
        deadline = time.monotonic() + _ROUND
        while self._among_returned and time.monotonic() < deadline:
            self._ahead = []
            self._fetch(self._roomy_channel(), _AT_ONCE)
            if not self._ahead:
                return

    def _fetch(self, channel: Any, limit: int, *, settling: bool = False) -> None:
        """Add the next message to `_ahead`, if there is one. `settling`: ask the queue twice in any case."""
        while ready := ready_on(channel, self._name):
            portion = min(self._portions.next(limit), ready, MAX_PREFETCH)
            self._consumers += 1
            tag = f"delaystore-{self._consumers:08}"
            arrived = consume(channel, self._name, portion, _TIMEOUT, _TIMEOUT, tag)
            self._portions.seen(len(delivery.body) for delivery in arrived)
            self._keep(channel, arrived)
            if self._ahead or not arrived:
                return
        for _ in range(2 if settling else 0):
            method, properties, body = channel.basic_get(self._name)
            if method is not None:  # it came just now
                self._keep(channel, [DecodedDelivery(method, properties, body)])

    def _keep(self, channel: Any, arrived: Sequence[DecodedDelivery]) -> None:
        """Add messages to `_ahead` that may be returned once more; copies of the others go to the queue's end."""
        for delivery in arrived:
            self._among_returned = given_back(delivery.properties) > 0
            if self._worn_at is not None and given_back(delivery.properties) >= self._worn_at:
                self._renewal.renew(channel, *delivery)
                continue
            tag = delivery.method.delivery_tag
            self._kept[channel].add(tag)
            self._ahead.append(TakenMessage(message=read_delivery(delivery), tag=(channel, tag)))

    def _acknowledge(self, channel: Any, tags: Sequence[int]) -> None:
        """In one acknowledgement as far as nothing before is kept, and singly from there on."""
        kept = self._kept[channel]
        kept.difference_update(tags)
        first_kept = min(kept, default=tags[-1] + 1)
        together = [tag for tag in tags if tag < first_kept]
        if together:
            channel.basic_ack(together[-1], multiple=True)
        for tag in tags[len(together) :]:
            channel.basic_ack(tag)

    def _roomy_channel(self) -> Any:
        """A channel that may have one more consumer, and those of the removals in between."""
        if self._consumers - self._consumed_before >= _CONSUMERS:
            self._channels.append(self._channel.connection.channel())
            self._kept[self._channels[-1]] = set()
            self._consumed_before = self._consumers
        return self._channels[-1]


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    try:
        with quiet_pika():
            yield
    except exceptions.ChannelClosed as error:
        raise TransportError(f"queue {name!r} cannot be received from: {reason_of(error)}") from None
