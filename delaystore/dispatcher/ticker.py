"""A thread beside the work that does something again and again."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from delaystore.dispatcher.breakers import ARMED_DELAY, TRIGGERED_DELAY
from delaystore.errors import DelaystoreError

logger = logging.getLogger("delaystore.dispatcher")

LOUD_FROM: Final = 2
"""The log hears of an outage that makes so many attempts fail one after the other."""


class Ticker:
    """Does `work`, which returns the seconds until the next time, and may raise; started when first needed.

    While it fails it is tried again after a second, and after ten at last; the log hears of it once for each outage.
    `purpose` completes the sentence "<purpose> fails". `farewell` is done in the thread at its end; None: nothing is.
    `log` hears of it.
    """

    def __init__(
        self,
        name: str,
        purpose: str,
        work: Callable[[], float],
        farewell: Callable[[], None] | None = None,
        log: logging.Logger = logger,
    ) -> None:
        self._name = name
        self._purpose = purpose
        self._work = work
        self._farewell = farewell
        self._log = log
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._failures = 0
        self._told = False
        self.ended = False
        """Whether it was told to end: long work stops then."""

    def start(self) -> None:
        """Begin, unless that was done; nothing happens if no thread can be started."""
        if self._thread is not None or self.ended:
            return
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return
        self._thread = thread

    def prod(self) -> None:
        """Work now."""
        self._wanted.set()

    def end(self) -> None:
        """End after the work in hand; does not wait."""
        self.ended = True
        self._wanted.set()

    def join(self, seconds: float) -> bool:
        """Wait for the end; False: it still works after `seconds`."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(seconds)
        return not thread.is_alive()

    def is_current_thread(self) -> bool:
        """Whether the caller is this ticker's thread."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        while not self.ended:
            self._wanted.clear()  # before the work, which then sees what was prodded for
            if not self.ended:
                self._wanted.wait(self._guarded(self._work))
        if self._farewell is not None:
            self._guarded(self._farewell)

    def _guarded(self, work: Callable[[], float | None]) -> float:
        """Seconds until the next time."""
        try:
            seconds = work()
        except Exception as error:
            return self._failed(error)
        if self._told:
            self._log.warning("%s works again", self._purpose)
        self._failures, self._told = 0, False
        return seconds or 0.0

    def _failed(self, error: Exception) -> float:
        """A single failure is no news: SQLite may be busy for a moment."""
        expected = isinstance(error, DelaystoreError)
        self._failures += 1
        if not self._told and (self._failures >= LOUD_FROM or not expected):
            self._told = True
            self._log.warning("%s fails: %s", self._purpose, error, exc_info=None if expected else error)
        else:
            self._log.debug("%s fails: %s", self._purpose, error)
        return min(ARMED_DELAY * self._failures, TRIGGERED_DELAY)
