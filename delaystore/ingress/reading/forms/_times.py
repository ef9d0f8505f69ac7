"""Whole milliseconds, and the times that they mean."""

import re
from datetime import datetime, timedelta
from typing import Any, Final

from delaystore.ingress.reading.content import shown
from delaystore.ingress.reading.incoming import EPOCH, RejectedMessageError
from delaystore.text import clamped_int

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_REST_OF_SECOND: Final = timedelta(milliseconds=999)


def integer_in(value: Any) -> int | None:
    """A whole number, or the one that text or bytes hold in ASCII digits; None: it is none."""
    if type(value) is int:
        return value
    if isinstance(value, bytes):
        value = value.decode("ascii", errors="replace")
    if type(value) is not str or not _INTEGER.fullmatch(value):
        return None
    return clamped_int(value)


def later(start: datetime, milliseconds: int, header: str) -> datetime:
    """`start` and a delay; raises RejectedMessageError where no datetime holds it."""
    try:
        return start + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise RejectedMessageError(f"header {header}: it would be due beyond the year 9999") from None


def since_epoch(milliseconds: int, header: str) -> datetime:
    """The time this number of milliseconds after 1970; 1970 itself for an earlier time."""
    return later(EPOCH, max(0, milliseconds), header)


def whole_second(time: datetime) -> datetime:
    """The end of a second whose milliseconds RabbitMQ has cut off, so that nothing is early."""
    return time + _REST_OF_SECOND


def unreadable(header: str, value: object, wanted: str) -> RejectedMessageError:
    """Why a header cannot be read."""
    return RejectedMessageError(f"header {header} is {shown(value)}; it must be {wanted}")
