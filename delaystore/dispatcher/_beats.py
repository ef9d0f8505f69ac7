"""Telling the store that a dispatcher lives, and what it did."""

import logging
import os
import socket
import time
from collections import deque
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Final
from uuid import uuid4

from delaystore.calls import Call
from delaystore.dispatcher._context import DispatchContext
from delaystore.dispatcher.depth import QueueDepth
from delaystore.dispatcher.ticker import Ticker
from delaystore.stores.operable import BEAT_EVERY, DispatcherRecord, OperableDelayedMessageStore

logger = logging.getLogger("delaystore.dispatcher")

LONGEST_BEAT: Final = 5.0
"""Seconds that a beat may take."""
RATE_OVER: Final = 60.0
"""Seconds over which the rate is measured."""


class Beats:
    """Beats in a thread of its own while a loop runs, also while passes wait for the broker.

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
        self.ticker: Final = Ticker(f"{name}-beats", "telling that the dispatcher lives", self._beat, self._retire)

    def tell_once(self) -> None:
        """Without a loop: tell what was done. That it cannot be told is no reason to fail: it is told the next time."""
        store = self._context.operability.found
        if store is None:
            return
        try:
            self._depth.end()  # nobody waits for the broker's answer
            self._tell(store)
            store.retire(self._id)
        except Exception as error:
            logger.warning("telling what was done fails: %s", error)

    def _beat(self) -> float:
        store = self._context.operability.ask()
        if store is not None:
            self._tell(store)
        return BEAT_EVERY.total_seconds()

    def _retire(self) -> None:
        self._depth.end()
        store = self._context.operability.found
        if store is not None and self._since is not None:
            self._tell(store)
            with Call("telling that the dispatcher has ended", LONGEST_BEAT):
                store.retire(self._id)

    def _tell(self, store: OperableDelayedMessageStore) -> None:
        activity = self._context.activity.take()
        try:
            with Call("telling that the dispatcher lives", LONGEST_BEAT):
                store.beat(self._record(store.now()), activity)
        except BaseException:
            self._context.activity.give_back(activity)
            raise

    def _record(self, now: datetime) -> DispatcherRecord:
        obstacle = self._context.transport.unavailable()
        problem = None if self._since is None else obstacle  # the first beat is early: it may only now begin to connect
        self._since = self._since or now
        depth = self._depth.ask()
        return DispatcherRecord(
            dispatcher_id=self._id,
            name=self._known_as,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._version,
            since=self._since,
            beat=now,
            rate=self._rate(),
            breakers=self._context.breakers.states(),
            error_queue=self._context.error_queue.name,
            error_queue_depth=None if depth is None else depth.messages,
            error_queue_seen=None if depth is None else now - timedelta(seconds=depth.age),
            problem=problem,
            audit=self._context.settings.audit.value,
            retention=self._context.settings.retention,
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
