"""A dry run."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from typing_extensions import override

from delaystore.message import DelayedMessage
from delaystore.migrations.abc import DRY_RUN, MigrationTarget, Problem
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind


class DryRunTarget(MigrationTarget):
    """Takes what `target` would take, by delay and destination, and keeps nothing. `target` None: it takes everything.

    `target` is checked. It is not changed, and nothing is sent to it.
    """

    def __init__(self, target: MigrationTarget | None = None) -> None:
        self._target = target
        self._refusals: dict[str, str | None] = {}
        """Why a destination takes nothing, by destination; None: it takes messages."""

    @property
    @override
    def label(self) -> str:
        return DRY_RUN if self._target is None else f"{DRY_RUN} for {self._target.label}"

    @property
    @override
    def maximum(self) -> timedelta | None:
        return None if self._target is None else self._target.maximum

    @property
    @override
    def dry_run(self) -> bool:
        return True

    @override
    def check(self, destinations: Mapping[str, int]) -> Sequence[Problem]:
        return [] if self._target is None else self._target.check(destinations)

    @override
    def send(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        """DELIVERED, but UNSUITED for what is due too late for the target, UNROUTABLE for what has no queue there."""
        return [self._outcome(message, now) for message in messages]

    def _outcome(self, message: DelayedMessage, now: datetime) -> Outcome:
        longest = self.maximum
        if longest is not None and message.due_time - now > longest:
            return Outcome(OutcomeKind.UNSUITED, f"due beyond the longest delay, {longest}")
        refusal = self._refusal(message.destination)
        return DELIVERED if refusal is None else Outcome(OutcomeKind.UNROUTABLE, refusal)

    def _refusal(self, destination: str) -> str | None:
        if destination not in self._refusals:
            problems = [problem for problem in self.check({destination: 1}) if problem.fatal and problem.messages]
            self._refusals[destination] = problems[0].text if problems else None
        return self._refusals[destination]

    @override
    def close(self) -> None:
        if self._target is not None:
            self._target.close()
