"""Sending a batch: what to do with the answers, and how to single out a message that closes its channel."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.address import DEFAULT_EXCHANGE
from delaystore.transports.rabbitmq.flight import Closure, Flight, Publishable
from delaystore.transports.rabbitmq.owner import Owner

_NOT_FOUND: Final = 404
_ACCESS_REFUSED: Final = 403
_COINCIDENCES: Final = 3
"""A message that flew alone in this many flights that lost the connection is taken as the cause, whoever else flew."""


class Sending:
    """One batch on its way.

    All of it is published at once. Where the broker closes the channel (or connection) because of a message, the
    confirms of the others are lost with it: what is unsettled is sent again in halves, suspects apart, until the
    culprit flies alone. What was accepted but not yet confirmed arrives twice; the halves keep that small.
    """

    def __init__(
        self,
        batch: Sequence[Publishable | Outcome],
        timeout: float,
        owner: Callable[[], Owner],
        quarantine: threading.Lock,
    ) -> None:
        self._outcomes = [one if isinstance(one, Outcome) else None for one in batch]
        self._publications = {at: one for at, one in enumerate(batch) if not isinstance(one, Outcome)}
        self._silence = f"no answer from the broker within {timeout:g} s"
        self._deadline = time.monotonic() + timeout
        self._owner = owner
        self._quarantine = quarantine
        self._coincidences: dict[int, int] = {}
        self._waiting: deque[list[int]] = deque()

    def run(self) -> list[Outcome]:
        """Send, and return one outcome for each publication; those that were outcomes already stay what they are."""
        if self._publications:
            self._waiting.append(list(self._publications))
        reason = self._fly_all()
        unsettled = Outcome(OutcomeKind.UNSETTLED, reason)
        return [outcome or unsettled for outcome in self._outcomes]

    def _fly_all(self) -> str:
        """Send what waits until nothing does; why it stopped before, if it did."""
        quarantined = False
        try:
            while self._waiting:
                owner = self._owner()
                obstacle = owner.wait_ready(self._deadline)
                if obstacle is not None:
                    return obstacle
                if self._remaining() == 0:
                    return self._silence
                positions = self._waiting.popleft()
                flight = self._fly(owner, positions)
                rest = self._record(flight, positions)
                closure = flight.closure
                if closure is not None and not closure.by_message:
                    return closure.reason
                if closure is not None and not closure.own and not quarantined:
                    # one sender at a time looks for the message that costs everybody the connection
                    quarantined = self._quarantine.acquire(timeout=self._remaining())
                if rest and closure is None and not flight.doubtful:
                    return self._silence
                self._try_again(rest, closure)
            return ""
        finally:
            if quarantined:
                self._quarantine.release()

    def _fly(self, owner: Owner, positions: list[int]) -> Flight:
        flight = Flight([self._publications[position] for position in positions])
        owner.launch(flight)
        if not flight.done.wait(self._remaining()):
            self._silence = owner.obstacle or self._silence
            owner.abandon(flight)
        return flight

    def _record(self, flight: Flight, positions: list[int]) -> list[int]:
        """Take over the outcomes of `flight`; the positions without one."""
        rest = []
        for position, outcome in zip(positions, flight.outcomes, strict=True):
            if outcome is None:
                rest.append(position)
            else:
                self._outcomes[position] = outcome
        return rest

    def _try_again(self, rest: list[int], closure: Closure | None) -> None:
        if closure is None:
            self._waiting.extendleft([position] for position in reversed(rest))
        elif len(rest) == 1 and self._proven(rest[0], closure):
            self._convict(rest[0], closure)
        else:
            self._waiting.extendleft(reversed(self._split(rest)))

    def _proven(self, position: int, closure: Closure) -> bool:
        """Whether the message that flew alone is the culprit: its channel was closed, or it was there each time."""
        self._coincidences[position] = self._coincidences.get(position, 0) + 1
        return closure.own or self._coincidences[position] >= _COINCIDENCES

    def _convict(self, position: int, closure: Closure) -> None:
        """Settle the message that flew alone and closed its channel, and those that share its fault."""
        missing = closure.code == _NOT_FOUND
        kind = OutcomeKind.UNROUTABLE if missing else OutcomeKind.REFUSED
        outcome = Outcome(kind, f"the broker closed the channel on it: {closure.reason}")
        self._outcomes[position] = outcome
        if closure.code not in (_NOT_FOUND, _ACCESS_REFUSED):
            return
        guilty = self._publications[position].address
        for segment in self._waiting:
            for other in segment:
                address = self._publications[other].address
                if address == guilty or (missing and address.exchange == guilty.exchange):
                    self._outcomes[other] = outcome
        pending = ([other for other in segment if self._outcomes[other] is None] for segment in self._waiting)
        self._waiting = deque(segment for segment in pending if segment)

    def _split(self, positions: list[int]) -> list[list[int]]:
        """`positions` in smaller parts: those that can hardly close a channel, then the suspects in halves."""
        suspects = [position for position in positions if self._suspect(position)]
        if not suspects or len(suspects) == len(positions):
            return _halves(positions)
        others = [position for position in positions if not self._suspect(position)]
        return [others, *_halves(suspects)]

    def _suspect(self, position: int) -> bool:
        """Whether what mostly closes channels applies: an exchange that may be missing, an expiration, headers."""
        publication = self._publications[position]
        return publication.suspect or publication.address.exchange != DEFAULT_EXCHANGE

    def _remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


def _halves(positions: list[int]) -> list[list[int]]:
    middle = len(positions) // 2
    return [part for part in (positions[:middle], positions[middle:]) if part]
