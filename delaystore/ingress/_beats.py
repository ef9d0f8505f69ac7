"""Telling the store that an ingress lives, and how it is."""

import logging
import os
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.metadata import version
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from delaystore.calls import Call
from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher.depth import QueueDepth
from delaystore.dispatcher.ticker import Ticker
from delaystore.ingress.health import IngressHealth
from delaystore.ingress.settings import IngressSettings
from delaystore.stores.operable import BEAT_EVERY, IngressRecord
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.ingress")

LONGEST_BEAT: Final = 5.0
"""Seconds that a beat may take."""
LONGEST_END: Final = 2.0
"""Seconds to wait at the end for the store to hear of it: one that hangs must not keep the process."""
_UNTIL_READY: Final = 0.5
"""Seconds between two looks at whether the store is set up."""


class Beats:
    """Beats in a thread of its own for as long as the block lasts. Nothing waits for them while messages are taken in.

    `transport`: is asked how many messages are in the rejected queue. `health`: asks nobody.
    """

    def __init__(
        self,
        delivery: DelayedDelivery,
        transport: Transport,
        settings: IngressSettings,
        health: Callable[[], IngressHealth],
    ) -> None:
        self._delivery = delivery
        self._settings = settings
        self._health = health
        self._id = str(uuid4())
        self._version = version("delaystore")
        self._since: datetime | None = None
        rejected = settings.rejected_queue
        self._depth = QueueDepth(rejected, lambda: transport.depth(rejected), lambda: health().connected)
        purpose = f"telling the store of the ingress of {settings.queue!r}"
        name = f"delaystore-ingress-{settings.queue}-beats"
        self._ticker = Ticker(name, purpose, self._beat, self._retire, logger)

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ticker.end()
        self._depth.end()
        if not self._ticker.join(LONGEST_END):
            logger.warning("the store does not answer the last words of the ingress; going on without")

    def _beat(self) -> float:
        if not self._delivery.is_ready:
            return _UNTIL_READY
        with Call("telling that the ingress lives", LONGEST_BEAT):
            store = self._delivery.operable_store()
            if store is not None:
                store.beat_of_ingress(self._record(store.now()))
        return BEAT_EVERY.total_seconds()

    def _retire(self) -> None:
        if self._since is None:
            return
        with Call("telling that the ingress has ended", LONGEST_BEAT):
            store = self._delivery.operable_store()
            if store is not None:
                store.retire_ingress(self._id)

    def _record(self, now: datetime) -> IngressRecord:
        self._since = self._since or now
        health, depth = self._health(), self._depth.ask()
        return IngressRecord(
            ingress_id=self._id,
            queue=health.queue,
            rejected_queue=self._settings.rejected_queue,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._version,
            since=self._since,
            beat=now,
            stored=health.stored,
            rejected=health.rejected,
            kept_back=health.kept_back,
            why_kept_back=health.why_kept_back,
            rejected_depth=None if depth is None else depth.messages,
            rejected_seen=None if depth is None else now - timedelta(seconds=depth.age),
            breakers=health.breakers,
            problem=health.obstacle,
        )
