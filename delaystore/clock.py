"""Time as a dependency."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the present instant; tests pass a settable one (`delaystore.testing.SettableClock`)."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...


class SystemClock:
    """The computer's own clock."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        return datetime.now(UTC)
