"""The database's clock, without a round trip for each look at it."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

CALIBRATE_EVERY: Final = 10.0
"""Seconds between two looks at the database's clock."""


class DatabaseClock:
    """The database's time, carried on by this process's monotonic clock.

    The time between the database's reading and its arrival here is left out, so that this one is behind rather than
    ahead. A step back of the database's clock is noticed at the next look.
    """

    def __init__(self, read: Callable[[], datetime]) -> None:
        self._read = read
        self._reading: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """The present instant, aware, in UTC; may raise what reading the database's clock raises."""
        reading = self._reading
        if reading is None or time.monotonic() - reading[1] > CALIBRATE_EVERY:
            reading = self._calibrate()
        return reading[0] + timedelta(seconds=time.monotonic() - reading[1])

    def _calibrate(self) -> tuple[datetime, float]:
        instant = self._read()
        self._reading = reading = (instant, time.monotonic())
        return reading
