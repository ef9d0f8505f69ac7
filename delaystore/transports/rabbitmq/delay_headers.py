"""The headers of a message that RabbitMQ delays: NServiceBus' own, so that its tools can move our messages."""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delaystore.headers import EXPIRATION
from delaystore.message import DelayedMessage

DELAY_IN_SECONDS: Final = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"
TIME_SENT: Final = "NServiceBus.TimeSent"
"""`yyyy-MM-dd HH:mm:ss:ffffff Z`; with DELAY_IN_SECONDS added it is the due time."""
_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S:%f Z"
DEAD_LETTER_HEADERS: Final = ("x-death", "x-first-death-", "x-last-death-")
"""How the names of the headers begin that dead-lettering adds."""
COUNTED_BY_QUEUE: Final = ("x-delivery-count", "x-acquired-count")
"""Headers that a quorum queue adds to a message it delivers again."""


def time_sent(headers: Mapping[str, Any]) -> datetime | None:
    """When the message was sent, by its header; None: it has none that can be read."""
    text = headers.get(TIME_SENT)
    if not isinstance(text, str):
        return None
    try:
        return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def time_sent_text(instant: datetime) -> str:
    """`instant` as NServiceBus writes it."""
    return instant.astimezone(UTC).strftime(_TIME_FORMAT)


def due_time(headers: Mapping[str, Any]) -> datetime | None:
    """When the message is due, by its headers; None: they do not say."""
    sent, delay = time_sent(headers), headers.get(DELAY_IN_SECONDS)
    if sent is None or type(delay) is not int:
        return None
    try:
        return sent + timedelta(seconds=delay)
    except OverflowError:
        return None


def without_dead_letters(headers: Mapping[str, Any]) -> dict[str, Any]:
    """`headers` without those of dead-lettering: by these RabbitMQ would drop the message as going round in circles."""
    return {name: value for name, value in headers.items() if not name.startswith(DEAD_LETTER_HEADERS)}


def to_be_delayed(message: DelayedMessage, now: datetime) -> DelayedMessage:
    """`message` as RabbitMQ is to keep it from `now` on: persistent, with NServiceBus' headers, and no expiration.

    An older TimeSent stays, and the delay is counted from it.
    """
    headers = without_dead_letters(message.headers)
    sent = time_sent(headers)
    if sent is None or sent > message.due_time:
        sent = now
        headers[TIME_SENT] = time_sent_text(now)
    headers[DELAY_IN_SECONDS] = max(0, math.ceil((message.due_time - sent) / timedelta(seconds=1)))
    properties = dict(message.properties)
    properties.pop("delivery_mode", None)  # persistent is the default
    expiration = properties.pop("expiration", None)
    if expiration is not None:
        headers[EXPIRATION] = expiration
    return replace(message, headers=headers, properties=properties)
