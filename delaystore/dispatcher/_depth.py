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
LONGEST_END: Final = 1.0
"""Seconds to wait at the end for an answer that is under way."""


class ErrorQueueDepth:
    """Asks a transport now and then, in a thread of its own, one at a time: a broker may not answer at all."""

    def __init__(self, transport: Transport, queue: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._transport = transport
        self._queue = queue
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._asking = False
        self._ended = False
        self._answered = threading.Event()
        self._not_before = 0.0
        self._answer: tuple[int | None, float] = (None, 0.0)

    def ask(self) -> int | None:
        """The last answer; None: it is not known. Begins another question if it is time; returns at once."""
        now = self._monotonic()
        with self._lock:
            begin = self._is_time(now) and self._transport.unavailable() is None
            if begin:
                self._asking, self._not_before = True, now + ASK_EVERY
                self._answered.clear()
        if begin and not in_background("delaystore-error-queue-depth", self._ask):
            self._asking = False
        depth, told = self._answer
        return depth if now - told < KNOWN_FOR else None

    def end(self) -> None:
        """Ask no more, and wait a moment for an answer that is under way: the transport is perhaps closed then."""
        with self._lock:
            self._ended, asking = True, self._asking
        if asking:
            self._answered.wait(LONGEST_END)

    def _is_time(self, now: float) -> bool:
        return not self._ended and not self._asking and now >= self._not_before

    def _ask(self) -> None:
        depth = None
        try:
            depth = self._transport.depth(self._queue)
        except Exception as error:
            logger.debug("the depth of the error queue is not known: %s", error)
        finally:
            self._answer = depth, self._monotonic()
            self._asking = False
            self._answered.set()
