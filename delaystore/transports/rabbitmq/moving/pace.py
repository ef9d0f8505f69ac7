"""A limit on messages a second."""

import time
from collections.abc import Callable
from typing import Final

_BURST: Final = 0.1
"""Seconds' worth that may go at once."""


class Pace:
    """At most `rate` messages a second, evenly; None: no limit."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._most = 0.0 if rate is None else max(1.0, rate * _BURST)
        self._room = self._most
        self._then = clock()

    def take(self, wanted: int) -> int:
        """How many of `wanted` may go now; they count as gone."""
        if self.rate is None:
            return wanted
        now = self._clock()
        self._room = min(self._most, self._room + (now - self._then) * self.rate)
        self._then = now
        granted = min(wanted, int(self._room))
        self._room -= granted
        return granted
