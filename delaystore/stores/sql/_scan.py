"""Where the search for due messages starts.

A long transaction elsewhere keeps PostgreSQL from forgetting deleted rows, and a search from the beginning then walks
over everything that was ever deleted, at each fetch. So a fetch may start where the last one ended. What lies before
that position (sent late, rescheduled, let go by a crashed dispatcher) is found by the next search from the beginning,
and these come often: whenever the last one was cheap, or is at least ten times its own duration ago.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from delaystore.message import Position

SHARE: Final = 10
"""A search from the beginning may take at most one part in so many of the time."""
CHEAP: Final = 0.005
"""Seconds; after a search from the beginning that took no longer, the next one is allowed at once."""


class DueScan:
    """Decides, for all transactions of one store, where the next search starts.

    There is no lock, as a fork could leave it taken. If two threads write at once, one of them wins, and a search from
    the beginning may come a moment later.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._position: Position | None = None
        self._full_scan_from = 0.0

    def start(self) -> Position | None:
        """The position to start behind; None: search from the beginning."""
        return None if self._monotonic() >= self._full_scan_from else self._position

    def ended(self, started_at: Position | None, seconds: float, last: Position | None) -> None:
        """Note a search that began at `started_at`, took `seconds`, and whose last message was `last`."""
        if started_at is None:
            self._full_scan_from = self._monotonic() + SHARE * seconds if seconds > CHEAP else 0.0
            self._position = last
        elif last is not None:
            self._position = last

    def search_from_beginning(self, at: datetime | None = None) -> None:
        """Search from the beginning next time, if `at` (None: anything) lies before the position."""
        if at is None or self._position is None or at <= self._position.next_attempt:
            self._full_scan_from = 0.0

    def until_full_scan(self) -> timedelta:
        """How long until a search from the beginning is allowed; 0 when it is."""
        return timedelta(seconds=max(0.0, self._full_scan_from - self._monotonic()))
