"""How the dispatcher sleeps, and how it is woken."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

AT_ONCE: Final = datetime.min.replace(tzinfo=UTC)
NEVER: Final = datetime.max.replace(tzinfo=UTC)
LONGEST_SLEEP: Final = 3600.0
"""Seconds; bounds every wait, whatever a setting or a store says."""
SLICE: Final = 0.5
"""Seconds after which a sleeper checks whether it may go on sleeping; it does not ask the store."""


class WakeUp:
    """One sleeper, the dispatcher's loop, and any number of wakers.

    A wake-up only ever brings the sleeper's deadline forward. One that comes while the loop works is remembered until
    the loop begins its next pass, which sees whatever was stored before the wake-up.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # Condition's own lock can be taken again by its holder: stop() may come from a signal handler that
        # interrupts the sleeper itself.
        self._condition = threading.Condition()
        self._deadline = NEVER
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def wake_up(self, due_time: datetime | None = None) -> None:
        """Begin a pass at `due_time`; None: now. Costs next to nothing when that is not earlier than planned."""
        if due_time is None:
            due_time = AT_ONCE
        if due_time >= self._deadline:
            return
        with self._condition:
            if due_time < self._deadline:
                self._deadline = due_time
                self._condition.notify_all()

    def begin(self) -> None:
        """Forget the wake-ups so far: the loop is about to begin a pass."""
        with self._condition:
            self._deadline = NEVER

    def sleep(self, now: datetime, until: datetime | None, at_most: float, undisturbed: Callable[[], bool]) -> None:
        """Sleep until `until` on the clock that shows `now` (None: no such time), but no longer than `at_most` seconds.

        A wake-up shortens it, also one that came since `begin`. `stop` ends it, and so does False from `undisturbed`.
        """
        began = self._monotonic()
        latest = now + timedelta(seconds=_bounded(at_most))
        with self._condition:
            self._deadline = min(self._deadline, latest, NEVER if until is None else until)
            while not self._stopped:
                remaining = (self._deadline - now).total_seconds() - (self._monotonic() - began)
                if remaining <= 0 or not undisturbed():
                    return
                self._condition.wait(min(remaining, SLICE))

    def pause(self, seconds: float, over: Callable[[], bool] | None = None, poll: float = SLICE / 2) -> None:
        """Wait for `seconds`, whatever wakes. Only `stop` ends it sooner, or True from `over` (asked each `poll` s)."""
        end = self._monotonic() + _bounded(seconds)
        while not self._stopped and not (over is not None and over()):
            remaining = end - self._monotonic()
            if remaining <= 0:
                return
            with self._condition:
                if not self._stopped:
                    self._condition.wait(min(remaining, poll))

    def stop(self) -> None:
        """End every sleep and pause, for good; safe in a signal handler."""
        self._stopped = True
        with self._condition:
            self._condition.notify_all()


def _bounded(seconds: float) -> float:
    """`seconds` within 0 and LONGEST_SLEEP; NaN becomes 0."""
    return min(seconds, LONGEST_SLEEP) if seconds > 0 else 0.0
