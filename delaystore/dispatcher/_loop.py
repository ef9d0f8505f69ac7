"""The loop of a dispatcher: pass after pass, woken by new messages, paused by breakers."""

import logging
import random
import threading
import time
from typing import Final

from delaystore.breakers import BreakerState, RepeatedFailuresOverTimeCircuitBreaker
from delaystore.dispatcher._background import DispatcherHeartbeats, ParkingThread, ScheduleThread
from delaystore.dispatcher._context import DispatchContext, WakeUp, Worker
from delaystore.dispatcher._passes import DispatchPass, PassResult
from delaystore.errors import DelaystoreError, TransportUnavailableError
from delaystore.stores.abc import DelayedMessageStore, WakeUpCallback, WakeUpSubscription
from delaystore.stores.history import StoreWithHistory
from delaystore.transports.abc import Transport

CONNECTING_GRACE: Final = 3.0
"""Seconds after the start in which a missing connection is no failure."""

CONNECTING_POLL: Final = 0.02
"""Seconds between two checks of the connection in that time."""


class AvailabilityCheck:
    """Waits, outside any transaction, for the end of an outage that a pass has found."""

    def __init__(
        self,
        transport: Transport,
        breaker: RepeatedFailuresOverTimeCircuitBreaker,
        wake: WakeUp,
    ) -> None:
        self._transport = transport
        self._breaker = breaker
        self._wake = wake
        self._grace_ends = time.monotonic() + CONNECTING_GRACE
        self._outage = False

    def wait(self, outage: str, delay: float) -> None:
        """Wait until the transport can send, but not longer than `delay` seconds.

        `delay` 0: the breaker does not know of `outage` yet; it counts it, and says how long to wait.
        """
        grace = self._grace_ends - time.monotonic()
        if grace > 0 and not delay:
            self._wake.pause(grace, self.can_send, CONNECTING_POLL)
        else:
            self._outage = True
            delay = delay or self._breaker.failure(TransportUnavailableError(outage))
            self._wake.pause(delay, self.can_send)

    def confirm(self, *, idle: bool) -> None:
        """Note that a pass could claim. `idle`: it found nothing due; an outage counted by `wait` is then over."""
        self._grace_ends = 0.0
        if idle and self._outage:
            self._outage = False
            self._breaker.success()

    def can_send(self) -> bool:
        """Whether the transport can send now; True also if it does not know."""
        return self._transport.unavailable() is None


logger = logging.getLogger("delaystore.dispatcher")
SUBSCRIBE_AGAIN: Final = 30.0
"""Seconds between attempts to subscribe."""

LONGEST_CLOSE: Final = 5.0
"""Seconds that closing waits for a store, whose database may hang."""


class Subscription:
    """Subscribes to the store's wake-ups if it has them, and tries again if that fails."""

    def __init__(
        self,
        store: DelayedMessageStore,
        on_wake_up: WakeUpCallback,
    ) -> None:
        self._store = store
        self._on_wake_up = on_wake_up
        self._settled = False
        self._not_before = 0.0
        self._subscription: WakeUpSubscription | None = None

    def ensure(self) -> None:
        """Subscribe, unless that was done, or tried a moment ago. Never raises."""
        if self._settled or time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + SUBSCRIBE_AGAIN
        try:
            self._subscription = self._store.subscribe(self._on_wake_up)
            self._settled = True
        except Exception as error:
            logger.warning("cannot subscribe to the store's wake-ups; polling: %s", error)

    @property
    def alive(self) -> bool:
        """Whether wake-ups arrive; False: poll."""
        subscription = self._subscription
        return subscription is not None and subscription.alive

    def close(self) -> None:
        """Stop listening, within seconds: a store that takes longer is left to a thread of its own. Never raises."""
        subscription = self._subscription
        if subscription is None:
            return
        closer = threading.Thread(target=_close, args=(subscription,), name="delaystore-unsubscribe", daemon=True)
        try:
            closer.start()
        except RuntimeError:
            _close(subscription)  # no thread can be started
            return
        closer.join(LONGEST_CLOSE)
        if closer.is_alive():
            logger.warning("cannot close the store's subscription within %g s; continuing without", LONGEST_CLOSE)


def _close(subscription: WakeUpSubscription) -> None:
    try:
        subscription.close()
    except Exception as error:
        logger.warning("cannot close the store's subscription: %s; continuing without", error)


SHORTEST_CONTENTION: Final = 0.05
LONGEST_CONTENTION: Final = 0.5
"""The least and the most seconds to sleep while another dispatcher has claimed all due messages."""

CLEAN_UP_EVERY: Final = 60.0
"""Seconds."""

FORGET_AGAIN: Final = 1.0
"""Seconds between two steps of deleting old entries, while there are more."""

FORGET_FOR: Final = 0.2
"""Seconds for which steps follow one another at once."""

LONGEST_END: Final = 5.0
"""Seconds that the end waits for the threads beside the passes."""


def forget_old(context: DispatchContext) -> bool:
    """Delete some old entries of the audit trail and the history; whether there may be more. Raises store errors."""
    store = context.operability.found
    if store is None:
        return False
    with context.store_calls.call("deleting old audit entries"):
        has_more = store.forget_before(store.now() - context.settings.retention) > 0
    if not isinstance(store, StoreWithHistory):
        return has_more
    until = time.monotonic() + FORGET_FOR
    while time.monotonic() < until:
        with context.store_calls.call("deleting old entries of the history"):
            if not store.forget_history():
                return has_more
    return True


class DispatchLoop:
    """One run of the loop, from start to stop, in the thread that calls `run`.

    `name`: of its threads; `known_as`: how people know the dispatcher. `former`: the run before, if any; this one waits
    until it has finished.
    """

    def __init__(
        self,
        context: DispatchContext,
        passes: DispatchPass,
        name: str,
        known_as: str,
        former: "DispatchLoop | None" = None,
    ) -> None:
        self._context = context
        self._passes = passes
        self._contention = SHORTEST_CONTENTION
        self._clean_up_at = self._forget_at = time.monotonic() + CLEAN_UP_EVERY
        self.wake: Final = WakeUp()
        self.finished: Final = threading.Event()
        self.subscription: Final = Subscription(context.store, self.wake.wake_up)
        self._thread_id: int | None = None
        self._former = former
        self._availability = AvailabilityCheck(context.transport, context.breakers.dispatch, self.wake)
        self._helper = Worker(f"{name}-helper", self._help)
        self._tickers = (
            DispatcherHeartbeats(context, name, known_as).ticker,
            ParkingThread(context, name, self.wake).ticker,
            ScheduleThread(context, name, self.wake).ticker,
        )

    def run(self) -> None:
        """Dispatch until `wake.stop()`, then finish the batches in flight. No failure of store or transport ends it."""
        self._thread_id = threading.get_ident()
        try:
            self._wait_for_former()
            while not self.wake.stopped:
                self._guarded_turn()
        except BaseException as error:
            logger.critical("the dispatcher's thread ends: %s", type(error).__name__)
            raise
        finally:
            self._helper.end()
            self.subscription.close()
            self._end_tickers()
            self._thread_id = None
            self.finished.set()

    def is_current_thread(self) -> bool:
        """Whether the caller is one of this loop's threads, which must not wait for its end."""
        workers = self._helper, *self._tickers
        return self._thread_id == threading.get_ident() or any(worker.is_current_thread() for worker in workers)

    def _start_tickers(self) -> None:
        if self._context.operability.found is not None:
            for ticker in self._tickers:
                ticker.start()

    def _end_tickers(self) -> None:
        """End them, and wait for a moment: a database that hangs must not keep the process."""
        for ticker in self._tickers:
            ticker.end()
        deadline = time.monotonic() + LONGEST_END
        for ticker in self._tickers:
            if not ticker.join(max(0.0, deadline - time.monotonic())):
                logger.warning("the store does not answer the dispatcher's final heartbeat; ending without it")

    def _wait_for_former(self) -> None:
        former, self._former = self._former, None
        if former is not None and not former.is_current_thread():
            former.finished.wait()

    def _guarded_turn(self) -> None:
        try:
            self._turn()
        except Exception as error:
            self.wake.pause(self._fetch_failed(error))

    def _turn(self) -> None:
        self.subscription.ensure()
        self._context.operability.check()
        self._start_tickers()
        self.wake.begin()
        result = self._passes.run()
        if result.outage is not None:
            self._availability.wait(result.outage, result.delay)
            return
        self._availability.confirm(idle=not result.report.fetched)
        self._clean_up()
        self._forget()
        if result.delay:
            self.wake.pause(result.delay)
        elif result.keep_going:
            self._helper.engage()
        elif not result.again:
            self._rest(result)

    def _clean_up(self) -> None:
        """Have the store delete its left-overs, when it is time. Dispatching goes on if that fails."""
        if time.monotonic() < self._clean_up_at:
            return
        self._clean_up_at = time.monotonic() + CLEAN_UP_EVERY
        try:
            with self._context.store_calls.call("cleaning up"):
                self._context.store.clean_up()
        except DelaystoreError as error:
            logger.warning("cleanup failed: %s; will retry in %.0f s", error, CLEAN_UP_EVERY)

    def _forget(self) -> None:
        """Delete old entries, when it is time; soon again, if there are more. Dispatching goes on if that fails."""
        if time.monotonic() < self._forget_at:
            return
        self._forget_at = time.monotonic() + CLEAN_UP_EVERY
        try:
            if forget_old(self._context):
                self._forget_at = time.monotonic() + FORGET_AGAIN
        except DelaystoreError as error:
            logger.warning("cannot delete old entries: %s; will retry in %.0f s", error, CLEAN_UP_EVERY)

    def _rest(self, result: PassResult) -> None:
        """Sleep until a message is due; briefly, if other dispatchers have claimed all that are due now."""
        store, settings = self._context.store, self._context.settings
        with self._context.store_calls.call("asking when the next message is due"):
            until = store.next()
            now = store.now() + settings.handover_horizon  # as far ahead as the passes fetch
        if until is None or until > now:
            self._contention = SHORTEST_CONTENTION
            alive = self.subscription.alive
            longest = settings.maximum_sleep if alive else settings.poll_interval
            self.wake.sleep(now, until, longest.total_seconds(), lambda: self.subscription.alive is alive)
        elif result.report.progress or until > result.at:
            self._contention = SHORTEST_CONTENTION
        else:
            jittered = random.uniform(SHORTEST_CONTENTION, self._contention)  # noqa: S311 - no secret
            self.wake.sleep(now, None, jittered, lambda: True)
            self._contention = min(self._contention * 2, LONGEST_CONTENTION)

    def _help(self) -> None:
        """The second worker's work: passes, as long as they are full and nothing goes wrong."""
        try:
            while not self.wake.stopped:
                result = self._passes.run()
                if result.hindered or not result.keep_going:
                    break
        except Exception as error:
            self._fetch_failed(error)
        self.wake.wake_up()

    def _fetch_failed(self, error: Exception) -> float:
        """Count a failure of the store, or an unexpected one; returns the seconds to wait."""
        fetch = self._context.breakers.fetch
        if not isinstance(error, DelaystoreError) and fetch.state is BreakerState.DISARMED:
            logger.error(
                "internal error, %s, in the dispatcher's loop; dispatching continues",
                type(error).__name__,
                exc_info=error,
            )
        return fetch.failure(error)
