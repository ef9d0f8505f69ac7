"""The dispatcher's loop: pass after pass while there is something due, asleep while there is not."""

import logging
import random
import threading
from typing import Final

from delaystore.dispatcher.breakers import BreakerState
from delaystore.dispatcher.error_queue import ErrorQueue
from delaystore.dispatcher.gate import TransportGate
from delaystore.dispatcher.lanes import HelperLane
from delaystore.dispatcher.passes import Breakers, DispatchPass, PassResult
from delaystore.dispatcher.subscription import Subscription
from delaystore.dispatcher.wakeup import WakeUp
from delaystore.errors import DelaystoreError
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.dispatcher")

SHORTEST_CONTENTION: Final = 0.05
LONGEST_CONTENTION: Final = 0.5
"""Seconds to sleep while what is due is held by another dispatcher."""


class DispatchLoop:
    """One run of the loop, from start to stop, in whichever thread calls `run`.

    `former`: the run before, which may still be finishing; two at a time there never are.
    """

    def __init__(
        self,
        store: DelayedMessageStore,
        transport: Transport,
        settings: DelayedDeliverySettings,
        passes: DispatchPass,
        breakers: Breakers,
        error_queue: ErrorQueue,
        name: str,
        former: "DispatchLoop | None" = None,
    ) -> None:
        self._store = store
        self._transport = transport
        self._settings = settings
        self._passes = passes
        self._breakers = breakers
        self._error_queue = error_queue
        self._contention = SHORTEST_CONTENTION
        self.wake: Final = WakeUp()
        self.finished: Final = threading.Event()
        self.subscription: Final = Subscription(store, self.wake.wake_up)
        self._thread_id: int | None = None
        self._former = former
        self._gate = TransportGate(transport, breakers.dispatch, self.wake)
        self._helper = HelperLane(f"{name}-helper", self._help)

    def run(self) -> None:
        """Dispatch until `wake.stop()`, finish what is in flight then. No failure of store or transport ends it."""
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
            self._thread_id = None
            self.finished.set()

    def is_current_thread(self) -> bool:
        """Whether the caller is one of this loop's threads, which must not wait for its end."""
        return self._thread_id == threading.get_ident() or self._helper.is_current_thread()

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
        if not self._gate.is_open():
            return
        self._error_queue.ensure()
        self.wake.begin()
        result = self._passes.run()
        if result.delay:
            # While the transport itself says that it cannot send, the gate waits, and sees sooner when it can again.
            if self._transport.unavailable() is None:
                self.wake.pause(result.delay)
        elif result.full:
            self._helper.engage()
        else:
            self._rest(result)

    def _rest(self, result: PassResult) -> None:
        """Sleep until something is due, which it may be already."""
        until = self._store.next()
        now = self._store.now() + self._settings.handover_horizon  # as far as the passes look
        if not result.report.fetched:
            self._gate.nothing_due()
        if until is None or until > now:
            self._contention = SHORTEST_CONTENTION
            alive = self.subscription.alive
            longest = self._settings.maximum_sleep if alive else self._settings.poll_interval
            self.wake.sleep(now, until, longest.total_seconds(), lambda: self.subscription.alive is alive)
        elif result.report.progress or until > result.at:
            self._contention = SHORTEST_CONTENTION
        else:
            jittered = random.uniform(SHORTEST_CONTENTION, self._contention)  # noqa: S311 - no secret
            self.wake.sleep(now, None, jittered, lambda: True)
            self._contention = min(self._contention * 2, LONGEST_CONTENTION)

    def _help(self) -> None:
        """What the helper lane does: passes for as long as they are full, and nothing goes wrong."""
        try:
            while not self.wake.stopped and self._transport.unavailable() is None:
                result = self._passes.run()
                if result.delay or not result.full:
                    break
        except Exception as error:
            self._fetch_failed(error)
        self.wake.wake_up()

    def _fetch_failed(self, error: Exception) -> float:
        """Count a failure of the store, or one nobody foresaw; returns the seconds to wait."""
        if not isinstance(error, DelaystoreError) and self._breakers.fetch.state is BreakerState.DISARMED:
            logger.error("unexpected %s in the dispatcher's loop, which goes on", type(error).__name__, exc_info=error)
        return self._breakers.fetch.failure(error)
