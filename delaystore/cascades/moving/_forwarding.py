"""Where a moved message goes, when it is due, and that it has arrived there."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

import pika
from pika import exceptions

from delaystore.cascades.moving._planning import LevelMessage, PlannedCopy, Planner, UnmovableError, poisoned
from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.errors import TransportSetupError, UnsupportedMessageError
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare_part
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.queues import exists
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology, Routing
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Queue

_NO_QUEUE: Final = "delaystore.no-queue"
"""A queue that does not exist: messages sent to it are dropped."""


class TargetDestinations:
    """The destinations on a target, each looked up once; may be shared by threads.

    `bind`: True: bind each destination. False: only check whether it exists.
    """

    def __init__(
        self,
        connections: BlockingConnections,
        cascade: CascadeTopology,
        routing: Routing,
        own_user: str | None,
        *,
        bind: bool,
    ) -> None:
        self._connections = connections
        self._cascade = cascade
        self._routing = routing
        self._bind = bind
        self._lock = threading.Lock()
        self._destinations: dict[str, str | None] = {}
        self._users: dict[str | None, str | None] = {own_user: None}

    def destination(self, address: str) -> str | None:
        """Why no copy can reach `address`; None: it can.

        Raises TransportSetupError where the user may not bind or check, TransportUnavailableError.
        """
        with self._lock:
            if address not in self._destinations:
                self._destinations[address] = self._look_up(address)
            return self._destinations[address]

    def user(self, name: str) -> str | None:
        """Why no message of the user `name` can be sent; None: it can. Raises TransportUnavailableError."""
        with self._lock:
            if name not in self._users:
                self._users[name] = self._try_user(name)
            return self._users[name]

    def _look_up(self, address: str) -> str | None:
        try:
            bindings = self._cascade.destination_bindings(address, self._routing)
        except UnsupportedMessageError as error:
            return str(error)
        for binding in bindings:
            kind = Queue if binding.kind is DestinationKind.QUEUE else Exchange
            if not exists(self._connections, kind(binding.destination)):
                return f"no {binding.kind} {binding.destination!r} to bind to the target"
        if self._bind:
            for binding in bindings:
                self._declare(binding)
        return None

    def _declare(self, binding: Binding) -> None:
        try:
            with self._connections.channel() as channel, quiet_pika():
                declare_part(channel, binding)
        except exceptions.ChannelClosedByBroker as error:
            raise TransportSetupError(
                f"{binding.kind} {binding.destination!r} cannot be bound to {binding.source!r}: {reason_of(error)}; "
                "grant write on it and read on the exchange, or bind it yourself"
            ) from None

    def _try_user(self, name: str) -> str | None:
        """RabbitMQ accepts the user_id of another user only from users with the tag impersonator."""
        try:
            with self._connections.channel() as channel, quiet_pika():
                channel.basic_publish("", _NO_QUEUE, b"", pika.BasicProperties(user_id=name))
                channel.basic_qos(prefetch_count=1)  # its answer shows that the broker took what was sent before
        except exceptions.ChannelClosedByBroker as error:
            return f"its property user_id is another's: {reason_of(error)}"
        return None


_TIMEOUT: Final = 15.0
"""Seconds for the confirms of one batch."""
_PAUSE: Final = 0.5
"""Seconds before a nacked message is published again."""


class ResultKind(Enum):
    """The kinds of results of moving a message."""

    MOVED = "moved"
    POISONED = "poisoned"
    LEFT = "left"
    """Neither queue took it: it stays in the source."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of moving a message. `until`: when a moved copy's delay is over, at the earliest."""

    kind: ResultKind
    reason: str = ""
    destination: str = ""
    until: datetime | None = None
    disagreeing: bool = False


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A batch, and the result of each of its messages; None: not known, the message goes back to its queue.

    `repeated`: how many publishes were repeated because no answer came. `trouble`: why the batch was given up; None: it
    was not, or it is to stop.
    """

    messages: Sequence[LevelMessage]
    results: Sequence[Result | None]
    repeated: int
    trouble: str | None


@dataclass(frozen=True, slots=True)
class CopyForwarder:
    """Publishes copies to the target, and messages that cannot be moved to the poison queue beside the source.

    May be used by several threads. `target_timeout`: seconds without any success after which it gives up. `stopping`:
    True: nothing is tried again.
    """

    planner: Planner
    target: BrokerCascade
    source: BrokerCascade
    poison_queue: str
    target_timeout: float
    stopping: Callable[[], bool]

    def forward(self, batch: Sequence[LevelMessage]) -> BatchResult:
        """Publish until every message of `batch` is confirmed by the target or the poison queue, left, or given up.

        Raises TransportError where the target cannot be asked for a destination.
        """
        run = _BatchInTransit(batch, self.target_timeout, self.stopping)
        while run.pending:
            now = datetime.now(UTC)
            plans: list[tuple[int, PlannedCopy]] = []
            for position in run.pending:
                try:
                    plans.append((position, self.planner.plan(batch[position], now)))
                except UnmovableError as error:
                    run.refused[position] = str(error)
            outcomes = self.target.publish([plan.copy for _, plan in plans], _TIMEOUT)
            run.pending = []
            for (position, plan), outcome in zip(plans, outcomes, strict=True):
                run.settle(position, outcome, _moved(plan, now))
            run.go_on()
        self._poison(run)
        return BatchResult(batch, run.results, run.repeated, run.given_up)

    def _poison(self, run: "_BatchInTransit") -> None:
        waiting = dict(run.refused)
        while waiting:
            positions = list(waiting)
            copies = [poisoned(run.batch[position], waiting[position], self.poison_queue) for position in positions]
            outcomes = self.source.publish(copies, _TIMEOUT)
            run.refused, run.pending = {}, []
            for position, outcome in zip(positions, outcomes, strict=True):
                run.settle(position, outcome, Result(ResultKind.POISONED, waiting[position]))
            for position, reason in run.refused.items():
                text = f"{waiting[position]}; and the poison queue does not take it: {reason}"
                run.results[position] = Result(ResultKind.LEFT, text)
            run.go_on()
            waiting = {position: waiting[position] for position in run.pending}


class _BatchInTransit:
    """One batch on its way."""

    def __init__(self, batch: Sequence[LevelMessage], target_timeout: float, stopping: Callable[[], bool]) -> None:
        self.batch = batch
        self.results: list[Result | None] = [None] * len(batch)
        self.pending = list(range(len(batch)))
        """Positions that are to be published, or published again."""
        self.refused: dict[int, str] = {}
        """Why the messages at these positions are not taken."""
        self.repeated = 0
        self.given_up: str | None = None
        self._stopping = stopping
        self._target_timeout = target_timeout
        self._deadline = time.monotonic() + target_timeout
        self._trouble = ""

    def settle(self, position: int, outcome: Outcome, done: Result) -> None:
        if outcome.kind is OutcomeKind.DELIVERED:
            self.results[position] = done
            self._deadline = time.monotonic() + self._target_timeout
        elif outcome.kind.passes:
            self.pending.append(position)
            self._trouble = outcome.reason
        else:
            self.refused[position] = outcome.reason

    def go_on(self) -> None:
        """Wait a moment before pending messages are published again, or give them up."""
        if not self.pending:
            return
        timed_out = time.monotonic() > self._deadline
        if timed_out:
            self.given_up = f"nothing could be published for {self._target_timeout:g} s: {self._trouble}"
        if timed_out or self._stopping():
            self.pending = []
            return
        self.repeated += len(self.pending)
        time.sleep(_PAUSE)


def _moved(plan: PlannedCopy, now: datetime) -> Result:
    try:
        until = now + plan.delay
    except OverflowError:
        until = datetime.max.replace(tzinfo=UTC)
    return Result(ResultKind.MOVED, destination=plan.destination, until=until, disagreeing=plan.disagreeing)
