"""A limit on messages a second, for several threads."""

import time
from threading import Lock

from delaystore.transports.rabbitmq.moving.pace import Pace

_PAUSE = 0.02
"""Seconds between two looks at whether more may go."""


class Rate:
    """At most `per_second` messages a second, over all threads; None: no limit."""

    def __init__(self, per_second: float | None) -> None:
        self._pace = Pace(per_second)
        self._lock = Lock()

    def take(self, wanted: int) -> int:
        """How many of `wanted` may go now, at least one; waits for that. They count as gone."""
        while True:
            with self._lock:
                granted = self._pace.take(wanted)
            if granted or not wanted:
                return granted
            time.sleep(_PAUSE)
