"""Delayed retry for consumers: a message that failed waits in a cascade, and comes back to its queue as it was."""

import copy
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from pika import exceptions, spec
from pika.adapters.blocking_connection import BlockingChannel

from delaystore.errors import ConfigurationError, TransportError, TransportUnavailableError, UnsupportedMessageError
from delaystore.text import (
    DEFAULT_EXCHANGE,
    EXCEPTION_MESSAGE,
    EXCEPTION_TYPE,
    FAILED_QUEUE,
    FAILURE_COUNT,
    STACK_TRACE,
    TIME_OF_FAILURE,
    Address,
    parse_address,
    without_carbon_copies,
)
from delaystore.text import EXPIRATION as KEPT_EXPIRATION
from delaystore.transports.rabbitmq.declaring import declare_part
from delaystore.transports.rabbitmq.delay_headers import (
    COUNTED_BY_QUEUE,
    TIME_SENT,
    dated,
    time_sent,
    time_sent_text,
    without_dead_letters,
)
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.pika_internals import ANSWER, answered_within
from delaystore.transports.rabbitmq.properties import UNENCODABLE
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2, CascadeTopology

__all__ = ["Expired", "NextStep", "Original", "RetryResult", "next_step", "original", "retry_later", "settle_expired"]

ATTEMPT: Final = "delaystore.retry.attempt"
"""How often the message has been delayed for another attempt: 1 at its first return."""
EXCHANGE: Final = "delaystore.retry.exchange"
ROUTING_KEY: Final = "delaystore.retry.routing-key"
EXPIRATION: Final = "delaystore.retry.expiration"
"""The time to live, in milliseconds as text; as a property it would shorten the delay."""
USER_ID: Final = "delaystore.retry.user-id"
"""The property user_id: RabbitMQ refuses any but the publisher's."""
RETRIED_CARBON_COPIES: Final = {"CC": "delaystore.retry.cc"}
"""The header CC, which would have each retry delivered to others again, and the one that keeps it."""
_OWN: Final = (ATTEMPT, EXCHANGE, ROUTING_KEY, USER_ID, *RETRIED_CARBON_COPIES.values(), EXPIRATION)
_DIGITS: Final = re.compile(r"\A(?:(?:[01]\.){28})+(?=.)", re.DOTALL)
"""The digits that NServiceBus and Celery put before an address, repeated where a message was delayed twice."""
_TIMESTAMP_STEP: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Original:
    """A message as it was first delivered: before a cascade replaced exchange, routing key and expiration.

    Attributes:
        exchange: The exchange that it was sent to.
        routing_key: Its routing key.
        properties: As the sender gave them, with headers and expiration, without the headers that retries and
            dead-lettering added; only NServiceBus' headers TimeSent and DelayInSeconds stay.
        attempt: How often it was delayed for another attempt; 0 at its first delivery.
        expires: When its time to live ends; None: never, or it was not retried, and the broker expires it.

    """

    exchange: str
    routing_key: str
    properties: spec.BasicProperties
    attempt: int
    expires: datetime | None

    def expired(self, now: datetime) -> bool:
        """Whether its time to live, counted from the original send, is over.

        Args:
            now: The present, an aware datetime.

        Returns:
            False also where it has none.

        """
        return self.expires is not None and self.expires <= now


def original(method: Any, properties: Any, *, topology: CascadeTopology = NSERVICEBUS_V2) -> Original:
    """The message as it was first delivered, whether it was retried since or not.

    The exchange of a message that another program delayed is lost: it counts as sent to the default exchange, with the
    routing key behind the digits.

    Args:
        method: As pika gave it to the consumer; it is not changed.
        properties: As pika gave them to the consumer; they are not changed.
        topology: The cascade that retries pass.

    Returns:
        The message.

    """
    headers = properties.headers or {}
    attempt = _attempt(headers)
    exchange, routing_key = headers.get(EXCHANGE), headers.get(ROUTING_KEY)
    if not (isinstance(exchange, str) and isinstance(routing_key, str)):
        exchange, routing_key = _sent_to(method, topology)
    before = copy.copy(properties)
    if not attempt:
        return Original(exchange, routing_key, before, 0, None)
    before.headers = _as_sent(headers)
    before.expiration = headers.get(EXPIRATION)
    before.user_id = headers.get(USER_ID)
    return Original(exchange, routing_key, before, attempt, _expiry(headers))


def delayed_properties(
    first: Original, delay: timedelta, now: datetime
) -> tuple[spec.BasicProperties, datetime | None]:
    """The properties to publish into a cascade for one more attempt after `delay`, and when the time to live ends.

    The time to live counts from the header NServiceBus.TimeSent, or else from the property `timestamp` (whole seconds,
    so the end of that second), or else from `now`.
    """
    properties = _publishable(first, EXPIRATION)
    if time_sent(properties.headers) is None:
        properties.headers[TIME_SENT] = time_sent_text(_timestamp(properties, now))
    properties.headers = {**dated(properties.headers, now + delay, now), ATTEMPT: first.attempt + 1}
    return properties, _expiry(properties.headers)


def failed_properties(first: Original, failure: Mapping[str, Any]) -> spec.BasicProperties:
    """The properties for an error queue: the message does not expire there, and retries count from 0 again."""
    properties = _publishable(first, KEPT_EXPIRATION)
    properties.headers.update(failure)
    return properties


def _publishable(first: Original, expiration: str) -> spec.BasicProperties:
    """The original's properties, with properties that RabbitMQ would refuse or act upon moved into headers.

    `expiration`: the header for the time to live.
    """
    properties = copy.copy(first.properties)
    headers = dict(without_carbon_copies(without_dead_letters(properties.headers or {}), RETRIED_CARBON_COPIES))
    for name in (*COUNTED_BY_QUEUE, EXPIRATION):
        headers.pop(name, None)
    kept = {
        EXCHANGE: first.exchange,
        ROUTING_KEY: first.routing_key,
        expiration: properties.expiration,
        USER_ID: properties.user_id,
    }
    headers.update({name: value for name, value in kept.items() if value is not None})
    properties.headers, properties.expiration, properties.user_id = headers, None, None
    return properties


def _as_sent(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The sender's own headers."""
    taken_off = (*_OWN, *COUNTED_BY_QUEUE)
    own = {name: value for name, value in without_dead_letters(headers).items() if name not in taken_off}
    return own | {name: headers[kept] for name, kept in RETRIED_CARBON_COPIES.items() if kept in headers}


def _sent_to(method: Any, topology: CascadeTopology) -> Address:
    """Where a message that was never retried was sent to, without the digits of a cascade that it passed."""
    key = _DIGITS.sub("", method.routing_key)
    if method.exchange in topology.names():
        while (read := topology.read_key(key)) is not None:
            key = read.address
    return Address(method.exchange if key == method.routing_key else DEFAULT_EXCHANGE, key)


def _attempt(headers: Mapping[str, Any]) -> int:
    attempt = headers.get(ATTEMPT)
    return int(attempt) if isinstance(attempt, int) and attempt > 0 else 0


def _timestamp(properties: spec.BasicProperties, now: datetime) -> datetime:
    """When the message was sent, by its property; not after `now`."""
    try:
        return min(now, datetime.fromtimestamp(properties.timestamp, UTC) + _TIMESTAMP_STEP)
    except (TypeError, OverflowError, ValueError, OSError):
        return now


def _expiry(headers: Mapping[str, Any]) -> datetime | None:
    sent, expiration = time_sent(headers), headers.get(EXPIRATION)
    if sent is None or not isinstance(expiration, str) or not (expiration.isascii() and expiration.isdigit()):
        return None
    try:
        return sent + timedelta(milliseconds=int(expiration))
    except OverflowError:
        return None


_EXPLANATIONS: Final = (16_384, 256)
"""Characters of an explanation; the second, where the first does not fit."""
_MAX_ENCODED_BYTES: Final = 128 * 1024 - 64
"""Headers and properties must fit one frame of RabbitMQ's default size."""


class Expired(StrEnum):
    """What to do with a message whose time to live ends while it waits.

    DROP: it is acknowledged. DEAD_LETTER: it is rejected, so that the queue's own dead-letter exchange gets it, as if
    it had expired in the queue; a queue without one drops it.
    """

    DROP = "drop"
    DEAD_LETTER = "dead-letter"


class RetryResult(StrEnum):
    """The result of a retry.

    DELAYED: it waits in the cascade. FAILED: it is in the error queue. EXPIRED: its time to live would have ended.
    """

    DELAYED = "delayed"
    FAILED = "failed"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step for a message: publish it to `address` with `properties`, then acknowledge the original.

    Attributes:
        result: The result for the message.
        address: Where to publish it; None, with RetryResult.EXPIRED: publish nothing; acknowledge the original, or
            reject it without requeueing.
        properties: The properties of the copy.

    """

    result: RetryResult
    address: Address | None
    properties: spec.BasicProperties


def retry_later(
    channel: BlockingChannel,
    method: Any,
    properties: Any,
    body: bytes,
    delay: timedelta | float,
    *,
    queue: str,
    topology: CascadeTopology = NSERVICEBUS_V2,
    limit: int | None = None,
    error_queue: str | None = None,
    error: BaseException | None = None,
    expired: Expired = Expired.DEAD_LETTER,
    bind: bool = True,
) -> RetryResult:
    """Have a message that could not be handled come back to its queue after a delay, and acknowledge this delivery.

    If the process dies, the message is in the queue until RabbitMQ has confirmed the copy. Then it is in both until the
    acknowledgement has arrived, and may be handled twice. After that it is in the cascade or error queue alone. On an
    error it stays unacknowledged, for the caller to `basic_nack`.

    Args:
        channel: The consumer's channel, without auto_ack. It is put into confirm mode. For other connections than
            BlockingConnection see `next_step`.
        method: As pika gave it to the consumer.
        properties: As pika gave them to the consumer.
        body: As pika gave it to the consumer.
        delay: A timedelta or seconds, rounded up to the cascade's unit.
        queue: The consumer's queue.
        topology: A cascade that exists (`delaystore cascade create`).
        limit: How often a message is delayed. After that it goes to `error_queue`, for any delay. None: no limit.
        error_queue: A queue, or an address as `parse_address` reads it.
        error: Why it failed, for NServiceBus' failure headers in the error queue.
        expired: What to do with a message whose time to live, counted from its original send, ends before the delay.
        bind: Bind the queue to the cascade's end, each time. False: that is done (`delaystore cascade bind`).

    Returns:
        The result for the message.

    Raises:
        ConfigurationError: The arguments cannot work.
        UnsupportedMessageError: The delay, the queue's name or the message does not fit.
        TransportError: RabbitMQ refuses. Some refusals close the channel, which requeues the message.
        TransportUnavailableError: The connection is lost, or the broker has not answered within 30 seconds.

    """
    if not isinstance(channel, BlockingChannel):
        raise ConfigurationError("retry_later needs the channel of a BlockingConnection; see next_step for others")
    step = next_step(
        method, properties, delay, queue=queue, topology=topology, limit=limit, error_queue=error_queue, error=error
    )
    try:
        with quiet_pika(), answered_within(channel.connection, ANSWER):
            if step.address is None:
                _settle(channel, method, expired)
                return step.result
            channel.confirm_delivery()  # nothing changes if it is on already
            if bind and step.result is RetryResult.DELAYED:
                for binding in topology.destination_bindings(queue):
                    declare_part(channel, binding)
            channel.basic_publish(*step.address, body, step.properties, mandatory=True)
            channel.basic_ack(method.delivery_tag)
    except exceptions.AMQPError as cause:
        raise _refusal(cause, step) from cause
    return step.result


def next_step(
    method: Any,
    properties: Any,
    delay: timedelta | float,
    *,
    queue: str,
    topology: CascadeTopology = NSERVICEBUS_V2,
    limit: int | None = None,
    error_queue: str | None = None,
    error: BaseException | None = None,
    now: datetime | None = None,
) -> NextStep:
    """Plan the step of `retry_later`, for SelectConnection and other clients.

    Publish `mandatory`, on a channel in confirm mode, and acknowledge the original (`basic_ack`) only in the callback
    for the confirm; where the broker nacks or returns the copy, `basic_nack` the original. Bind the queue to the
    cascade before, by `topology.destination_bindings(queue)`.

    Args:
        method: As pika gave it to the consumer.
        properties: As pika gave them to the consumer.
        delay: A timedelta or seconds, rounded up to the cascade's unit.
        queue: The consumer's queue.
        topology: A cascade that exists.
        limit: How often a message is delayed. After that it goes to `error_queue`, for any delay. None: no limit.
        error_queue: A queue, or an address as `parse_address` reads it.
        error: Why it failed, for NServiceBus' failure headers in the error queue.
        now: The present, an aware datetime; None: by this computer's clock.

    Returns:
        Where to publish the copy, with which properties; no address: the message has expired, and no copy is published.

    Raises:
        ConfigurationError: The arguments cannot work.
        UnsupportedMessageError: The delay, the queue's name or the message does not fit.

    """
    _check(limit, error_queue)
    now = now or datetime.now(UTC)
    first = original(method, properties, topology=topology)
    if limit is not None and error_queue is not None and first.attempt >= limit:
        return NextStep(RetryResult.FAILED, parse_address(error_queue), _explained(first, queue, error, now))
    address = topology.route(delay, queue)
    span = topology.unit * topology.units(delay)
    copy, expires = delayed_properties(first, span, now)
    if expires is not None and expires <= now + span:
        return NextStep(RetryResult.EXPIRED, None, first.properties)
    if not _fits(copy):
        raise UnsupportedMessageError("the message's headers leave no room in a frame for those of a retry")
    return NextStep(RetryResult.DELAYED, address, copy)


def settle_expired(channel: Any, method: Any, properties: Any, *, expired: Expired = Expired.DEAD_LETTER) -> bool:
    """Drop or dead-letter a message that came back after its time to live.

    Call it first in a consumer, with any pika channel: RabbitMQ itself no longer expires a message that was retried.

    Args:
        channel: The consumer's channel.
        method: As pika gave it to the consumer.
        properties: As pika gave them to the consumer.
        expired: What to do with the message if it has expired.

    Returns:
        False: it has not expired; nothing was done.

    """
    if not original(method, properties).expired(datetime.now(UTC)):
        return False
    _settle(channel, method, expired)
    return True


def _check(limit: int | None, error_queue: str | None) -> None:
    if limit is None:
        return
    if type(limit) is not int or limit < 0:
        raise ConfigurationError(f"limit must be a whole number from 0, not {limit!r}")
    if error_queue is None:
        raise ConfigurationError("a limit needs an error_queue for the messages that reach it")


def _settle(channel: Any, method: Any, expired: Expired) -> None:
    if expired is Expired.DROP:
        channel.basic_ack(method.delivery_tag)
    else:
        channel.basic_reject(method.delivery_tag, requeue=False)


def _explained(first: Original, queue: str, error: BaseException | None, now: datetime) -> spec.BasicProperties:
    """The properties for the error queue, with as much of the explanation as fits."""
    for length in _EXPLANATIONS:
        properties = failed_properties(first, _failure_headers(first, queue, error, now, length))
        if _fits(properties):
            return properties
    raise UnsupportedMessageError("the message's headers leave no room in a frame for those of a failure")


def _failure_headers(
    first: Original, queue: str, error: BaseException | None, now: datetime, length: int
) -> Mapping[str, Any]:
    failures = first.attempt + 1
    kind, reason = "delaystore.retries-exhausted", f"not handled in {failures} attempts"
    trace = reason
    if error is not None:
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        reason = str(error) or reason
        trace = "".join(traceback.format_exception(error))
    return {
        EXCEPTION_TYPE: _utf8(kind),
        EXCEPTION_MESSAGE: _utf8(reason)[:length],
        STACK_TRACE: _utf8(trace)[-length:],
        TIME_OF_FAILURE: time_sent_text(now),
        FAILED_QUEUE: queue,
        FAILURE_COUNT: failures,
    }


def _utf8(text: str) -> str:
    """`text` with escapes for lone surrogates, as in undecodable file names: AMQP cannot hold them."""
    return text.encode(errors="backslashreplace").decode()


def _fits(properties: spec.BasicProperties) -> bool:
    try:
        return sum(map(len, properties.encode())) <= _MAX_ENCODED_BYTES
    except UNENCODABLE:
        raise UnsupportedMessageError("the message has headers or properties that pika cannot write") from None


def _refusal(cause: exceptions.AMQPError, step: NextStep) -> TransportError:
    """The error to raise for pika's error `cause`."""
    where = "" if step.address is None else f" to exchange {step.address.exchange!r}"
    kept = "the message is not acknowledged"
    if isinstance(cause, exceptions.UnroutableError):
        missing = (
            "the error queue is missing"
            if step.result is RetryResult.FAILED
            else "run delaystore cascade create, and bind"
        )
        return TransportError(f"nothing takes the message{where}: {missing}; {kept}")
    if isinstance(cause, exceptions.NackError):
        return TransportError(f"RabbitMQ refused the message{where}; check whether a queue is full; {kept}")
    if isinstance(cause, exceptions.ChannelClosed):
        return TransportError(
            f"RabbitMQ closed the channel on publishing{where}: {reason_of(cause)}; "
            "run delaystore cascade create, or grant permissions; the message goes back to its queue"
        )
    return TransportUnavailableError(f"the connection or channel to RabbitMQ was lost: {reason_of(cause)}; {kept}")
