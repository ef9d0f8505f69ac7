"""How many messages are in a queue beside the work, such as the error queue."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from delaystore.calls import in_background

logger = logging.getLogger("delaystore.dispatcher")

ASK_EVERY: Final = 15.0
"""Seconds between two questions."""
KNOWN_FOR: Final = 60.0
"""Seconds for which an answer counts."""
LONGEST_END: Final = 1.0
"""Seconds to wait at the end for an answer that is under way."""


class Depth(NamedTuple):
    """What was answered, and how many seconds ago."""

    messages: int
    age: float


class QueueDepth:
    """Asks now and then, in a thread of its own, one at a time: a broker may not answer at all.

    `queue`: its name, for threads and the log. `question`: how many messages are in it; None: there is no such queue.
    `may_ask`: whether the broker is there, as far as is known; it returns at once.
    """

    def __init__(
        self,
        queue: str,
        question: Callable[[], int | None],
        may_ask: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._question = question
        self._may_ask = may_ask
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._asking = False
        self._ended = False
        self._answered = threading.Event()
        self._not_before = 0.0
        self._answer: tuple[int | None, float] = (None, 0.0)

    def ask(self) -> Depth | None:
        """The last answer; None: it is not known. Begins another question if it is time; returns at once."""
        now = self._monotonic()
        with self._lock:
            begin = self._is_time(now) and self._may_ask()
            if begin:
                self._asking, self._not_before = True, now + ASK_EVERY
                self._answered.clear()
        if begin and not in_background("delaystore-queue-depth", self._ask):
            self._asking = False
        messages, told = self._answer
        age = max(0.0, now - told)
        return None if messages is None or age >= KNOWN_FOR else Depth(messages, age)

    def end(self) -> None:
        """Ask no more, and wait a moment for an answer that is under way: the transport is perhaps closed then."""
        with self._lock:
            self._ended, asking = True, self._asking
        if asking:
            self._answered.wait(LONGEST_END)

    def _is_time(self, now: float) -> bool:
        return not self._ended and not self._asking and now >= self._not_before

    def _ask(self) -> None:
        messages = None
        try:
            messages = self._question()
        except Exception as error:
            logger.debug("the depth of %r is not known: %s", self._queue, error)
        finally:
            self._answer = messages, self._monotonic()
            self._asking = False
            self._answered.set()
