"""From when a delay counts."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from delaystore.errors import ConfigurationError
from delaystore.ingress.reading._values import EPOCH
from delaystore.ingress.reading.content import Content

RECEIVED: Final = "timestamp_in_ms"
"""Milliseconds since 1970, by the clock of the broker that was given the message: its message interceptor's header."""
_EARLIEST: Final = 10**12
"""In 2001. What is less counts something else than milliseconds, or is made up."""
_STEP: Final = timedelta(seconds=1)
"""A timestamp is cut to whole seconds; the delay counts from the end of its second, and is never too short."""


class CountFrom(StrEnum):
    """From when a delay counts, if it is not the time of its arrival here.

    RECEIVED: from when the broker was given the message, if its header says so. SENT: the same, and without such a
    header from the property `timestamp`. TAKEN: always from the arrival.
    """

    RECEIVED = "received"
    SENT = "sent"
    TAKEN = "taken"


def parse_count_from(text: str, option: str) -> CountFrom:
    """`received`, `sent` or `taken`; ConfigurationError naming `option` for anything else."""
    try:
        return CountFrom(text.strip().lower())
    except ValueError:
        known = ", ".join(CountFrom)
        raise ConfigurationError(f"{option} {text!r} is nothing to count from; there are {known}") from None


def start_of(content: Content, now: datetime, count_from: CountFrom) -> datetime:
    """When the delay began; never after `now`. What says something absurd is not believed."""
    if count_from is CountFrom.TAKEN:
        return now
    received = content.headers.get(RECEIVED)
    if received is not None:
        return _received(received, now)
    if count_from is CountFrom.SENT:
        sent = content.properties.get("timestamp")
        if isinstance(sent, datetime) and sent.timestamp() * 1000 >= _EARLIEST:
            return min(now, sent + _STEP)
    return now


def _received(milliseconds: Any, now: datetime) -> datetime:
    if type(milliseconds) is not int or milliseconds < _EARLIEST:
        return now
    try:
        return min(now, EPOCH + timedelta(milliseconds=milliseconds))
    except OverflowError:
        return now
