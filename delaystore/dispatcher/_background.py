"""Threads beside the passes: heartbeats, parking of messages of paused destinations, and schedules."""

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Final
from uuid import uuid4

from delaystore.breakers import Ticker
from delaystore.calls import Call
from delaystore.dispatcher._context import DispatchContext, WakeUp
from delaystore.dispatcher._pauses_and_limits import is_paused
from delaystore.dispatcher.error_queue import QueueDepth
from delaystore.schedules.making import make_due, recompute_zones
from delaystore.stores.history import StoreWithHistory
from delaystore.stores.operable import STEP, OperableDelayedMessageStore
from delaystore.stores.records import FURTHEST, HEARTBEAT_EVERY, DispatcherRecord
from delaystore.stores.schedules import ScheduleRows, StoreWithSchedules, schedule_rows

logger = logging.getLogger("delaystore.dispatcher")
HEARTBEAT_TIMEOUT: Final = 5.0
"""Seconds that a heartbeat may take."""

RATE_OVER: Final = 60.0
"""Seconds over which the rate is measured."""


class DispatcherHeartbeats:
    """Heartbeats in a thread of its own while a loop runs, also while passes wait for the broker.

    Each run of a loop has an id of its own. `name`: of its threads; `known_as`: how people know the dispatcher.
    """

    def __init__(self, context: DispatchContext, name: str, known_as: str) -> None:
        self._context = context
        self._id = str(uuid4())
        self._known_as = known_as
        self._version = version("delaystore")
        self._since: datetime | None = None
        self._delivered = deque([(time.monotonic(), context.tally.total.delivered)])
        transport, queue = context.transport, context.error_queue.name
        self._depth = QueueDepth(queue, lambda: transport.depth(queue), lambda: transport.unavailable() is None)
        self.ticker: Final = Ticker(
            f"{name}-heartbeats", "sending the dispatcher's heartbeat", self._heartbeat, self._retire
        )

    def report_once(self) -> None:
        """Without a loop: report dispatched messages. If that fails, the next report includes it."""
        store = self._context.operability.found
        if store is None:
            return
        try:
            self._depth.end()  # no thread waits for the broker's answer
            self._report(store)
            store.retire(self._id)
        except Exception as error:
            logger.warning("cannot report to the store what was dispatched: %s; the next report includes it", error)

    def _heartbeat(self) -> float:
        store = self._context.operability.check()
        if store is not None:
            self._report(store)
        return HEARTBEAT_EVERY.total_seconds()

    def _retire(self) -> None:
        self._depth.end()
        store = self._context.operability.found
        if store is not None and self._since is not None:
            self._report(store)
            with Call("deregistering the dispatcher", HEARTBEAT_TIMEOUT):
                store.retire(self._id)

    def _report(self, store: OperableDelayedMessageStore) -> None:
        activity = self._context.activity.take()
        try:
            with Call("sending the dispatcher's heartbeat", HEARTBEAT_TIMEOUT):
                store.heartbeat(self._record(store.now()), activity)
        except BaseException:
            self._context.activity.give_back(activity)
            raise

    def _record(self, now: datetime) -> DispatcherRecord:
        obstacle, store = self._context.transport.unavailable(), self._context.store
        # The first heartbeat is early: the transport may only now begin to connect.
        problem = None if self._since is None else obstacle
        self._since = self._since or now
        depth = self._depth.latest()
        return DispatcherRecord(
            dispatcher_id=self._id,
            name=self._known_as,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._version,
            since=self._since,
            heartbeat=now,
            rate=self._rate(),
            breakers=self._context.breakers.states(),
            error_queue=self._context.error_queue.name,
            error_queue_depth=None if depth is None else depth.messages,
            error_queue_seen=None if depth is None else now - timedelta(seconds=depth.age),
            problem=problem,
            audit=self._context.settings.audit.value,
            retention=self._context.settings.retention,
            makes_entries=isinstance(store, StoreWithHistory) and store.makes_entries,
        )

    def _rate(self) -> float:
        """Messages delivered a second, over the last minute or since the start."""
        now, delivered = time.monotonic(), self._context.tally.total.delivered
        known = self._delivered
        known.append((now, delivered))
        while len(known) > 2 and now - known[1][0] >= RATE_OVER:
            known.popleft()
        then, before = known[0]
        return (delivered - before) / (now - then) if now > then else 0.0


AHEAD: Final = timedelta(seconds=60)
"""Messages that become due within this time are parked, so that passes do not fetch them."""

PARK_EVERY: Final = 15.0
LOOK_EVERY: Final = 5.0
"""Seconds between two looks at the destinations, in any thread."""

LOOK_AGAIN: Final = 0.5
"""The same while messages may be parked or postponed: a change is to apply to them within a second."""

UNPARK_EVERY: Final = 60.0
"""Seconds between two searches for parked messages of destinations that are no longer known to be paused."""

STEP_PAUSE: Final = 0.02
"""Seconds between two steps, in which passes come first."""


class ParkingThread:
    """Parks and unparks in steps, in a thread of its own, while a loop runs. Several dispatchers may do the same.

    Each step is a transaction: a dispatcher that dies in the middle leaves the rest to the next one.
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
        """Park and unpark where it is time to; returns the seconds until the next look."""
        store = self._context.operability.check()
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
            time.sleep(STEP_PAUSE)
        self._context.destinations.forget()  # some may resume no longer

    def _park(self, store: OperableDelayedMessageStore, now: datetime) -> None:
        until = now + AHEAD + self._context.settings.handover_horizon
        while not self.ticker.ended:
            with self._call("parking messages of paused destinations"):
                if not store.park(until, STEP):
                    self._park_at = time.monotonic() + PARK_EVERY
                    return
            time.sleep(STEP_PAUSE)

    def _now(self) -> datetime:
        with self._call("asking for the time"):
            return self._context.store.now()

    def _call(self, purpose: str) -> Call:
        """A call of this thread's own: the breaker and the slow-call log of the passes do not count it."""
        return Call(purpose, self._context.settings.store_timeout.total_seconds())


SCHEDULES_EVERY: Final = 1.0
"""Seconds between two looks at the schedules: another process may have put one."""


class ScheduleThread:
    """Makes occurrences of schedules, in a thread of its own, while a loop runs. Several dispatchers may do the same.

    Rows are locked, and their occurrences are stored, in one transaction: a dispatcher that dies leaves the rows to the
    next one as they were.
    """

    def __init__(self, context: DispatchContext, name: str, wake: WakeUp) -> None:
        self._context, self._wake = context, wake
        self._has_zones = False
        self.ticker: Final = Ticker(f"{name}-schedules", "making occurrences of schedules", self.work)

    def work(self) -> float:
        """Make all occurrences that are to be made now; returns the seconds to the next look. Raises store errors."""
        store = self._context.operability.check()
        if not isinstance(store, StoreWithSchedules) or not store.has_schedules:
            return LOOK_EVERY
        while not (self._has_zones or self.ticker.ended):
            with self._rows(store, "looking at the time zones of schedules") as rows:
                self._has_zones = not recompute_zones(rows)
        seconds = SCHEDULES_EVERY
        while not self.ticker.ended:
            with self._rows(store, "asking for the next schedule") as rows:
                first, now = rows.next_look(), rows.transaction.now()
            seconds = SCHEDULES_EVERY if first is None else (first - now).total_seconds()
            if first is None or first > now:
                break
            with self._rows(store, "making occurrences of schedules") as rows:
                made = make_due(rows)
            if made.earliest is not None:
                self._wake.wake_up(made.earliest)
            if not made.rows:
                return SCHEDULES_EVERY  # others make them
            time.sleep(STEP_PAUSE)
        return min(seconds, SCHEDULES_EVERY)

    @contextmanager
    def _rows(self, store: StoreWithSchedules, purpose: str) -> Iterator[ScheduleRows]:
        """Rows in a transaction. It is a call of this thread's own, which the breaker of the passes does not count."""
        with Call(purpose, self._context.settings.store_timeout.total_seconds()), store.transaction() as transaction:
            yield schedule_rows(transaction)


def unpark_resuming(context: DispatchContext) -> None:
    """Show all parked and postponed messages of destinations that are resuming. Raises the store's errors."""
    context.destinations.forget()
    context.destinations.read()
    store = context.operability.found
    if store is None or not any(each.resuming for each in context.destinations.all):
        return
    while True:
        with context.store_calls.call("showing parked messages again"):
            if not store.unpark(STEP, context.settings.handover_horizon):
                return
