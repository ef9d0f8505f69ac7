"""A message on its way from the ingress queue into the store."""

from dataclasses import dataclass
from enum import StrEnum

from delaystore.ingress.arrival import Arrival
from delaystore.ingress.reading.saga_cleared import SagaCleared
from delaystore.message import DelayedMessage


class Fate(StrEnum):
    """What became of a message; from then on it can be acknowledged."""

    STORED = "stored"
    REPEATED = "repeated"
    """It is in the store already."""
    DROPPED = "dropped"
    """Another message with its id waits, and is kept."""
    DIRECT = "direct"
    """It was forwarded at once."""
    REJECTED = "rejected"
    """A copy is in the rejected queue."""
    OBEYED = "obeyed"
    """It said that others are to be cancelled, and they are."""


@dataclass(slots=True)
class Entry:
    """A message on its way. `at`: when it came, by time.monotonic.

    `meaning`: what it says, once it is read. `objection`: why it cannot be stored; None: it can. `fate`: None: it is
    still open. `kept_back`: the store answers, and fails on it.
    """

    arrival: Arrival
    at: float
    meaning: DelayedMessage | SagaCleared | None = None
    objection: str | None = None
    fate: Fate | None = None
    kept_back: bool = False

    @property
    def message(self) -> DelayedMessage:
        """What is to be stored."""
        assert isinstance(self.meaning, DelayedMessage)
        return self.meaning
