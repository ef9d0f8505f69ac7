"""What an observer is told about dispatching, for metrics and traces."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from typing_extensions import override

from delaystore.dispatcher.breakers import BreakerChange
from delaystore.dispatcher.health import DispatchReport

logger = logging.getLogger("delaystore.dispatcher")

Phase = Literal["fetch", "forward", "settle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassDurations:
    """How long a pass took, in seconds; 0 for a phase that it did not reach."""

    fetch: float
    """Beginning the transaction and claiming the batch."""
    forward: float
    """Sending, copies to the error queue included, and waiting for the broker's confirms."""
    settle: float
    """Writing the outcomes into the store, and committing."""

    @property
    def total(self) -> float:
        """The whole pass."""
        return self.fetch + self.forward + self.settle


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """What one pass did. An undone pass did nothing: what it had forwarded counts in the pass that removes it."""

    began: datetime
    """On the store's clock, UTC."""
    counts: DispatchReport
    """Messages by outcome; all 0 where nothing was due."""
    by_destination: Mapping[str, DispatchReport]
    """The same by destination, without lost claims, whose destination is unknown."""
    lateness: Sequence[float]
    """Seconds from the due time to the broker's confirm, for each message that was delivered when it was due."""
    durations: PassDurations
    error: Exception | None
    """Why the pass was undone; None: it was not."""


class DispatchObserver:
    """Derive from it, override what you want to hear of, and give an instance to `DelayedDelivery` or `Dispatcher`.

    It is called outside of every transaction, by the threads that dispatch (two at once while there is a backlog) and,
    for the breaker `store`, by those that send. They wait for it, so it should be quick. What it raises is logged, once
    for each kind of error, and harms nothing.
    """

    def pass_ended(self, report: PassReport) -> None:
        """A pass has ended, also one that found nothing due. While the transport cannot send there are none."""

    def breaker_changed(self, change: BreakerChange) -> None:
        """A circuit breaker has changed its state."""


class GuardedObserver(DispatchObserver):
    """Calls another observer, and logs what that raises."""

    def __init__(self, observer: DispatchObserver) -> None:
        self._observer: Final = observer
        self._logged: set[tuple[str, type[Exception]]] = set()

    @override
    def pass_ended(self, report: PassReport) -> None:
        self._call(self._observer.pass_ended, report)

    @override
    def breaker_changed(self, change: BreakerChange) -> None:
        self._call(self._observer.breaker_changed, change)

    def _call(self, tell: Callable[[Any], None], what: object) -> None:
        try:
            tell(what)
        except Exception as error:
            kind = type(what).__name__, type(error)
            if kind not in self._logged:
                self._logged.add(kind)
                logger.exception("the observer raised when told of a %s; the dispatcher goes on", kind[0])


def guarded(observer: DispatchObserver | None) -> GuardedObserver | None:
    """`observer` within a GuardedObserver; None: there is no observer."""
    return observer if observer is None or isinstance(observer, GuardedObserver) else GuardedObserver(observer)


class Stopwatch:
    """Measures the phases of one pass; the first begins at once."""

    def __init__(self) -> None:
        self._seconds: dict[Phase, float] = {"fetch": 0.0, "forward": 0.0, "settle": 0.0}
        self._phase: Phase = "fetch"
        self._began = time.monotonic()

    def begin(self, phase: Phase) -> None:
        """End the phase before, and begin `phase`."""
        now = time.monotonic()
        self._seconds[self._phase] += now - self._began
        self._phase, self._began = phase, now

    def end(self) -> PassDurations:
        """End the last phase; returns how long each took."""
        self.begin(self._phase)
        return PassDurations(**self._seconds)
