"""A rehearsal."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from delaystore.message import DelayedMessage
from delaystore.migrations.abc import MigrationTarget, Problem
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind


class NoopTarget(MigrationTarget):
    """Takes everything that `aim` would take by its delay, and keeps nothing; None: anything.

    `aim` is checked, and neither changed nor sent to.
    """

    def __init__(self, aim: MigrationTarget | None = None) -> None:
        self._aim = aim

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
        """DELIVERED, but UNSUITED for what is due too late for the aim."""
        longest = self.maximum
        if longest is None:
            return [DELIVERED] * len(messages)
        late = Outcome(OutcomeKind.UNSUITED, f"due beyond the longest delay, {longest}")
        return [late if message.due_time - now > longest else DELIVERED for message in messages]

    def close(self) -> None:
        """Close the aim."""
        if self._aim is not None:
            self._aim.close()
