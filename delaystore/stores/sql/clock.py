"""The database's clock, without a round trip for each look at it."""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

CALIBRATE_EVERY: Final = 10.0
"""Seconds between two looks at the database's clock."""


class DatabaseClock:
    """The database's time, carried on by this process's monotonic clock.

    It is never ahead of the database's: the time between the database's reading and its arrival here is left out.
    """

    def __init__(self, read: Callable[[], datetime]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._reading: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """The present instant, aware, in UTC; may raise what reading the database's clock raises."""
        reading = self._reading
        if reading is None or time.monotonic() - reading[1] > CALIBRATE_EVERY:
            reading = self._calibrate()
        return reading[0] + timedelta(seconds=time.monotonic() - reading[1])

    def _calibrate(self) -> tuple[datetime, float]:
        instant = self._read()
        with self._lock:
            self._reading = (instant, time.monotonic())
            return self._reading
