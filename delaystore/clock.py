"""Time as a dependency: the clock, another clock carried on, and a limit on messages a second."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final, Protocol, Self

from typing_extensions import override

_QUICK: Final = 0.005
"""Seconds for an answer."""
_QUESTIONS: Final = 3
"""Maximum number, one after the other, until an answer is quick."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


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


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A reading of another clock, carried on by this computer's monotonic clock."""

    instant: datetime
    since: float
    """The monotonic time from which it counts."""

    @classmethod
    def of(cls, instant: datetime) -> Self:
        """An answer that has just arrived: carried on, it is never ahead of the other clock."""
        return cls(instant, time.monotonic())

    @property
    def age(self) -> float:
        """Seconds since then."""
        return time.monotonic() - self.since

    def now(self) -> datetime:
        """The present instant by this reading, however old."""
        return self.instant + timedelta(seconds=self.age)


class ExtrapolatedClock(Clock):
    """Another clock, asked now and then, and carried on in between by this computer's monotonic clock.

    An answer counts from the moment in which it came: this clock is never ahead of the other, and behind by the time of
    one question at most. A step of the other clock is noticed with the next question. Threads may share it.

    Args:
        read: Asks the other clock.
        fresh_for: Seconds for which an answer is carried on.
        never_behind: An answer counts from its question instead: this clock is never behind the other, and ahead by the
            time of one question at most, the quickest of a few.

    """

    def __init__(self, read: Callable[[], datetime], fresh_for: float = 10.0, *, never_behind: bool = False) -> None:
        self._read = read
        self._fresh_for = fresh_for
        self._never_behind = never_behind
        self._reading: ClockReading | None = None

    @override
    def now(self) -> datetime:
        """The present instant, aware. Asks if the last answer is too old, and raises the errors of `read`."""
        reading = self._reading
        if reading is None or reading.age > self._fresh_for:
            reading = self._ask()
        return reading.now()

    def now_unasked(self) -> datetime:
        """The present instant by the last answer, however old, without asking. `now()` must have been called before."""
        assert self._reading is not None
        return self._reading.now()

    def note(self, reading: ClockReading) -> None:
        """Go on by `reading`, which another caller has asked for."""
        self._reading = reading

    def forget(self, *, older_than: float = 0.0) -> None:
        """Ask again next time, unless the last answer is younger than this number of seconds."""
        reading = self._reading
        if reading is not None and reading.age >= older_than:
            self._reading = None

    def _ask(self) -> ClockReading:
        self._reading = reading = self._quickest() if self._never_behind else ClockReading.of(self._read())
        return reading

    def _quickest(self) -> ClockReading:
        """An answer that counts from its question; after a slow one it asks again."""
        quickest, reading = math.inf, ClockReading(_NEVER, 0.0)
        for _ in range(_QUESTIONS):
            asked = time.monotonic()
            instant = self._read()
            took = time.monotonic() - asked
            if took < quickest:
                quickest, reading = took, ClockReading(instant, asked)
            if took < _QUICK:
                break
        return reading


_BURST: Final = 0.1
"""The messages of this many seconds may go at once."""
_PAUSE: Final = 0.02
"""Seconds between two attempts to let a message go."""


class RateLimit:
    """Lets a number of messages go in each second, evenly, over all threads that share it.

    Args:
        per_second: Maximum number of messages a second. None: no limit.
        clock: Seconds that only grow.

    """

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._most = 0.0 if per_second is None else max(1.0, per_second * _BURST)
        self._room = self._most
        self._then = clock()
        self._lock = Lock()

    @property
    def burst(self) -> int | None:
        """How many messages may go at once; None: any number."""
        return None if self._per_second is None else int(self._most)

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
