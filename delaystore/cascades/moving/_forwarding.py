"""Publishing the copies of a batch, until it is known what became of each message."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from delaystore.cascades.moving._messages import WaitingMessage
from delaystore.cascades.moving._planning import Plan, Planner, UnmovableError, poisoned
from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.transports.abc import Outcome, OutcomeKind

_TIMEOUT: Final = 15.0
"""Seconds for the confirms of one batch."""
_PAUSE: Final = 0.5
"""Seconds before what was nacked is published again."""


class ResultKind(Enum):
    """What became of a message."""

    MOVED = "moved"
    POISONED = "poisoned"
    LEFT = "left"
    """Neither queue took it: it stays in the source."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a message. `until`: when a moved copy's delay is over, at the earliest."""

    kind: ResultKind
    reason: str = ""
    destination: str = ""
    until: datetime | None = None
    disagreeing: bool = False


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A batch, and what became of each of its messages; None: not known, the message goes back to its queue.

    `repeated`: how many publishes were repeated because no answer came. `trouble`: why the batch was given up; None: it
    was not, or somebody asked to stop.
    """

    messages: Sequence[WaitingMessage]
    results: Sequence[Result | None]
    repeated: int
    trouble: str | None


@dataclass(frozen=True, slots=True)
class Forwarder:
    """Publishes copies to the target, and what cannot be moved to the poison queue beside the source.

    May be used by several threads. `patience`: seconds without any success after which it gives up. `stopping`:
    True: nothing is tried again.
    """

    planner: Planner
    target: BrokerCascade
    source: BrokerCascade
    poison_queue: str
    patience: float
    stopping: Callable[[], bool]

    def forward(self, batch: Sequence[WaitingMessage]) -> BatchResult:
        """Publish until every message of `batch` is confirmed by the target or the poison queue, left, or given up.

        Raises TransportError where the target cannot be asked for a destination.
        """
        run = _Run(batch, self.patience, self.stopping)
        while run.pending:
            now = datetime.now(UTC)
            plans: list[tuple[int, Plan]] = []
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

    def _poison(self, run: "_Run") -> None:
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


class _Run:
    """One batch on its way."""

    def __init__(self, batch: Sequence[WaitingMessage], patience: float, stopping: Callable[[], bool]) -> None:
        self.batch = batch
        self.results: list[Result | None] = [None] * len(batch)
        self.pending = list(range(len(batch)))
        """Positions that are to be published, or published again."""
        self.refused: dict[int, str] = {}
        """Why the messages at these positions are not taken."""
        self.repeated = 0
        self.given_up: str | None = None
        self._stopping = stopping
        self._patience = patience
        self._deadline = time.monotonic() + patience
        self._trouble = ""

    def settle(self, position: int, outcome: Outcome, done: Result) -> None:
        if outcome.kind is OutcomeKind.DELIVERED:
            self.results[position] = done
            self._deadline = time.monotonic() + self._patience
        elif outcome.kind.passes:
            self.pending.append(position)
            self._trouble = outcome.reason
        else:
            self.refused[position] = outcome.reason

    def go_on(self) -> None:
        """Wait a moment before what is pending is published again, or give it up."""
        if not self.pending:
            return
        out_of_patience = time.monotonic() > self._deadline
        if out_of_patience:
            self.given_up = f"nothing could be published for {self._patience:g} s: {self._trouble}"
        if out_of_patience or self._stopping():
            self.pending = []
            return
        self.repeated += len(self.pending)
        time.sleep(_PAUSE)


def _moved(plan: Plan, now: datetime) -> Result:
    try:
        until = now + plan.delay
    except OverflowError:
        until = datetime.max.replace(tzinfo=UTC)
    return Result(ResultKind.MOVED, destination=plan.destination, until=until, disagreeing=plan.disagreeing)
