"""The headers of a message that RabbitMQ delays: NServiceBus' own, so that its tools can move our messages."""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delaystore.message import DelayedMessage
from delaystore.text import EXPIRATION

DELAY_IN_SECONDS: Final = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"
"""A number of 32 bits: NServiceBus' tools break off at any other type."""
TIME_SENT: Final = "NServiceBus.TimeSent"
"""`yyyy-MM-dd HH:mm:ss:ffffff Z`; with DELAY_IN_SECONDS added it is the due time."""
_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S:%f Z"
_SECOND: Final = timedelta(seconds=1)
_LONGEST: Final = (2**31 - 1) * _SECOND
"""The longest delay that DELAY_IN_SECONDS can hold."""
DEAD_LETTER_HEADERS: Final = ("x-death", "x-first-death-", "x-last-death-")
"""How the names of the headers begin that dead-lettering adds."""
COUNTED_BY_QUEUE: Final = ("x-delivery-count", "x-acquired-count")
"""Headers that a quorum queue adds to a message it delivers again."""


def time_sent(headers: Mapping[str, Any]) -> datetime | None:
    """When the message was sent, by its header; None: it has none that can be read.

    Others may write it without zeros in front, which NServiceBus' tools refuse; `dated` writes it again.
    """
    return parsed_time(headers.get(TIME_SENT))


def parsed_time(text: object) -> datetime | None:
    """A time as NServiceBus writes it; None: it is none."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def time_sent_text(instant: datetime) -> str:
    """`instant` as NServiceBus writes it, and its tools demand it: four digits for the year, six for the fraction."""
    text = instant.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
    return f"{text.replace('.', ':')} Z"


def dated(headers: Mapping[str, Any], due: datetime, now: datetime) -> dict[str, Any]:
    """`headers` with both that say when the message is due, as NServiceBus writes them.

    An older TimeSent stays, written again, and the delay is counted from it. It is `now` where it cannot be read, or is
    after `due`, or so long ago that the delay would not fit; for a delay that does not fit from `now` on, it is later.
    """
    sent = time_sent(headers)
    if sent is None or not timedelta(0) <= due - sent <= _LONGEST:
        sent = now if due - now <= _LONGEST else due - _LONGEST
    delay = max(0, math.ceil((due - sent) / _SECOND))
    return {**headers, TIME_SENT: time_sent_text(sent), DELAY_IN_SECONDS: delay}


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
    """`message` as RabbitMQ is to keep it from `now` on: persistent, `dated`, and without expiration."""
    headers = dated(without_dead_letters(message.headers), message.due_time, now)
    properties = dict(message.properties)
    properties.pop("delivery_mode", None)  # persistent is the default
    expiration = properties.pop("expiration", None)
    if expiration is not None:
        headers[EXPIRATION] = expiration
    return replace(message, headers=headers, properties=properties)
