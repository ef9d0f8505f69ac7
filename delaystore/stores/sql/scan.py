"""Where the search for due messages starts.

A long transaction elsewhere keeps PostgreSQL from forgetting deleted rows, and a search from the beginning then walks
over everything that was ever deleted, at each fetch. So a fetch may start where the last one ended. What wants
attention before that mark (sent late, rescheduled, let go by a crashed dispatcher) is found by the next search from
the beginning, and these come often: whenever the last one was cheap, or is at least ten times its own duration ago.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

SHARE: Final = 10
"""A search from the beginning may take at most one part in so many of the time."""
CHEAP: Final = 0.005
"""Seconds; searches from the beginning that take no longer are always allowed: nothing lies in their way."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in the order of attention."""

    next_attempt: datetime
    message_id: str


class DueScan:
    """Decides, for all transactions of one store, where the next search starts.

    There is no lock, which a fork could leave held: of two threads at once one may win, and a search from the beginning
    then comes a moment later.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._mark: Mark | None = None
        self._full_scan_from = 0.0

    def start(self) -> Mark | None:
        """The mark to start behind; None: search from the beginning."""
        return None if self._monotonic() >= self._full_scan_from else self._mark

    def ended(self, started_at: Mark | None, seconds: float, last: Mark | None) -> None:
        """Note a search that began at `started_at`, took `seconds`, and whose last message was `last`."""
        if started_at is None:
            self._full_scan_from = self._monotonic() + SHARE * seconds if seconds > CHEAP else 0.0
            self._mark = last
        elif last is not None:
            self._mark = last

    def look_back(self, at: datetime | None = None) -> None:
        """Search from the beginning next time, if `at` (None: anything) lies before the mark."""
        if at is None or self._mark is None or at <= self._mark.next_attempt:
            self._full_scan_from = 0.0

    def until_full_scan(self) -> timedelta:
        """How long until a search from the beginning is allowed; 0 when it is."""
        return timedelta(seconds=max(0.0, self._full_scan_from - self._monotonic()))
