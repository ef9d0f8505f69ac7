"""Time as a dependency."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from typing_extensions import override


class Clock(Protocol):
    """Tells the present instant; tests pass a settable one (`delaystore.testing.SettableClock`)."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...


class SystemClock(Clock):
    """The computer's own clock."""

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)


class CarriedClock(Clock):
    """Another clock, asked now and then, and carried on in between by this computer's monotonic clock.

    `read` asks the other clock. `fresh_for`: for how many seconds an answer is carried on.

    An answer counts from its arrival: this clock is never ahead of the other, and behind by the time of one question at
    most. With `never_behind` it counts from the question: never behind, and ahead by the time of one question at most.
    A step of the other clock is noticed with the next question. Threads may share it.
    """

    def __init__(self, read: Callable[[], datetime], fresh_for: float = 10.0, *, never_behind: bool = False) -> None:
        self._read = read
        self._fresh_for = fresh_for
        self._never_behind = never_behind
        self._reading: tuple[datetime, float] | None = None

    @override
    def now(self) -> datetime:
        """The present instant, aware. Asks if the last answer is too old, and raises what `read` raises."""
        reading = self._reading
        if reading is None or time.monotonic() - reading[1] > self._fresh_for:
            reading = self._ask()
        return _carried_on(reading)

    def now_unasked(self) -> datetime:
        """The present instant by the last answer, however old, without asking. `now()` must have been called before."""
        assert self._reading is not None
        return _carried_on(self._reading)

    def _ask(self) -> tuple[datetime, float]:
        asked = time.monotonic()
        instant = self._read()
        self._reading = reading = (instant, asked if self._never_behind else time.monotonic())
        return reading


def _carried_on(reading: tuple[datetime, float]) -> datetime:
    instant, since = reading
    return instant + timedelta(seconds=time.monotonic() - since)
