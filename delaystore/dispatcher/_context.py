"""Shared parts of a dispatcher: context, worker thread, and wake-ups."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from delaystore.breakers import Breakers, StoreCalls
from delaystore.dispatcher._batch import RecentActivity
from delaystore.dispatcher._pauses_and_limits import KnownDestinations, OperabilityCheck
from delaystore.dispatcher.error_queue import ErrorQueueCopies
from delaystore.dispatcher.health import DispatchCounts
from delaystore.dispatcher.observer import DispatchObserver, guarded
from delaystore.errors import StorePermissionError, StoreSetupError
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.history import StoreWithHistory
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.dispatcher")
KEEP_AGAIN: Final = 60.0
"""Seconds between two attempts to begin a history."""


class DispatchContext:
    """Store, transport, settings and common state of one dispatcher; its threads share it.

    `known_as`: how people know the dispatcher.
    """

    def __init__(
        self,
        store: DelayedMessageStore,
        transport: Transport,
        settings: DelayedDeliverySettings,
        observer: DispatchObserver | None = None,
        known_as: str = "dispatcher",
    ) -> None:
        self.known_as = known_as
        self.store = store
        self.transport = transport
        self.settings = settings
        self.exactly_once = settings.transaction_mode is TransactionMode.TRANSACTION_SCOPE
        self.observer = guarded(observer)
        self.breakers = Breakers(settings, None if self.observer is None else self.observer.breaker_changed)
        self.store_calls = StoreCalls(self.breakers.fetch, settings.store_timeout)
        self.error_queue = ErrorQueueCopies(transport, settings)
        self.tally = DispatchCounts()
        self.operability = OperabilityCheck(store, self.store_calls)
        self.destinations = KnownDestinations(self.operability, self.store_calls)
        self.activity = RecentActivity()
        self._history = settings.history
        self._keep_from = 0.0

    def keep_history(self) -> None:
        """Have the store keep a history as the settings say. Raises the store's errors.

        Where the tables are not upgraded yet, or this user may not write the setting, it tries again later: messages
        are dispatched anyway.
        """
        kept = self._history
        if kept is None or time.monotonic() < self._keep_from:
            return
        store = self.store
        if not isinstance(store, StoreWithHistory) or self.operability.check() is None:
            return
        try:
            with self.store_calls.call("beginning the history"):
                store.keep_history(kept or None)
            self._history = None
        except (StoreSetupError, StorePermissionError) as error:
            self._keep_from = time.monotonic() + KEEP_AGAIN
            logger.warning("no history is kept: %s", error)


class Worker:
    """A thread that does `work` each time it is engaged, so that one batch is claimed while another is in flight.

    It is started when first needed. `work` must not raise.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name = name
        self._work = work
        self._wanted = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def engage(self) -> None:
        """Do the work (again); returns at once, and does nothing while it is being done."""
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None  # no thread can be started: one must do

    def is_current_thread(self) -> bool:
        """Whether the caller is this worker's thread."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """Wait until the work in hand is done, and end the thread."""
        self._ended = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            # Cleared before `_ended` is read: in the other order, an end() between the two would be missed.
            self._wanted.clear()
            if self._ended:
                return
            self._work()


AT_ONCE: Final = datetime.min.replace(tzinfo=UTC)
NEVER: Final = datetime.max.replace(tzinfo=UTC)
LONGEST_SLEEP: Final = 3600.0
"""Seconds; bounds every wait that a setting or a store asks for."""

SLICE: Final = 0.5
"""Seconds after which a sleeper checks whether it may go on sleeping; it does not ask the store."""


class WakeUp:
    """One sleeper, the dispatcher's loop, and any number of wakers.

    A wake-up only ever brings the sleeper's deadline forward. One that comes while the loop works is remembered until
    the loop begins its next pass, which sees each message that was stored before the wake-up.
    """

    def __init__(self) -> None:
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
        # Without the lock first, since senders call this for every message. If the deadline is earlier, a pass comes
        # sooner anyway, and after it the store is asked for the next due time.
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
        began = time.monotonic()
        latest = now + timedelta(seconds=_bounded(at_most))
        with self._condition:
            self._deadline = min(self._deadline, latest, NEVER if until is None else until)
            while not self._stopped:
                remaining = (self._deadline - now).total_seconds() - (time.monotonic() - began)
                if remaining <= 0 or not undisturbed():
                    return
                self._condition.wait(min(remaining, SLICE))

    def pause(self, seconds: float, over: Callable[[], bool] | None = None, poll: float = SLICE / 2) -> None:
        """Wait for `seconds`, also if woken. Only `stop` ends it sooner, or True from `over` (asked each `poll` s)."""
        end = time.monotonic() + _bounded(seconds)
        while not self._stopped and not (over is not None and over()):
            remaining = end - time.monotonic()
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
