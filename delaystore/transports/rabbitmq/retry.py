"""Delayed retry for consumers: a message that failed waits in a cascade, and comes back to its queue."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from pika import exceptions, spec
from pika.adapters.blocking_connection import BlockingChannel

from delaystore.address import Address, parse_address
from delaystore.errors import (
    ConfigurationError,
    TransportError,
    TransportUnavailableError,
    UnsupportedMessageError,
)
from delaystore.headers import (
    EXCEPTION_MESSAGE,
    EXCEPTION_TYPE,
    FAILED_QUEUE,
    FAILURE_COUNT,
    STACK_TRACE,
    TIME_OF_FAILURE,
)
from delaystore.transports.rabbitmq._properties import UNENCODABLE
from delaystore.transports.rabbitmq._retry_headers import Original, delayed_properties, failed_properties, original
from delaystore.transports.rabbitmq.declaring import declare_part
from delaystore.transports.rabbitmq.delay_headers import time_sent_text
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.pika_internals import ANSWER, answered_within
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2, CascadeTopology

_EXPLANATIONS: Final = (16_384, 256)
"""Characters of an explanation; the second, where the first does not fit."""
_MAX_ENCODED_BYTES: Final = 128 * 1024 - 64
"""Headers and properties must fit one frame of RabbitMQ's default size."""

__all__ = ["Expired", "NextStep", "Original", "RetryResult", "next_step", "original", "retry_later", "settle_expired"]


class Expired(StrEnum):
    """What to do with a message whose time to live ends while it waits.

    DROP: it is acknowledged. DEAD_LETTER: it is rejected, so that the queue's own dead-letter exchange gets it, as if
    it had expired in the queue; a queue without one drops it.
    """

    DROP = "drop"
    DEAD_LETTER = "dead-letter"


class RetryResult(StrEnum):
    """What became of a message.

    DELAYED: it waits in the cascade. FAILED: it is in the error queue. EXPIRED: its time to live would have ended.
    """

    DELAYED = "delayed"
    FAILED = "failed"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do with a message: publish it to `address` with `properties`, then acknowledge the original.

    `address` None, with RetryResult.EXPIRED: publish nothing; acknowledge, or reject without requeueing.
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
    """Have a message that could not be handled come back to its queue after `delay`, and acknowledge this delivery.

    `channel`, `method`, `properties`, `body`: as pika gave them to a consumer without auto_ack. The channel is put in
    confirm mode, if it is not yet; for another kind of connection than BlockingConnection see `next_step`.
    `delay`: a timedelta or seconds, rounded up to the cascade's unit. `queue`: the consumer's own.
    `topology`: a cascade that exists (`delaystore delays create`). `bind`: bind the queue to its end, each time; False
    where that is done by others (`delaystore delays bind`).
    `limit`: how often a message is delayed; after that it goes to `error_queue` (a queue, or an address as
    `parse_address` reads it), whatever the delay, with `error`, why it failed, in NServiceBus' failure headers.
    `expired`: what to do with a message whose time to live, counted from its original send, ends before the delay.

    If the process dies, the message is in the queue until RabbitMQ has confirmed the copy; then in both until the
    acknowledgement has arrived, and may be handled twice; then in the cascade or error queue alone.

    On an error it stays unacknowledged, for the caller to `basic_nack`. Raises ConfigurationError for arguments that
    cannot work, UnsupportedMessageError for a delay, queue name or message that does not fit, TransportError where
    RabbitMQ refuses (some refusals close the channel, which requeues), TransportUnavailableError for a lost connection;
    a broker that does not answer within 30 seconds loses it.
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
    """What `retry_later` would do, for SelectConnection and other clients. Arguments and errors as there.

    Publish `mandatory`, on a channel in confirm mode, and acknowledge the original (`basic_ack`) only in the callback
    for the confirm; where the broker nacks or returns the copy, `basic_nack` the original. Bind the queue to the
    cascade before, by `topology.destination_bindings(queue)`.
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
    """Drop or dead-letter a message that came back after its time to live; False: it has not expired; nothing was done.

    Call it first in a consumer, with any pika channel: RabbitMQ itself no longer expires a message that was retried.
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
            else "run delaystore delays create, and bind"
        )
        return TransportError(f"nothing takes the message{where}: {missing}; {kept}")
    if isinstance(cause, exceptions.NackError):
        return TransportError(f"RabbitMQ refused the message{where}; check whether a queue is full; {kept}")
    if isinstance(cause, exceptions.ChannelClosed):
        return TransportError(
            f"RabbitMQ closed the channel on publishing{where}: {reason_of(cause)}; "
            "run delaystore delays create, or grant permissions; the message goes back to its queue"
        )
    return TransportUnavailableError(f"the connection or channel to RabbitMQ was lost: {reason_of(cause)}; {kept}")
