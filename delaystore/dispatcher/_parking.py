"""Parking what falls due for paused destinations, and showing it again, as what a limit postponed, beside passes."""

import time
from datetime import datetime, timedelta
from typing import Final

from delaystore.calls import Call
from delaystore.dispatcher._context import DispatchContext
from delaystore.dispatcher._destinations import is_paused
from delaystore.dispatcher._wakeup import WakeUp
from delaystore.dispatcher.ticker import Ticker
from delaystore.stores.operable import FURTHEST, STEP, OperableDelayedMessageStore

AHEAD: Final = timedelta(seconds=60)
"""Parked is what falls due within this time: passes then do not meet it."""
PARK_EVERY: Final = 15.0
LOOK_EVERY: Final = 5.0
"""Seconds between two looks at the destinations, by whichever thread."""
LOOK_AGAIN: Final = 0.5
"""The same while messages may be parked or postponed: a change is to count for them within a second."""
UNPARK_EVERY: Final = 60.0
"""Seconds between two searches for parked messages whose destination nobody knows to be paused any more."""
BREATHER: Final = 0.02
"""Seconds between two steps, in which passes come first."""


class Parking:
    """Parks and unparks in steps, in a thread of its own, while a loop runs. Several dispatchers may do the same.

    Each step is a transaction: whoever dies in the middle leaves the rest to the next one.
    """

    def __init__(self, context: DispatchContext, name: str, wake: WakeUp) -> None:
        self._context = context
        self._wake = wake
        self._park_at = 0.0
        self._unpark_at = time.monotonic() + UNPARK_EVERY
        self.ticker: Final = Ticker(f"{name}-parking", "parking messages of paused destinations", self._look)
        context.destinations.on_change = self._changed

    def _changed(self) -> None:
        self._park_at = 0.0
        self.ticker.prod()

    def _look(self) -> float:
        """Do what is to be done; returns the seconds until the next time."""
        store = self._context.operability.ask()
        if store is None:
            return LOOK_EVERY
        self._context.destinations.read()
        now = self._now()
        known = self._context.destinations.all
        if any(each.resuming or (each.paused and not is_paused(each, now)) for each in known):
            self._unpark_at = 0.0
        if time.monotonic() >= self._unpark_at:
            self._unpark(store)
        if any(is_paused(each, now) for each in known) and time.monotonic() >= self._park_at:
            self._park(store, now)
        return self._seconds_until_next(now)

    def _seconds_until_next(self, now: datetime) -> float:
        ends = [each.paused_until for each in self._context.destinations.all if each.paused and each.paused_until]
        longest = LOOK_AGAIN if self._may_hide(now) else LOOK_EVERY
        return max(0.0, min([longest, *((end - now).total_seconds() for end in ends)]))

    def _may_hide(self, now: datetime) -> bool:
        """Whether messages may be parked or postponed."""
        known = self._context.destinations
        if known.postponed_until is None:  # a dispatcher that has ended may have postponed some
            known.postponed_until = now + FURTHEST
        is_pending = now < known.postponed_until
        return any(each.paused or each.resuming or (is_pending and each.max_rate is not None) for each in known.all)

    def _unpark(self, store: OperableDelayedMessageStore) -> None:
        while not self.ticker.ended:
            with self._call("showing parked messages again"):
                step = store.unpark(STEP, self._context.settings.handover_horizon)
            if not step:
                self._unpark_at = time.monotonic() + UNPARK_EVERY
                break
            self._wake.wake_up()
            time.sleep(BREATHER)
        self._context.destinations.forget()  # some may resume no longer

    def _park(self, store: OperableDelayedMessageStore, now: datetime) -> None:
        until = now + AHEAD + self._context.settings.handover_horizon
        while not self.ticker.ended:
            with self._call("parking messages of paused destinations"):
                if not store.park(until, STEP):
                    self._park_at = time.monotonic() + PARK_EVERY
                    return
            time.sleep(BREATHER)

    def _now(self) -> datetime:
        with self._call("asking for the time"):
            return self._context.store.now()

    def _call(self, purpose: str) -> Call:
        """No call of the passes: that it is slow, or fails, is told as this thread's own."""
        return Call(purpose, self._context.settings.store_timeout.total_seconds())


def show_what_resumes(context: DispatchContext) -> None:
    """Show all that is parked or postponed of destinations that are resuming. Raises what the store raises."""
    context.destinations.forget()
    context.destinations.read()
    store = context.operability.found
    if store is None or not any(each.resuming for each in context.destinations.all):
        return
    while True:
        with context.store_calls.call("showing parked messages again"):
            if not store.unpark(STEP, context.settings.handover_horizon):
                return
