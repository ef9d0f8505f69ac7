"""Keeps one part running: what dies is started again, with pauses that grow, and never silently."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from delaystore.errors import DelaystoreError, StoreUnavailableError, TransportUnavailableError
from delaystore.service.part import Part
from delaystore.times import duration_text

logger = logging.getLogger("delaystore.service")

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_LONGEST_WAIT: Final = 5.0
"""Seconds between two attempts, in the end: of what died, and of what waits for a server."""
_PROVEN: Final = 60.0
"""Seconds that a part has run, after which its next death is as its first."""
_OUTAGES: Final = (StoreUnavailableError, TransportUnavailableError)
_OFTEN: Final = 0.1
"""Seconds after which a part that was told to stop is told again: it may not have begun to run the first time."""


class Runner:
    """Runs a part in a thread of its own. `name`: what people call it. `make`: a fresh part; may raise.

    `pause`: seconds before the first new start.
    """

    def __init__(self, name: str, make: Callable[[], Part], *, pause: float = _FIRST_PAUSE) -> None:
        self.name: Final = name
        self._make = make
        self._first_pause = pause
        self._stopping = threading.Event()
        self._part: Part | None = None
        self._trouble = "it is starting"
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._run, name=f"delaystore-service-{name}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once. Call it once."""
        self._thread.start()

    def stop(self) -> None:
        """Have the part finish, and begin no other. Does not wait; may be called again, and before `start`."""
        self._stopping.set()
        part = self._part
        if part is not None:
            part.stop()

    def ended(self, seconds: float) -> bool:
        """Wait for the end, after `stop`, for so long at most; whether it has come."""
        deadline = time.monotonic() + seconds
        while self._thread.is_alive():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.stop()
            self._thread.join(min(left, _OFTEN))
        return True

    @property
    def is_alive(self) -> bool:
        """Whether the part runs, or will be started again."""
        return self._thread.is_alive()

    def problems(self) -> Sequence[str]:
        """Why it does not do its part, a clause each; raises nothing."""
        part = self._part
        if self._stopping.is_set():
            return ["it is ending"]
        if part is None:
            return [self._trouble]
        try:
            return part.problems()
        except Exception as error:
            logger.exception("%s cannot tell how it is", self.name)
            return [f"it cannot tell how it is: {_reason(error)}"]

    def _run(self) -> None:
        pause = self._first_pause
        while not self._stopping.is_set():
            began = time.monotonic()
            failure = self._run_once()
            if self._stopping.is_set():
                break
            if time.monotonic() - began > _PROVEN:
                pause = self._first_pause
                self._told.clear()
            pause = min(pause, _LONGEST_WAIT if isinstance(failure, _OUTAGES) else _LONGEST_PAUSE)
            self._tell(failure, pause)
            self._stopping.wait(pause)
            pause *= 2

    def _run_once(self) -> Exception | None:
        """Why it ended; None: it returned."""
        try:
            self._part = part = self._make()
            part.run()
        except Exception as error:
            return error
        finally:
            self._part = None
        return None

    def _tell(self, failure: Exception | None, pause: float) -> None:
        """Note why it does not run; log each reason once, until it has run for a while."""
        reason = "it ended without being asked to" if failure is None else _reason(failure)
        waits = isinstance(failure, _OUTAGES)
        self._trouble = reason if waits else f"it died: {reason}; it is started again within {_within(pause)}"
        if reason in self._told:
            return
        self._told.add(reason)
        if waits:
            logger.warning("%s waits: %s", self.name, reason)
            return
        unexpected = failure is not None and not isinstance(failure, DelaystoreError)
        logger.error("%s: %s", self.name, self._trouble, exc_info=failure if unexpected else None)


def _reason(error: Exception) -> str:
    text = str(error) if isinstance(error, DelaystoreError) else f"{type(error).__name__}: {error}"
    return text or type(error).__name__


def _within(pause: float) -> str:
    return duration_text(timedelta(seconds=pause))
