"""Sending a batch until the target has answered for each message."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from delaystore.errors import MigrationError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import MigrationTarget
from delaystore.rates import RateLimit
from delaystore.transports.abc import Outcome, OutcomeKind

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts at a target that does not answer."""


class GivenUpError(MigrationError):
    """Somebody asked to stop while the target did not answer; what is in flight is sent again by the next run."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends to one target; may be shared by threads.

    `patience`: for how many seconds the target may take nothing. `stopping`: whether somebody has asked to stop.
    """

    target: MigrationTarget
    now: Callable[[], datetime]
    rate: RateLimit
    patience: float
    stopping: Callable[[], bool]

    def send(self, messages: Sequence[DelayedMessage]) -> tuple[list[Outcome], int]:
        """An outcome for each, none UNSETTLED; and how many sends were repeated because no answer came.

        Raises MigrationError after `patience`, GivenUpError if asked to stop before that.
        """
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(len(messages)))
        repeated = 0
        pause = _FIRST_PAUSE
        answered = time.monotonic()
        while waiting:
            part = waiting[: self.rate.wait(len(waiting))]
            answers = self.target.send([messages[position] for position in part], self.now())
            settled = {
                position: answer
                for position, answer in zip(part, answers, strict=True)
                if answer.kind is not OutcomeKind.UNSETTLED
            }
            outcomes |= settled
            waiting = [position for position in waiting if position not in settled]
            if len(settled) == len(part):
                answered, pause = time.monotonic(), _FIRST_PAUSE
                continue
            if settled:
                answered = time.monotonic()
            repeated += len(part) - len(settled)
            self._wait(pause, answered, next(answer for answer in answers if answer.kind is OutcomeKind.UNSETTLED))
            pause = min(_LONGEST_PAUSE, pause * 2)
        return [outcomes[position] for position in range(len(messages))], repeated

    def _wait(self, pause: float, answered: float, unsettled: Outcome) -> None:
        end = time.monotonic() + pause
        while time.monotonic() < end:
            if self.stopping():
                raise GivenUpError(f"stopped while {self.target.label} did not answer: {unsettled.reason}")
            if time.monotonic() - answered > self.patience:
                raise MigrationError(
                    f"{self.target.label} has taken nothing for {self.patience:g} s ({unsettled.reason}); nothing is "
                    "lost: run it again to go on, once the target answers"
                )
            time.sleep(0.05)
