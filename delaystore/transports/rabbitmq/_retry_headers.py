"""The headers of a message that is retried, and how to recover the original message."""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pika import spec

from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.headers import EXPIRATION as SET_ASIDE
from delaystore.headers import without_carbon_copies
from delaystore.transports.rabbitmq.delay_headers import (
    COUNTED_BY_QUEUE,
    TIME_SENT,
    dated,
    time_sent,
    time_sent_text,
    without_dead_letters,
)
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2, CascadeTopology

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

    `properties`: as the sender gave them, with headers and expiration, without what retries and dead-lettering added;
    only NServiceBus' headers TimeSent and DelayInSeconds stay.
    `attempt`: how often it was delayed for another attempt; 0 at its first delivery.
    `expires`: when its time to live ends; None: never, or it was not retried, and the broker expires it.
    """

    exchange: str
    routing_key: str
    properties: spec.BasicProperties
    attempt: int
    expires: datetime | None

    def expired(self, now: datetime) -> bool:
        """Whether its time to live, counted from the original send, is over at `now`."""
        return self.expires is not None and self.expires <= now


def original(method: Any, properties: Any, *, topology: CascadeTopology = NSERVICEBUS_V2) -> Original:
    """The message as it was first delivered, whether it was retried since or not.

    `method` and `properties`: what pika gave the consumer; neither is changed. `topology`: the cascade that retries
    pass. The exchange of a message that another program delayed is lost: it counts as sent to the default exchange,
    with the routing key behind the digits.
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
    properties = _publishable(first, SET_ASIDE)
    properties.headers.update(failure)
    return properties


def _publishable(first: Original, expiration: str) -> spec.BasicProperties:
    """The original's properties, with those that RabbitMQ would refuse or act upon moved into headers.

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
