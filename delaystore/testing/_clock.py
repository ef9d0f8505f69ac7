"""A clock that stands still until it is told otherwise."""

from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from delaystore.errors import InvalidMessageError
from delaystore.message import utc

_START: Final = datetime(2027, 1, 1, 12, tzinfo=UTC)


class SettableClock:
    """A `Clock` for tests; may be shared by threads.

    `now`: aware; where it starts. Raises InvalidMessageError for a naive one.
    """

    def __init__(self, now: datetime = _START) -> None:
        self._lock = Lock()
        self._now = utc(now, "now")

    def __repr__(self) -> str:
        return f"SettableClock({self.now().isoformat()})"

    def now(self) -> datetime:
        """The instant it was set to, aware, in UTC."""
        with self._lock:
            return self._now

    def advance(
        self,
        span: timedelta | float = 0,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Move on by the sum of a timedelta or seconds, and what is named; back, if that is negative.

        Returns the new instant. Raises InvalidMessageError for what is no length of time, or leads too far.
        """
        span = sum_of(span, days=days, hours=hours, minutes=minutes, seconds=seconds)
        with self._lock:
            self._now = moved(self._now, span)
            return self._now

    def set(self, now: datetime) -> None:
        """Go to `now`, aware."""
        now = utc(now, "now")
        with self._lock:
            self._now = now


def sum_of(
    span: timedelta | float, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
) -> timedelta:
    """`span`, a timedelta or seconds, and what is named, together; raises InvalidMessageError for what is no length."""
    try:
        span = span if isinstance(span, timedelta) else timedelta(seconds=span)
        return span + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (TypeError, ValueError, OverflowError) as error:  # also NaN and infinity
        raise InvalidMessageError(f"time cannot pass by that much: {error}") from None


def moved(now: datetime, span: timedelta) -> datetime:
    """The instant `span` after `now`; raises InvalidMessageError where there is none."""
    try:
        return utc(now + span, "now")
    except OverflowError:
        raise InvalidMessageError(f"the clock cannot go from {now.isoformat()} by {span}") from None
