"""A rehearsal."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from delaystore.message import DelayedMessage
from delaystore.migrations.abc import MigrationTarget, Problem
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind


class NoopTarget(MigrationTarget):
    """Takes everything that `aim` would take by its delay and destination, and keeps nothing; None: anything.

    `aim` is checked, and neither changed nor sent to.
    """

    def __init__(self, aim: MigrationTarget | None = None) -> None:
        self._aim = aim
        self._refusals: dict[str, str | None] = {}
        """Why a destination takes nothing, by destination; None: it takes messages."""

    @property
    def label(self) -> str:
        """What it is, and what for."""
        return "noop" if self._aim is None else f"noop for {self._aim.label}"

    @property
    def maximum(self) -> timedelta | None:
        """The aim's."""
        return None if self._aim is None else self._aim.maximum

    @property
    def rehearsal(self) -> bool:
        """It is one."""
        return True

    def check(self, destinations: Mapping[str, int]) -> Sequence[Problem]:
        """What hinders the aim."""
        return [] if self._aim is None else self._aim.check(destinations)

    def send(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        """DELIVERED, but UNSUITED for what is due too late for the aim, UNROUTABLE for what has no queue there."""
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

    def close(self) -> None:
        """Close the aim."""
        if self._aim is not None:
            self._aim.close()
