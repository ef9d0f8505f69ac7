"""The source's clock: what is due is due by it."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from delaystore.migrations.abc import MigrationSource, Problem

TOLERATED: Final = timedelta(minutes=1)
"""Clocks that differ by less are not worth a word."""
_ZONE_STEP: Final = timedelta(minutes=30)
"""Nearly all time zones differ by multiples of it."""
_FRESH: Final = 30.0
"""Seconds that a reading of the source's clock is carried on by the computer's own."""


class SourceClock:
    """The source's clock, read now and then, and carried on in between; never ahead of it but by drift."""

    def __init__(self, source: MigrationSource) -> None:
        self._source = source
        self._lock = Lock()
        self._read = -_FRESH
        self.refresh()

    def refresh(self) -> None:
        """Read the source's clock, if that was long ago; to be called where the source may be used."""
        if time.monotonic() - self._read < _FRESH:
            return
        instant = self._source.now()
        with self._lock:
            self._instant, self._read = instant, time.monotonic()

    def now(self) -> datetime:
        """The present instant; from any thread."""
        with self._lock:
            return self._instant + timedelta(seconds=time.monotonic() - self._read)


def clock_problems(whose: str, theirs: datetime, ours: datetime) -> Sequence[Problem]:
    """What is wrong with a clock, compared with this computer's: a time zone taken for another, or a difference."""
    difference = theirs - ours
    size = abs(difference)
    if size <= TOLERATED:
        return []
    way = "ahead of" if difference > timedelta(0) else "behind"
    from_step = min(size % _ZONE_STEP, _ZONE_STEP - size % _ZONE_STEP)
    if size >= _ZONE_STEP - TOLERATED and from_step <= TOLERATED:
        hours = round(size / _ZONE_STEP) / 2
        return [
            Problem(
                whose,
                f"is {hours:g} h {way} this computer's, as if one were in another time zone: every message would be "
                "early or late by that; put the clock or its time zone right",
            )
        ]
    return [
        Problem(
            whose,
            f"is {timedelta(seconds=round(size.total_seconds()))} {way} this computer's; "
            "what is due goes by the source's",
            fatal=False,
        )
    ]
