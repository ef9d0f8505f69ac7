"""When a message that waits in a cascade is due."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from delaystore.times import parse_time
from delaystore.transports.rabbitmq.delay_headers import DELAY_IN_SECONDS, TIME_SENT, due_time
from delaystore.transports.rabbitmq.raw import integer_of, text_of
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology, DelayKey, DueBy

_TIME_SENT: Final = TIME_SENT.encode()
_DELAY_IN_SECONDS: Final = DELAY_IN_SECONDS.encode()
_WRITTEN: Final = len("2026-05-01 12:00:00:000000 Z")
_DECADES: Final = 2**32
"""Seconds; a longer delay may lead beyond the calendar."""
_CELERY_TASK: Final = b"task"
_CELERY_ETA: Final = b"eta"
"""ISO 8601 with an offset, in the headers of a Celery task (task message protocol, version 2)."""


class Remaining(NamedTuple):
    """How long a message has yet to wait; below 0: it is overdue. `exact`: known by its headers."""

    delay: timedelta
    exact: bool


def remaining(
    headers: Mapping[bytes, bytes], key: DelayKey, level: int, cascade: CascadeTopology, due_by: DueBy, now: datetime
) -> Remaining | None:
    """How long a message in the queue of `level` has yet to wait; None: nobody can tell."""
    due = None if due_by is DueBy.KEY else due_by_headers(headers)
    if due is not None:
        return Remaining(due - now, exact=True)
    if due_by is DueBy.HEADERS:
        return None
    return Remaining(at_most(key, level, cascade), exact=False)


def due_by_headers(headers: Mapping[bytes, bytes]) -> datetime | None:
    """TimeSent + DelayInSeconds, or a Celery task's eta; None: neither can be read."""
    sent, delay = text_of(headers.get(_TIME_SENT)), integer_of(headers.get(_DELAY_IN_SECONDS))
    due = None if sent is None or delay is None else _sum(sent, delay)
    if due is None and _CELERY_TASK in headers:
        due = _instant(text_of(headers.get(_CELERY_ETA)))
    return due


def at_most(key: DelayKey, level: int, cascade: CascadeTopology) -> timedelta:
    """The delays of the present level, and of the levels below it that the key leads through."""
    return (key.units & (2 << level) - 1) * cascade.unit


def at_least(key: DelayKey, level: int, cascade: CascadeTopology) -> timedelta:
    """The delays of the levels below the present one that the key leads through."""
    return (key.units & (1 << level) - 1) * cascade.unit


def _sum(sent: str, delay: int) -> datetime | None:
    """The due time by both headers. Text exactly as NServiceBus writes it is read ten times faster."""
    if len(sent) == _WRITTEN and sent[10] + sent[19] == " :" and sent.endswith(" Z") and abs(delay) < _DECADES:
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(f"{sent[:19]}.{sent[20:26]}+00:00") + timedelta(seconds=delay)
    return due_time({TIME_SENT: sent, DELAY_IN_SECONDS: delay})


def _instant(text: str | None) -> datetime | None:
    try:
        instant = parse_time(text or "")
        return instant.astimezone(UTC) if instant.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
