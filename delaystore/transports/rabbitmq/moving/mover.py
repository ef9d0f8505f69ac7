"""Moving: read ahead, publish several batches at once, acknowledge what is confirmed.

Where is the message if the process dies here? In the source, until its copy is confirmed and its acknowledgement has
arrived. Between the two it is in both: at most LANES batches of BATCH messages.
"""

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final, Protocol

from delaystore.errors import ConfigurationError, DelaystoreError, TransportUnavailableError
from delaystore.transports.rabbitmq.moving.destinations import Destinations
from delaystore.transports.rabbitmq.moving.due_by import DueBy
from delaystore.transports.rabbitmq.moving.forwarding import FateKind, Forwarded, Forwarder
from delaystore.transports.rabbitmq.moving.looking import Looker
from delaystore.transports.rabbitmq.moving.pace import Pace
from delaystore.transports.rabbitmq.moving.places import Place
from delaystore.transports.rabbitmq.moving.planning import Planner
from delaystore.transports.rabbitmq.moving.reading import Reader
from delaystore.transports.rabbitmq.moving.report import MoveReport
from delaystore.transports.rabbitmq.queues import declare_queue
from delaystore.transports.rabbitmq.topology.cascade import Routing

BATCH: Final = 500
"""Messages published at a time, at most."""
LANES: Final = 3
"""Batches under way at a time."""
_BATCH_BYTES: Final = 8 * 1024 * 1024
_PREFETCH: Final = 500
"""Messages of one level queue that are on their way to us, or held, at most. Their clock stands still meanwhile."""
_HELD: Final = 4 * BATCH
_HELD_BYTES: Final = 4 * _BATCH_BYTES
"""No more is received while so many messages, or bytes of bodies, are held."""
_TICK: Final = 0.1
"""Seconds between two looks at the clock and at what was asked of us."""
_STALLED: Final = 30.0
"""Seconds after which a source that says it has messages, and delivers none, is given up."""
_COUNTS_LAG: Final = 15.0
"""Seconds after which the management API's counts, which it refreshes every five, are taken as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveSettings:
    """How to move. `max_rate`: messages a second; None: no limit. `poison_queue`: on the source's broker.

    `quiet`: seconds that the source must have been empty at the end. `patience`: seconds without any success after
    which an outage of the target ends the run. Raises ConfigurationError.
    """

    due_by: DueBy = DueBy.HEADERS
    routing: Routing = Routing.DIRECT
    poison_queue: str = "delays.poison"
    max_rate: float | None = None
    quiet: float = 1.0
    patience: float = 60.0

    def __post_init__(self) -> None:
        if self.max_rate is not None and not self.max_rate > 0:
            raise ConfigurationError(f"the maximum rate must be above 0, not {self.max_rate:g}")
        if not self.poison_queue:
            raise ConfigurationError("the poison queue needs a name")


class Watcher(Protocol):
    """Is shown how far it is."""

    def show(self, report: MoveReport) -> None:
        """Called some ten times a second."""
        ...


def move(
    source: Place, target: Place, settings: MoveSettings, watcher: Watcher, stopping: Callable[[], bool]
) -> MoveReport:
    """Move all that waits in `source` into `target`, until the source is empty or `stopping`.

    Raises ConfigurationError where the two are one, or one lacks its cascade; TransportError for what the user may
    not do, TransportUnavailableError. Whatever it raises, nothing is lost: what was not acknowledged is in the source.
    """
    _check(source, target, settings)
    declare_queue(source.connections, settings.poison_queue, "quorum")
    report = _report(source, target)
    began = time.monotonic()
    with Reader(source, _prefetch(settings.max_rate, len(source.queues))) as reader:
        _Move(source, target, settings, watcher, stopping, reader, report).run()
    report.interrupted = stopping()
    report.seconds = time.monotonic() - began
    _count_at_the_end(source, target, report)
    watcher.show(report)
    return report


def look(
    source: Place, target: Place, settings: MoveSettings, watcher: Watcher, stopping: Callable[[], bool]
) -> MoveReport:
    """What `move` would do with what is at the front of each level queue, as a report; nothing is changed.

    What was looked at goes back as if it had never left, but marked as redelivered. Raises as `move`.
    """
    _check(source, target, settings)
    report = _report(source, target, dry_run=True)
    planner = _planner(source, target, settings, bind=False)
    began = time.monotonic()
    with Reader(source, Looker.MOST) as reader:
        Looker(reader, planner, report, settings.quiet).run(stopping, lambda: watcher.show(report))
    report.interrupted = stopping()
    report.source_after, report.target_after = sum(source.ready()), report.target_before
    report.seconds = time.monotonic() - began
    return report


class _Move:
    """One run."""

    def __init__(
        self,
        source: Place,
        target: Place,
        settings: MoveSettings,
        watcher: Watcher,
        stopping: Callable[[], bool],
        reader: Reader,
        report: MoveReport,
    ) -> None:
        self._source = source
        self._settings = settings
        self._watcher = watcher
        self._stopping = stopping
        self._reader = reader
        self._report = report
        self._pace = Pace(settings.max_rate)
        planner = _planner(source, target, settings, bind=True)
        self._forwarder = Forwarder(planner, target, source, settings.poison_queue, settings.patience, stopping)
        self._under_way: set[Future[Forwarded]] = set()

    def run(self) -> None:
        with ThreadPoolExecutor(LANES, thread_name_prefix="delaystore-moving") as lanes:
            try:
                self._move(lanes)
            finally:
                wait(self._under_way)
                self._land()
        self._reader.finish()

    def _move(self, lanes: Executor) -> None:
        shown = 0.0
        end = _End(self._source, self._report, self._settings.quiet)
        while not self._stopping():
            self._receive()
            self._land()
            self._launch(lanes)
            now = time.monotonic()
            if now - shown > _TICK:
                shown = now
                self._watcher.show(self._report)
            if end.reached(now, busy=bool(self._reader.held or self._under_way)):
                return

    def _receive(self) -> None:
        """Take in what comes; where enough is held, wait for a lane first, and answer heartbeats all the same."""
        enough = len(self._reader.held) >= _HELD or self._reader.held_bytes >= _HELD_BYTES
        if enough:
            wait(self._under_way, _TICK, FIRST_COMPLETED)
        self._reader.receive(0 if enough else _TICK)

    def _launch(self, lanes: Executor) -> None:
        held = self._reader.held
        while held and len(self._under_way) < LANES and (granted := self._pace.take(min(len(held), BATCH))):
            batch = self._reader.take(granted, _BATCH_BYTES)
            future = lanes.submit(self._forwarder.forward, batch)
            self._under_way.add(future)
            future.add_done_callback(self._reader.wake)

    def _land(self) -> None:
        """Acknowledge what is confirmed; raises what ended a batch early, once the others are seen to."""
        failure: Exception | None = None
        for future in [future for future in self._under_way if future.done()]:
            self._under_way.remove(future)
            try:
                failure = self._settle(future.result()) or failure
            except DelaystoreError as error:
                failure = error
        if failure is not None:
            raise failure

    def _settle(self, forwarded: Forwarded) -> Exception | None:
        self._report.add(forwarded)
        pairs = list(zip(forwarded.messages, forwarded.fates, strict=True))
        settled = [message for message, fate in pairs if fate is not None and fate.kind is not FateKind.LEFT]
        if len(settled) < len(pairs):
            self._reader.keep_back()
        self._reader.acknowledge(settled)
        return None if forwarded.trouble is None else TransportUnavailableError(forwarded.trouble)


class _End:
    """Whether the source is empty, and has been for a while; messages on their way between levels are in no queue."""

    def __init__(self, source: Place, report: MoveReport, quiet: float) -> None:
        self._source = source
        self._report = report
        self._quiet = quiet
        self._busy_at = self._looked_at = time.monotonic()

    def reached(self, now: float, *, busy: bool) -> bool:
        if busy:
            self._busy_at = self._looked_at = now
        if now - self._looked_at <= self._quiet:
            return False
        self._looked_at = now
        stalled = bool(self._report.left) or now - self._busy_at > _STALLED
        return stalled or not sum(self._source.ready())


def _check(source: Place, target: Place, settings: MoveSettings) -> None:
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


def _planner(source: Place, target: Place, settings: MoveSettings, *, bind: bool) -> Planner:
    destinations = Destinations(target.connections, target.cascade, settings.routing, target.user, bind=bind)
    return Planner(source.cascade, target.cascade, settings.due_by, destinations.destination, destinations.user)


def _report(source: Place, target: Place, *, dry_run: bool = False) -> MoveReport:
    return MoveReport(
        f"{source.name} on {source.broker.label}",
        f"{target.name} on {target.broker.label}",
        dry_run=dry_run,
        source_before=sum(source.ready()),
        target_before=sum(target.ready()),
    )


def _prefetch(max_rate: float | None, levels: int) -> int:
    """So little that what is read ahead is moved within about a second."""
    return _PREFETCH if max_rate is None else max(1, min(_PREFETCH, int(max_rate / levels)))


def _count_at_the_end(source: Place, target: Place, report: MoveReport) -> None:
    """Ask the brokers; again, as long as a management API's counts may be the old ones."""
    report.source_after, report.target_after = sum(source.ready()), sum(target.ready())
    deadline = time.monotonic() + _COUNTS_LAG
    while (held := source.messages()) and time.monotonic() < deadline and not report.interrupted:
        if held <= report.left.total():
            break
        time.sleep(_TICK * 5)
    report.source_held = held
