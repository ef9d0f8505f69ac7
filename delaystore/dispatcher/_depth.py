"""How many messages are in the error queue."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from delaystore.calls import in_background
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.dispatcher")

ASK_EVERY: Final = 15.0
"""Seconds between two questions."""
KNOWN_FOR: Final = 60.0
"""Seconds for which an answer counts."""


class ErrorQueueDepth:
    """Asks a transport now and then, in a thread of its own, one at a time: a broker may not answer at all."""

    def __init__(self, transport: Transport, queue: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._transport = transport
        self._queue = queue
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._asking = False
        self._not_before = 0.0
        self._answer: tuple[int | None, float] = (None, 0.0)

    def ask(self) -> int | None:
        """The last answer; None: it is not known. Begins another question if it is time; returns at once."""
        now = self._monotonic()
        with self._lock:
            begin = not self._asking and now >= self._not_before and self._transport.unavailable() is None
            if begin:
                self._asking, self._not_before = True, now + ASK_EVERY
        if begin and not in_background("delaystore-error-queue-depth", self._ask):
            self._asking = False
        depth, told = self._answer
        return depth if now - told < KNOWN_FOR else None

    def _ask(self) -> None:
        depth = None
        try:
            depth = self._transport.depth(self._queue)
        except Exception as error:
            logger.debug("the depth of the error queue is not known: %s", error)
        finally:
            self._answer = depth, self._monotonic()
            self._asking = False
