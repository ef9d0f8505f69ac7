"""Publishing a batch of copies until each of its messages has its fate."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.channel import NACKED
from delaystore.transports.rabbitmq.moving.messages import Copy, WaitingMessage
from delaystore.transports.rabbitmq.moving.places import Place
from delaystore.transports.rabbitmq.moving.planning import Plan, Planner, UnmovableError
from delaystore.transports.rabbitmq.moving.poison import poisoned

_TIMEOUT: Final = 15.0
"""Seconds for the confirms of one batch."""
_PAUSE: Final = 0.5
"""Seconds before what was nacked is published again."""


class FateKind(Enum):
    """What became of a message."""

    MOVED = "moved"
    POISONED = "poisoned"
    LEFT = "left"
    """Neither could be done: it stays in the source."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a message. `until`: when a moved copy's delay is over, at the earliest."""

    kind: FateKind
    reason: str = ""
    destination: str = ""
    until: datetime | None = None
    disagreeing: bool = False


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A batch and its fates, in their order; None: not known, it goes back to its queue.

    `repeated`: how many publishes were made again for want of an answer. `trouble`: why it was given up; None: it was
    not, or because somebody asked for that.
    """

    messages: Sequence[WaitingMessage]
    fates: Sequence[Fate | None]
    repeated: int
    trouble: str | None


class Forwarder:
    """Publishes copies to the target, and what cannot be moved to the poison queue beside the source.

    May be used by several threads. `patience`: seconds without any success after which it gives up. `stopping`:
    whether nothing shall be tried again.
    """

    def __init__(
        self,
        planner: Planner,
        target: Place,
        source: Place,
        poison_queue: str,
        patience: float,
        stopping: Callable[[], bool],
    ) -> None:
        self._planner = planner
        self._target = target
        self._source = source
        self._poison_queue = poison_queue
        self._patience = patience
        self._stopping = stopping

    def forward(self, batch: Sequence[WaitingMessage]) -> Forwarded:
        """Every message of `batch` confirmed in the target or in the poison queue, or left, unless it is given up.

        Raises what planning raises.
        """
        run = _Run(batch, self._patience, self._stopping)
        while run.pending:
            now = datetime.now(UTC)
            plans: list[tuple[int, Plan]] = []
            for position in run.pending:
                try:
                    plans.append((position, self._planner.plan(batch[position], now)))
                except UnmovableError as error:
                    run.faulty[position] = str(error)
            outcomes = self._target.publish([plan.copy for _, plan in plans], _TIMEOUT)
            run.pending = []
            for (position, plan), outcome in zip(plans, outcomes, strict=True):
                run.settle(position, outcome, _moved(plan, now))
            run.go_on()
        self._poison(run)
        return Forwarded(batch, run.fates, run.repeated, run.given_up)

    def _poison(self, run: "_Run") -> None:
        waiting = dict(run.faulty)
        while waiting:
            positions = list(waiting)
            copies = [self._poisoned(run.batch[position], waiting[position]) for position in positions]
            outcomes = self._source.publish(copies, _TIMEOUT)
            run.faulty, run.pending = {}, []
            for position, outcome in zip(positions, outcomes, strict=True):
                run.settle(position, outcome, Fate(FateKind.POISONED, waiting[position]))
            for position, reason in run.faulty.items():
                text = f"{waiting[position]}; and the poison queue does not take it: {reason}"
                run.fates[position] = Fate(FateKind.LEFT, text)
            run.go_on()
            waiting = {position: waiting[position] for position in run.pending}

    def _poisoned(self, message: WaitingMessage, reason: str) -> Copy:
        return poisoned(message, reason, self._poison_queue)


class _Run:
    """One batch on its way."""

    def __init__(self, batch: Sequence[WaitingMessage], patience: float, stopping: Callable[[], bool]) -> None:
        self.batch = batch
        self.fates: list[Fate | None] = [None] * len(batch)
        self.pending = list(range(len(batch)))
        """Positions to publish yet, or again."""
        self.faulty: dict[int, str] = {}
        """Why those at these positions are not taken."""
        self.repeated = 0
        self.given_up: str | None = None
        self._stopping = stopping
        self._patience = patience
        self._deadline = time.monotonic() + patience
        self._trouble = ""

    def settle(self, position: int, outcome: Outcome, done: Fate) -> None:
        if outcome.kind is OutcomeKind.DELIVERED:
            self.fates[position] = done
            self._deadline = time.monotonic() + self._patience
        elif outcome.kind is OutcomeKind.UNSETTLED or outcome == NACKED:
            self.pending.append(position)
            self._trouble = outcome.reason
        else:
            self.faulty[position] = outcome.reason

    def go_on(self) -> None:
        """Wait a moment before what is pending is published again, or give it up."""
        if not self.pending:
            return
        hopeless = time.monotonic() > self._deadline
        if hopeless:
            self.given_up = f"nothing could be published for {self._patience:g} s: {self._trouble}"
        if hopeless or self._stopping():
            self.pending = []
            return
        self.repeated += len(self.pending)
        time.sleep(_PAUSE)


def _moved(plan: Plan, now: datetime) -> Fate:
    try:
        until = now + plan.delay
    except OverflowError:
        until = datetime.max.replace(tzinfo=UTC)
    return Fate(FateKind.MOVED, destination=plan.destination, until=until, disagreeing=plan.disagreeing)
