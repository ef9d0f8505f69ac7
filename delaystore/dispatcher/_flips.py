"""Log lines that say when something fails and when it works again."""

import logging
import threading
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("delaystore.dispatcher")

QUIET: Final = 10.0
"""Seconds after a line in which the next failure is only counted."""


class FlipLog:
    """One pair of lines for each outage; where failures and successes alternate, a pair in ten seconds, with a count.

    `name` completes the sentence "<name> fails". May be shared by threads.
    """

    def __init__(self, name: str, monotonic: Callable[[], float]) -> None:
        self._name = name
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._quiet_until = float("-inf")
        self._begun = 0
        """Outages that began since the last line."""
        self._said = False
        """Whether the present outage is in the log."""

    def failed(self, error: Exception, *, first: bool) -> None:
        """Note a failure; `first`: the one before was followed by a success."""
        with self._lock:
            self._begun += first
            now = self._monotonic()
            if self._said or now < self._quiet_until:
                return
            self._said, self._quiet_until = True, now + QUIET
            begun, self._begun = self._begun, 0
        times = f" ({begun} times since the last such line, with successes in between)" if begun > 1 else ""
        logger.warning("%s fails%s: %s", self._name, times, error)

    def works(self, *, certainly: bool) -> None:
        """Note a success after failures; `certainly`: to be logged even if the failures were not."""
        with self._lock:
            said, self._said = self._said, False
        if said or certainly:
            logger.warning("%s works again", self._name)
