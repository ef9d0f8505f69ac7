"""Circuit breakers, the store calls that they watch, and threads that try again at their pace."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from delaystore.calls import SLOW, Call, calls_of, in_background
from delaystore.errors import DelaystoreError, StoreUnavailableError
from delaystore.settings import CriticalErrorAction, DelayedDeliverySettings

logger = logging.getLogger("delaystore.dispatcher")
QUIET: Final = 10.0
"""Seconds after a line in which the next failure is only counted."""


class OutageLog:
    """One pair of lines for each outage; where failures and successes alternate, a pair in ten seconds, with a count.

    `name` completes the sentence "<name> fails". May be shared by threads.
    """

    def __init__(self, name: str, monotonic: Callable[[], float]) -> None:
        self._name = name
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._quiet_until = float("-inf")
        self._begun = 0
        """Outages that began since the last line."""
        self._said = False
        """Whether the present outage is in the log."""

    def failed(self, error: Exception, *, first: bool) -> None:
        """Note a failure; `first`: the one before was followed by a success."""
        with self._lock:
            self._begun += first
            now = self._monotonic()
            if self._said or now < self._quiet_until:
                return
            self._said, self._quiet_until = True, now + QUIET
            begun, self._begun = self._begun, 0
        times = f" ({begun} times since the last such line, with successes in between)" if begun > 1 else ""
        logger.warning("%s fails%s: %s; will retry", self._name, times, error)

    def works(self, *, certainly: bool) -> None:
        """Note a success after failures; `certainly`: to be logged even if the failures were not."""
        with self._lock:
            said, self._said = self._said, False
        if said or certainly:
            logger.warning("%s works again", self._name)


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
    """Its state until now."""
    after: BreakerState
    """Its state from now on."""


BreakerListener = Callable[[BreakerChange], None]
StateListener = Callable[[BreakerState, BreakerState], None]
"""Called with the states before and after, outside of locks."""


def listener_of(name: str, listener: BreakerListener | None) -> StateListener | None:
    """A function that reports changes of the breaker `name` to `listener`; None: there is no listener."""
    if listener is None:
        return None
    return lambda before, after: listener(BreakerChange(name=name, before=before, after=after))


class RepeatedFailuresOverTimeCircuitBreaker:
    """Triggers when failures go on for a time without a success in between; any success disarms it.

    Threads may share it.

    Args:
        name: Completes the sentence "<name> fails" in the log.
        time_to_trigger: How long failures go on until it triggers.
        on_critical_error: Called with a description and the last error when it triggers. None: that is only logged.
        monotonic: The clock, in seconds.
        on_change: Called with the states before and after each change. None: nothing is.

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
        self._log = OutageLog(name, monotonic)
        self._succeeded_at = monotonic()

    @property
    def state(self) -> BreakerState:
        """The present state."""
        return self._state

    def success(self) -> None:
        """Note a success."""
        self._succeeded_at = self._monotonic()
        # Without the lock: this is called for every message that is stored, and the state is nearly always DISARMED. A
        # failure that comes just now arms it after this success, as if it had come later.
        if self._state is BreakerState.DISARMED:
            return
        with self._lock:
            before = self.state
            self._state = BreakerState.DISARMED
        if before is not BreakerState.DISARMED:
            self._log.works(certainly=before is BreakerState.TRIGGERED)
            _report_change(self._on_change, before, BreakerState.DISARMED)

    def would_trigger(self, seconds: float) -> bool:
        """Whether an attempt that has gone on for `seconds` without an end is a failure that triggers."""
        return self._state is not BreakerState.TRIGGERED and self._failing_for(seconds) >= self._seconds_to_trigger

    def failure(self, error: Exception, lasted: float = 0.0) -> float:
        """Note a failure.

        Args:
            error: Why the attempt failed.
            lasted: Seconds that it went on before it failed. It counts as failing since it began, unless another
                attempt has succeeded meanwhile.

        Returns:
            Seconds to wait before the next attempt.

        """
        # Listener, log and the user's action are called outside the lock: they may take long, or ask for the state.
        before, state = self._advance(lasted)
        self._log.failed(error, first=before is BreakerState.DISARMED)
        _report_change(self._on_change, before, state)
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
    """Triggers when a window of 30 s sees too many failures; the window's end disarms it. Threads may share it.

    Args:
        name: Completes the sentence "<name> fails" in the log.
        maximum_per_second: Failures a second, on average over the window, beyond which it triggers.
        on_critical_error: Called with a description and the last error when it triggers. None: that is only logged.
        monotonic: The clock, in seconds.
        on_change: Called with the states before and after each change. None: nothing is.

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
        _report_change(self._on_change, former, state)
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
        _report_change(self._on_change, former, state)
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


def triggered(states: Mapping[str, str]) -> list[str]:
    """A sentence for each circuit breaker that has triggered, of their states by name."""
    names = [name for name, state in states.items() if state == BreakerState.TRIGGERED]
    return [f"the circuit breaker {name!r} has triggered" for name in names]


def _report_change(listener: StateListener | None, before: BreakerState, after: BreakerState) -> None:
    if listener is not None and before is not after:
        listener(before, after)


def report_critical_error(action: CriticalErrorAction | None, description: str, error: Exception) -> None:
    """Log `description` as critical and call the user's `action`; its exceptions are logged, never passed on."""
    logger.critical("%s: %s", description, error)
    if action is None:
        return
    try:
        action(description, error)
    except Exception:
        logger.exception("on_critical_error raised an error; the dispatcher continues")


class StoreCalls:
    """The store calls that one circuit breaker is about. Threads may share it.

    Args:
        breaker: Learns of calls that take so long that they count as failures.
        limit: How long a call may take.

    """

    def __init__(self, breaker: RepeatedFailuresOverTimeCircuitBreaker, limit: timedelta) -> None:
        self._breaker = breaker
        self._limit = limit.total_seconds()
        self._logged: Call | None = None

    def call(self, purpose: str) -> Call:
        """Make a call, to be used as a block.

        Args:
            purpose: The purpose of the call, as in "storing a message".

        Returns:
            The call. At its end it raises StoreUnavailableError, if it has taken too long.

        """
        return Call(purpose, self._limit, self)

    def longest(self) -> timedelta | None:
        """For how long the slowest call in progress has been going on; None: none is slow."""
        seconds = max((call.seconds for call in calls_of(self)), default=0.0)
        return timedelta(seconds=seconds) if seconds >= SLOW else None

    def in_progress(self, call: Call) -> None:
        """Log a slow call, one at a time; a call that lasts as long as failures may counts as one."""
        seconds = call.seconds
        if seconds >= SLOW and (self._logged is None or self._logged.ended):
            self._logged = call
            logger.warning(
                "the store has not answered for %.0f s: %s; it may be frozen or out of reach, or wait for a lock, "
                "or for a synchronous standby that is gone",
                seconds,
                call.purpose,
            )
        if self._breaker.would_trigger(seconds):
            error = StoreUnavailableError(f"no answer for {seconds:.0f} s: {call.purpose}")
            # its action is the user's, and may take long
            in_background("delaystore-breaker", lambda: self._breaker.failure(error, lasted=seconds))


LOUD_FROM: Final = 2
"""An outage is logged once this many attempts have failed one after the other."""


class Ticker:
    """Repeats some work in a daemon thread of its own, which `start` starts.

    Work that fails is tried again after a second, later after ten. Each outage is logged once.

    Args:
        name: The thread's name.
        purpose: Completes the sentence "<purpose> fails" in the log.
        work: Returns the seconds until the next time. It may raise.
        at_end: Called in the thread at its end. None: nothing is.
        log: Where failures are logged.

    """

    def __init__(
        self,
        name: str,
        purpose: str,
        work: Callable[[], float],
        at_end: Callable[[], None] | None = None,
        log: logging.Logger = logger,
    ) -> None:
        self._name = name
        self._purpose = purpose
        self._work = work
        self._at_end = at_end
        self._log = log
        self._wanted = threading.Event()
        self.prod: Final = self._wanted.set
        """Work now."""
        self._thread: threading.Thread | None = None
        self._failures = 0
        self._logged = False
        self.ended = False
        """Whether `end` was called: long work stops then."""

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
            self._wanted.clear()  # before the work, so that a prod during the work is not lost
            if not self.ended:
                self._wanted.wait(self._guarded(self._work))
        if self._at_end is not None:
            self._guarded(self._at_end)

    def _guarded(self, work: Callable[[], float | None]) -> float:
        """Seconds until the next time."""
        try:
            seconds = work()
        except Exception as error:
            return self._failed(error)
        if self._logged:
            self._log.warning("%s works again", self._purpose)
        self._failures, self._logged = 0, False
        return seconds or 0.0

    def _failed(self, error: Exception) -> float:
        """A single failure is no news: SQLite may be busy for a moment."""
        expected = isinstance(error, DelaystoreError)
        self._failures += 1
        if not self._logged and (self._failures >= LOUD_FROM or not expected):
            self._logged = True
            self._log.warning("%s fails: %s; will retry", self._purpose, error, exc_info=None if expected else error)
        else:
            self._log.debug("%s fails: %s", self._purpose, error)
        return min(ARMED_DELAY * self._failures, TRIGGERED_DELAY)
