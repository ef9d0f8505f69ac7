"""Sending a batch until the target has answered for each message."""

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from delaystore.errors import MigrationError, StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import Batch, MigrationTarget, Run
from delaystore.rates import RateLimit
from delaystore.transports.abc import Outcome

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts at a target that does not answer."""


class GivenUpError(MigrationError):
    """Somebody asked to stop while the target did not answer; what is in flight is sent again by the next run."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends a run's batches to one target; may be shared by threads.

    `patience`: for how many seconds the target may take nothing. `stopping`: whether somebody has asked to stop.
    """

    target: MigrationTarget
    run: Run
    now: Callable[[], datetime]
    rate: RateLimit
    patience: float
    stopping: Callable[[], bool]

    def received(self, batch: Batch) -> Set[int] | None:
        """The positions of the batch's rows that are at the target, or were; None: it cannot tell.

        Raises as `send` does.
        """
        answered, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                return self.target.received(self.run, batch)
            except StoreUnavailableError as error:
                self._wait(pause, answered, str(error))
            pause = min(_LONGEST_PAUSE, pause * 2)

    def send(self, batch: Batch, messages: Mapping[int, DelayedMessage]) -> tuple[dict[int, Outcome], int]:
        """An outcome for each of the batch's messages, none of an outage; and how many sends were repeated because no
        answer came. Messages and outcomes are by their positions in the batch.

        Raises MigrationError after `patience`, GivenUpError if asked to stop before that.
        """
        outcomes: dict[int, Outcome] = {}
        waiting = list(messages)
        repeated = 0
        pause = _FIRST_PAUSE
        answered = time.monotonic()
        while waiting:
            part = waiting[: self.rate.wait(len(waiting))]
            answers = self.target.send_part(
                self.run, batch, {position: messages[position] for position in part}, self.now()
            )
            settled = {
                position: answer for position, answer in zip(part, answers, strict=True) if not answer.kind.passes
            }
            outcomes |= settled
            waiting = [position for position in waiting if position not in settled]
            if len(settled) == len(part):
                answered, pause = time.monotonic(), _FIRST_PAUSE
                continue
            if settled:
                answered = time.monotonic()
            repeated += len(part) - len(settled)
            unsettled = next(answer for answer in answers if answer.kind.passes)
            self._wait(pause, answered, unsettled.reason)
            pause = min(_LONGEST_PAUSE, pause * 2)
        return outcomes, repeated

    def _wait(self, pause: float, answered: float, reason: str) -> None:
        end = time.monotonic() + pause
        while time.monotonic() < end:
            if self.stopping():
                raise GivenUpError(f"stopped while {self.target.label} did not answer: {reason}")
            if time.monotonic() - answered > self.patience:
                raise MigrationError(
                    f"{self.target.label} has taken nothing for {self.patience:g} s ({reason}); nothing is "
                    "lost: run it again to go on, once the target answers"
                )
            time.sleep(0.05)
