"""A dry run."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from typing_extensions import override

from delaystore.errors import StoreUnavailableError, TransportError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import DRY_RUN, MigrationTarget, Problem
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind


class DryRunTarget(MigrationTarget):
    """Takes messages that `target` would take, by delay, destination and content, and keeps nothing. None: it takes
    everything.

    `target` is checked, and asked about each message. It is not changed, and nothing is sent to it.
    """

    def __init__(self, target: MigrationTarget | None = None) -> None:
        self._target = target
        self._obstacles: dict[str, str | None] = {}
        """Why a destination is unavailable, by destination; None: it is available."""

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
        if self._target is None:
            text = "no target is asked what it would refuse; noop:URL asks the one at URL"
            return [Problem(self.label, text, fatal=False)]
        return self._target.check(destinations)

    @override
    def refusals(self, messages: Sequence[DelayedMessage]) -> Sequence[str | None]:
        return super().refusals(messages) if self._target is None else self._target.refusals(messages)

    @override
    def send(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        """Return the outcome that each message would have.

        UNROUTABLE: its destination has no queue. NOT_DELAYABLE: the target would refuse it. DELIVERED: any other.
        """
        try:
            refusals = self.refusals(messages)
        except (StoreUnavailableError, TransportError) as error:
            return [Outcome(OutcomeKind.UNCONFIRMED, str(error))] * len(messages)
        return [self._outcome(message, now, refusal) for message, refusal in zip(messages, refusals, strict=True)]

    def _outcome(self, message: DelayedMessage, now: datetime, refusal: str | None) -> Outcome:
        longest = self.maximum
        if longest is not None and message.due_time - now > longest:
            return Outcome(OutcomeKind.NOT_DELAYABLE, f"due beyond the longest delay, {longest}")
        if (obstacle := self._obstacle(message.destination)) is not None:
            return Outcome(OutcomeKind.UNROUTABLE, obstacle)
        return DELIVERED if refusal is None else Outcome(OutcomeKind.NOT_DELAYABLE, refusal)

    def _obstacle(self, destination: str) -> str | None:
        if self._target is None:
            return None
        if destination not in self._obstacles:
            problems = [problem for problem in self.check({destination: 1}) if problem.fatal and problem.messages]
            self._obstacles[destination] = problems[0].text if problems else None
        return self._obstacles[destination]

    @override
    def close(self) -> None:
        if self._target is not None:
            self._target.close()
