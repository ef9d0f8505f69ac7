"""Moving messages out of a cascade: read, forwarded, and acknowledged once they are confirmed."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from delaystore.calls import ProgressListener
from delaystore.cascades.moving._forwarding import BatchResult, CopyForwarder, Result, ResultKind, TargetDestinations
from delaystore.cascades.moving._planning import (
    LevelMessage,
    Planner,
    UnmovableError,
    reading_limits,
    refuse_dry_run,
    refuse_near_delivery_limit,
)
from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.cascades.moving.report import MoveReport
from delaystore.clock import RateLimit
from delaystore.errors import ConfigurationError, DelaystoreError, TransportUnavailableError
from delaystore.transports.rabbitmq.consuming import Consumed, Consumer
from delaystore.transports.rabbitmq.queues import declare_queue, ready_counts
from delaystore.transports.rabbitmq.topology.cascades import DueFrom, Routing


class LevelReader(Consumer):
    """Consumes the level queues, the highest level first, since messages walk down meanwhile.

    `prefetch`: how many messages of each queue may be unacknowledged.
    """

    def __init__(self, source: BrokerCascade, prefetch: int) -> None:
        ready = ready_counts(source.connections, source.queues)
        self._levels = [level for level, count in reversed(list(enumerate(ready))) if count is not None]
        self._names = source.queues
        queues = [source.queues[level] for level in self._levels]
        super().__init__(source.broker, source.name, queues, prefetch, remedy=_REMEDY)

    def messages(self, most: int, most_bytes: int) -> list[LevelMessage]:
        """As `take`."""
        return [self._message(consumed) for consumed in self.take(most, most_bytes)]

    def _message(self, consumed: Consumed) -> LevelMessage:
        level = self._levels[consumed.queue]
        _, tag, redelivered, _, key, properties, body = consumed.delivery
        return LevelMessage(tag, level, self._names[level], key, properties, body, redelivered)


_REMEDY: Final = "; run it again, what was not acknowledged is still there"
BATCH: Final = 500
"""Messages published at a time, at most."""
WORKERS: Final = 3
"""Threads that publish a batch each."""
_BATCH_BYTES: Final = 8 * 1024 * 1024
_PREFETCH: Final = 500
"""Messages of one level queue that are unacknowledged, at most. Their time to live stands still meanwhile."""
_FIRST: Final = 1000
"""Messages of each level that a dry run reads; no other consumer gets them meanwhile."""
_ENOUGH: Final = 4 * BATCH
_ENOUGH_BYTES: Final = 4 * _BATCH_BYTES
"""No more is received while this number of messages, or bytes of bodies, is prefetched."""
_TICK: Final = 0.1
"""Seconds between two checks of the clock, and of whether it is to stop."""
_STALLED: Final = 30.0
"""Seconds without a message after which the run ends, although the source says that it has some."""
_COUNTS_LAG: Final = 15.0
"""Seconds after which the management API's counts are believed; it refreshes them every five."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveSettings:
    """How to move. `max_rate`: messages a second; None: no limit. `poison_queue`: on the source's broker.

    `quiet`: seconds for which the source must have been empty at the end. `target_timeout`: seconds without a single
    confirm after which an outage of the target ends the run. Raises ConfigurationError.
    """

    due_from: DueFrom = DueFrom.HEADERS
    routing: Routing = Routing.DIRECT
    poison_queue: str = "delays.poison"
    max_rate: float | None = None
    quiet: float = 1.0
    target_timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.max_rate is not None and not self.max_rate > 0:
            raise ConfigurationError(f"the maximum rate must be above 0, not {self.max_rate:g}")
        if not self.poison_queue:
            raise ConfigurationError("the poison queue needs a name")


def move(
    source: BrokerCascade,
    target: BrokerCascade,
    settings: MoveSettings,
    listener: ProgressListener,
    stopping: Callable[[], bool],
) -> MoveReport:
    """Move all that waits in `source` into `target`, until the source is empty or `stopping` says so.

    Raises ConfigurationError where both are the same cascade, one does not exist, or messages were given back too often
    already; TransportError for a missing right, TransportUnavailableError. Nothing is lost then: unacknowledged
    messages are in the source.
    """
    _check(source, target, settings)
    limits = reading_limits(source)
    declare_queue(source.connections, settings.poison_queue, "quorum", lift_limit=True)
    report = _report(source, target)
    began = time.monotonic()
    with LevelReader(source, _prefetch(settings.max_rate, len(source.queues))) as reader:
        _Move(source, target, settings, listener, stopping, reader, report, limits).run()
    report.interrupted = stopping()
    report.seconds = time.monotonic() - began
    _count_at_the_end(source, target, report)
    _tell(listener, report)
    return report


def move_dry(
    source: BrokerCascade,
    target: BrokerCascade,
    settings: MoveSettings,
    listener: ProgressListener,
    stopping: Callable[[], bool],
) -> MoveReport:
    """A dry run: the result that `move` would have for the messages at the front of each level queue.

    The messages go back to where they were, as redelivered; nothing else changes. Raises as `move`, and
    ConfigurationError where the broker would count that, and in the end send them on early.
    """
    _check(source, target, settings)
    refuse_dry_run(source)
    report = _report(source, target, dry_run=True)
    planner = _planner(source, target, settings, bind=False)
    began = time.monotonic()
    with LevelReader(source, _FIRST) as reader:
        came = time.monotonic()
        while not stopping() and time.monotonic() - came < settings.quiet:
            reader.receive(_TICK)
            messages = reader.messages(_FIRST, _BATCH_BYTES)
            if messages:
                came = time.monotonic()
                results = [_planned(planner, message) for message in messages]
                report.add(BatchResult(messages, results, repeated=0, trouble=None))
            _tell(listener, report)
    report.interrupted = stopping()
    report.source_after, report.target_after = sum(source.ready()), report.target_before
    report.seconds = time.monotonic() - began
    return report


def _planned(planner: Planner, message: LevelMessage) -> Result:
    try:
        plan = planner.plan(message, datetime.now(UTC))
    except UnmovableError as error:
        return Result(ResultKind.POISONED, str(error))
    return Result(ResultKind.MOVED, destination=plan.destination, disagreeing=plan.disagreeing)


class _Move:
    """One run."""

    def __init__(
        self,
        source: BrokerCascade,
        target: BrokerCascade,
        settings: MoveSettings,
        listener: ProgressListener,
        stopping: Callable[[], bool],
        reader: LevelReader,
        report: MoveReport,
        limits: Mapping[str, int],
    ) -> None:
        self._source = source
        self._settings = settings
        self._listener = listener
        self._stopping = stopping
        self._reader = reader
        self._report = report
        self._limits = limits
        self._rate = RateLimit(settings.max_rate)
        planner = _planner(source, target, settings, bind=True)
        self._forwarder = CopyForwarder(
            planner, target, source, settings.poison_queue, settings.target_timeout, stopping
        )
        self._in_flight: set[Future[BatchResult]] = set()
        self._busy_at = self._asked_at = time.monotonic()

    def run(self) -> None:
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="delaystore-moving") as workers:
            try:
                self._move(workers)
            finally:
                wait(self._in_flight)
                self._finish()
        self._reader.finish()

    def _move(self, workers: Executor) -> None:
        shown = 0.0
        while not self._stopping():
            self._receive()
            self._finish()
            self._start(workers)
            now = time.monotonic()
            if now - shown > _TICK:
                shown = now
                _tell(self._listener, self._report)
            if self._is_at_end(now):
                return

    def _receive(self) -> None:
        """Receive messages, and answer heartbeats. Where enough is prefetched, wait for a worker first."""
        enough = len(self._reader.prefetched) >= _ENOUGH or self._reader.prefetched_bytes >= _ENOUGH_BYTES
        if enough:
            wait(self._in_flight, _TICK, FIRST_COMPLETED)
        self._reader.receive(0 if enough else _TICK)

    def _start(self, workers: Executor) -> None:
        while len(self._in_flight) < WORKERS:
            granted = self._rate.take(min(len(self._reader.prefetched), BATCH))
            if not granted:
                return
            batch = self._reader.messages(granted, _BATCH_BYTES)
            refuse_near_delivery_limit(self._source, batch, self._limits)
            future = workers.submit(self._forwarder.forward, batch)
            self._in_flight.add(future)
            future.add_done_callback(self._reader.wake)

    def _finish(self) -> None:
        """Acknowledge confirmed messages; then raise the error that ended a batch early, if one did."""
        failure: Exception | None = None
        for future in [future for future in self._in_flight if future.done()]:
            self._in_flight.remove(future)
            try:
                failure = self._settle(future.result()) or failure
            except DelaystoreError as error:
                failure = error
        if failure is not None:
            raise failure

    def _settle(self, batch: BatchResult) -> Exception | None:
        self._report.add(batch)
        pairs = list(zip(batch.messages, batch.results, strict=True))
        settled = [message for message, result in pairs if result is not None and result.kind is not ResultKind.LEFT]
        if len(settled) < len(pairs):
            self._reader.acknowledge_singly()
        self._reader.acknowledge(message.tag for message in settled)
        return None if batch.trouble is None else TransportUnavailableError(batch.trouble)

    def _is_at_end(self, now: float) -> bool:
        """Whether the source has been empty for a while: messages on their way between levels are in no queue."""
        if self._reader.prefetched or self._in_flight:
            self._busy_at = self._asked_at = now
        if now - self._asked_at <= self._settings.quiet:
            return False
        self._asked_at = now
        stalled = bool(self._report.left) or now - self._busy_at > _STALLED
        return stalled or not sum(self._source.ready())


def _tell(listener: ProgressListener, report: MoveReport) -> None:
    listener("moved", report.settled, max(report.source_before, report.read))


def _check(source: BrokerCascade, target: BrokerCascade, settings: MoveSettings) -> None:
    if source.same_broker(target):
        if source.shares_queues(target):
            raise ConfigurationError(
                f"source and target share level queues on {source.broker.label}: {source.name}, {target.name}; "
                "name another cascade, or another broker"
            )
        target.require_no_part(settings.poison_queue)
    source.require_no_part(settings.poison_queue)
    source.require_level_queues()
    target.require_cascade()


def _planner(source: BrokerCascade, target: BrokerCascade, settings: MoveSettings, *, bind: bool) -> Planner:
    destinations = TargetDestinations(target.connections, target.cascade, settings.routing, target.user, bind=bind)
    return Planner(source.cascade, target.cascade, settings.due_from, destinations.destination, destinations.user)


def _report(source: BrokerCascade, target: BrokerCascade, *, dry_run: bool = False) -> MoveReport:
    return MoveReport(
        f"{source.name} on {source.broker.label}",
        f"{target.name} on {target.broker.label}",
        dry_run=dry_run,
        source_before=sum(source.ready()),
        target_before=sum(target.ready()),
    )


def _prefetch(max_rate: float | None, levels: int) -> int:
    """How many messages to prefetch of each queue: so few that they are moved within about a second."""
    return _PREFETCH if max_rate is None else max(1, min(_PREFETCH, int(max_rate / levels)))


def _count_at_the_end(source: BrokerCascade, target: BrokerCascade, report: MoveReport) -> None:
    """Ask the brokers, and ask again as long as the management API's counts may be old."""
    report.source_after, report.target_after = sum(source.ready()), sum(target.ready())
    deadline = time.monotonic() + _COUNTS_LAG
    while (total := source.messages()) and time.monotonic() < deadline and not report.interrupted:
        if total <= report.left.total():
            break
        time.sleep(_TICK * 5)
    report.source_total = total
