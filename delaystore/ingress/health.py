"""How an ingress is doing: counted, reported to programs, and to the store by heartbeats."""

import logging
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from typing_extensions import override

from delaystore.breakers import Ticker, triggered
from delaystore.calls import Call
from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher.error_queue import QueueDepth
from delaystore.dispatcher.health import HealthReport
from delaystore.ingress._entries import IngestEntry, IngestResult
from delaystore.ingress.settings import IngressSettings
from delaystore.stores.records import HEARTBEAT_EVERY, IngressRecord
from delaystore.transports.abc import Transport

RESULTS: Final = ("stored", "duplicate", "discarded", "repeated", "passthrough", "rejected", "applied")
"""Results of messages: the counts below that grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressHealth(HealthReport):
    """How an ingress is doing at one moment; the counts begin with the process."""

    queue: str
    """The ingress queue."""
    running: bool
    connected: bool
    """Whether it is consuming."""
    obstacle: str | None = None
    """Why it is not consuming; None: it is, or has only begun."""
    stored: int = 0
    duplicate: int = 0
    """Were in the store already, as after a crash."""
    discarded: int = 0
    """Another message with their id was kept."""
    repeated: int = 0
    """Were dropped, because messages with their ids were delivered already."""
    passthrough: int = 0
    """Were forwarded at once."""
    rejected: int = 0
    applied: int = 0
    """Said that others were to be cancelled."""
    unacknowledged: int = 0
    """Messages that stay in the ingress queue, as the store fails on them or the rejected queue does not take them."""
    why_unacknowledged: str | None = None
    """Why they are; None: none are."""
    breakers: Mapping[str, str] = field(default_factory=dict)
    """`intake`: storing incoming messages; `consume`: the ingress queue."""
    slow_store_call: timedelta | None = None
    last_success: datetime | None = None
    """When a message was last acknowledged."""

    @property
    @override
    def problems(self) -> Sequence[str]:
        """Why it is not healthy, a sentence each; none: it is."""
        found = [] if self.running else [f"the ingress of {self.queue!r} does not run"]
        if self.obstacle is not None:
            found.append(f"the ingress of {self.queue!r} does not consume: {self.obstacle}")
        found += triggered(self.breakers)
        if self.why_unacknowledged is not None:
            found.append(f"{self.unacknowledged} messages are unacknowledged: {self.why_unacknowledged}")
        return found


class IngressCounts:
    """Counts by result. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[IngestResult] = Counter()
        self.last_success: datetime | None = None
        """When something was last acknowledged, by this computer's clock."""
        self.unacknowledged = 0
        """How many messages are unacknowledged in the ingress queue."""
        self.trouble: str | None = None
        """Why; None: none are."""

    def add(self, settled: Sequence[IngestEntry]) -> None:
        """Count entries that have a result."""
        if not settled:
            return
        with self._lock:
            self._counts.update([entry.result for entry in settled if entry.result is not None])
            self.last_success = datetime.now(UTC)

    def left(self, count: int, trouble: str | None) -> None:
        """Note how many messages are unacknowledged, and why."""
        with self._lock:
            self.unacknowledged = count
            self.trouble = trouble if count else None

    def counts(self) -> Mapping[str, int]:
        """How many messages had each result."""
        with self._lock:
            return {result.value: self._counts[result] for result in IngestResult}


logger = logging.getLogger("delaystore.ingress")

HEARTBEAT_TIMEOUT: Final = 5.0
"""Seconds that a heartbeat may take."""
LONGEST_END: Final = 2.0
"""Seconds to wait at the end for the store to hear of it: one that hangs must not keep the process."""
_UNTIL_READY: Final = 0.5
"""Seconds between two looks at whether the store is set up."""


class IngressHeartbeats:
    """Heartbeats in a thread of its own for as long as the block lasts. No message waits for them.

    `transport`: is asked how many messages are in the rejected queue. `health`: asks neither store nor broker.
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
        purpose = f"reporting the ingress of {settings.queue!r} to the store"
        name = f"delaystore-ingress-{settings.queue}-heartbeats"
        self._ticker = Ticker(name, purpose, self._heartbeat, self._retire, logger)

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ticker.end()
        self._depth.end()
        if not self._ticker.join(LONGEST_END):
            logger.warning("the store does not answer the final heartbeat of the ingress; ending without it")

    def _heartbeat(self) -> float:
        if not self._delivery.is_ready:
            return _UNTIL_READY
        with Call("storing a heartbeat of the ingress", HEARTBEAT_TIMEOUT):
            store = self._delivery.operable_store()
            if store is not None:
                store.heartbeat_of_ingress(self._record(store.now()))
        return HEARTBEAT_EVERY.total_seconds()

    def _retire(self) -> None:
        if self._since is None:
            return
        with Call("storing the final heartbeat of the ingress", HEARTBEAT_TIMEOUT):
            store = self._delivery.operable_store()
            if store is not None:
                store.retire_ingress(self._id)

    def _record(self, now: datetime) -> IngressRecord:
        self._since = self._since or now
        health, depth = self._health(), self._depth.latest()
        return IngressRecord(
            ingress_id=self._id,
            queue=health.queue,
            rejected_queue=self._settings.rejected_queue,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._version,
            since=self._since,
            heartbeat=now,
            stored=health.stored,
            rejected=health.rejected,
            unacknowledged=health.unacknowledged,
            why_unacknowledged=health.why_unacknowledged,
            rejected_depth=None if depth is None else depth.messages,
            rejected_seen=None if depth is None else now - timedelta(seconds=depth.age),
            breakers=health.breakers,
            problem=health.obstacle,
        )
