"""A limit on messages a second."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Final

_BURST: Final = 0.1
"""The messages of this many seconds may go at once."""
_PAUSE: Final = 0.02
"""Seconds between two attempts to let a message go."""


class RateLimit:
    """At most `per_second` messages a second, evenly, over all threads that share it; None: no limit."""

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._most = 0.0 if per_second is None else max(1.0, per_second * _BURST)
        self._room = self._most
        self._then = clock()
        self._lock = Lock()

    def take(self, wanted: int) -> int:
        """How many of `wanted` messages may go now, perhaps none; they count as gone."""
        if self._per_second is None:
            return wanted
        with self._lock:
            now = self._clock()
            self._room = min(self._most, self._room + (now - self._then) * self._per_second)
            self._then = now
            granted = min(wanted, int(self._room))
            self._room -= granted
            return granted

    def wait(self, wanted: int) -> int:
        """As `take`, but waits until at least one message may go."""
        while not (granted := self.take(wanted)) and wanted:
            time.sleep(_PAUSE)
        return granted
