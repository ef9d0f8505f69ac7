"""Circuit breakers: they tell an outage from a hiccup, and report it.

Names, states and delays are those of NServiceBus' MSMQ transport. There are no timer threads: each failure checks how
long it has been failing, and whoever fails tries again after at most ten seconds.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from delaystore.dispatcher._flips import FlipLog
from delaystore.settings import CriticalErrorAction, DelayedDeliverySettings

logger = logging.getLogger("delaystore.dispatcher")

ARMED_DELAY: Final = 1.0
"""Seconds a caller waits after a failure."""
TRIGGERED_DELAY: Final = 10.0
"""Seconds a caller waits after a failure once the breaker has triggered."""
RATE_WINDOW: Final = 30.0
"""Seconds over which the failure rate is measured."""


class BreakerState(StrEnum):
    """The state of a circuit breaker."""

    DISARMED = "disarmed"
    """No failure since the last success."""
    ARMED = "armed"
    """Failing, for less than the time to trigger."""
    TRIGGERED = "triggered"
    """Failing for longer: the critical-error action has been called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerChange:
    """A circuit breaker's change of state."""

    name: str
    """`fetch`, `dispatch`, `recovery` or `store`, as in `Health.breakers`."""
    before: BreakerState
    after: BreakerState


BreakerListener = Callable[[BreakerChange], None]
StateListener = Callable[[BreakerState, BreakerState], None]
"""Called with the states before and after, outside of locks."""


def listener_of(name: str, listener: BreakerListener | None) -> StateListener | None:
    """A function that tells `listener` of changes of the breaker `name`; None: there is no listener."""
    if listener is None:
        return None
    return lambda before, after: listener(BreakerChange(name=name, before=before, after=after))


class RepeatedFailuresOverTimeCircuitBreaker:
    """Triggers when failures go on for `time_to_trigger` without a success in between; any success disarms it.

    `name` completes the sentence "<name> fails". `monotonic` gives seconds. May be shared by threads.
    """

    def __init__(
        self,
        name: str,
        time_to_trigger: timedelta,
        on_critical_error: CriticalErrorAction | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        on_change: StateListener | None = None,
    ) -> None:
        self._name = name
        self._on_change = on_change
        self._seconds_to_trigger = time_to_trigger.total_seconds()
        self._on_critical_error = on_critical_error
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._state = BreakerState.DISARMED
        self._armed_at = 0.0
        self._log = FlipLog(name, monotonic)
        self._succeeded_at = monotonic()

    @property
    def state(self) -> BreakerState:
        """The present state."""
        return self._state

    def success(self) -> None:
        """Note a success."""
        self._succeeded_at = self._monotonic()
        if self._state is BreakerState.DISARMED:
            return
        with self._lock:
            before = self.state
            self._state = BreakerState.DISARMED
        if before is not BreakerState.DISARMED:
            self._log.works(certainly=before is BreakerState.TRIGGERED)
            _tell(self._on_change, before, BreakerState.DISARMED)

    def would_trigger(self, seconds: float) -> bool:
        """Whether an attempt that has gone on for `seconds` without an end is a failure that triggers."""
        return self._state is not BreakerState.TRIGGERED and self._failing_for(seconds) >= self._seconds_to_trigger

    def failure(self, error: Exception, lasted: float = 0.0) -> float:
        """Note a failure; returns the seconds to wait before the next attempt.

        `lasted`: for how many seconds the attempt went on before it failed. It fails since then, unless another has
        succeeded meanwhile.
        """
        before, state = self._advance(lasted)
        self._log.failed(error, first=before is BreakerState.DISARMED)
        _tell(self._on_change, before, state)
        if state is BreakerState.TRIGGERED and before is not BreakerState.TRIGGERED:
            description = f"{self._name} has failed for {self._seconds_to_trigger:g} s without a success in between"
            report_critical_error(self._on_critical_error, description, error)
        return TRIGGERED_DELAY if state is BreakerState.TRIGGERED else ARMED_DELAY

    def _failing_for(self, lasted: float) -> float:
        return min(lasted, self._monotonic() - self._succeeded_at)

    def _advance(self, lasted: float) -> tuple[BreakerState, BreakerState]:
        with self._lock:
            before = self._state
            now = self._monotonic()
            began = now - self._failing_for(lasted)
            if before is BreakerState.DISARMED:
                self._state = BreakerState.ARMED
                self._armed_at = now
            self._armed_at = min(self._armed_at, began)
            if now > self._armed_at and now - self._armed_at >= self._seconds_to_trigger:
                self._state = BreakerState.TRIGGERED
            return before, self._state


class FailureRateCircuitBreaker:
    """Triggers when a window of 30 s sees more than 30 x `maximum_per_second` failures; the window's end disarms it.

    `name` completes the sentence "<name> fails". `monotonic` gives seconds. May be shared by threads.
    """

    def __init__(
        self,
        name: str,
        maximum_per_second: float,
        on_critical_error: CriticalErrorAction | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        on_change: StateListener | None = None,
    ) -> None:
        self._name = name
        self._on_change = on_change
        self._most = maximum_per_second * RATE_WINDOW
        self._on_critical_error = on_critical_error
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._failures = 0
        self._window_began = 0.0

    @property
    def state(self) -> BreakerState:
        """The present state: armed from the window's first failure on."""
        with self._lock:
            former = self._judge()
            self._end_window()
            state = self._judge()
        _tell(self._on_change, former, state)
        return state

    def failure(self, error: Exception, count: int = 1) -> None:
        """Note `count` failures, the last one with `error`."""
        with self._lock:
            former = self._judge()
            self._end_window()
            before = self._judge()
            if before is BreakerState.DISARMED:
                self._window_began = self._monotonic()
            self._failures += count
            state = self._judge()
        _tell(self._on_change, former, state)
        if state is BreakerState.TRIGGERED and before is not BreakerState.TRIGGERED:
            description = f"{self._name} fails more often than {self._most:g} times in {RATE_WINDOW:g} s"
            report_critical_error(self._on_critical_error, description, error)

    def _end_window(self) -> None:
        if self._monotonic() - self._window_began >= RATE_WINDOW:
            self._failures = 0

    def _judge(self) -> BreakerState:
        if self._failures == 0:
            return BreakerState.DISARMED
        return BreakerState.TRIGGERED if self._failures > self._most else BreakerState.ARMED


class Breakers:
    """The dispatcher's three circuit breakers."""

    def __init__(self, settings: DelayedDeliverySettings, listener: BreakerListener | None = None) -> None:
        action = settings.on_critical_error
        self.fetch: Final = RepeatedFailuresOverTimeCircuitBreaker(
            "fetching due messages from the store",
            settings.time_to_trigger_fetch_circuit_breaker,
            action,
            on_change=listener_of("fetch", listener),
        )
        self.dispatch: Final = RepeatedFailuresOverTimeCircuitBreaker(
            "forwarding to the broker",
            settings.time_to_trigger_dispatch_circuit_breaker,
            action,
            on_change=listener_of("dispatch", listener),
        )
        self.recovery: Final = FailureRateCircuitBreaker(
            "moving failed messages to the error queue",
            settings.maximum_recovery_failures_per_second,
            action,
            on_change=listener_of("recovery", listener),
        )

    def states(self) -> dict[str, str]:
        """Each breaker's state by name."""
        return {
            "fetch": self.fetch.state.value,
            "dispatch": self.dispatch.state.value,
            "recovery": self.recovery.state.value,
        }


def _tell(listener: StateListener | None, before: BreakerState, after: BreakerState) -> None:
    if listener is not None and before is not after:
        listener(before, after)


def report_critical_error(action: CriticalErrorAction | None, description: str, error: Exception) -> None:
    """Log `description` as critical and call the user's `action`; what that raises is logged, never passed on."""
    logger.critical("%s: %s", description, error)
    if action is None:
        return
    try:
        action(description, error)
    except Exception:
        logger.exception("on_critical_error raised; the dispatcher goes on")
