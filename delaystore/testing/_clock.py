"""A clock that stands still until it is told otherwise."""

from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

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

    def advance(self, span: timedelta | float) -> datetime:
        """Move on by a timedelta or seconds (back, if negative); returns the new instant."""
        span = span if isinstance(span, timedelta) else timedelta(seconds=span)
        with self._lock:
            self._now = utc(self._now + span, "now")
            return self._now

    def set(self, now: datetime) -> None:
        """Go to `now`, aware."""
        now = utc(now, "now")
        with self._lock:
            self._now = now
