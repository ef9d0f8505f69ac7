"""A message on its way from the ingress queue into the store."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from delaystore.ingress.arrival import Arrival
from delaystore.ingress.reading.saga_cleared import SagaCleared
from delaystore.message import DelayedMessage
from delaystore.transports.abc import LateAnswer
from delaystore.transports.rabbitmq.raw import RawProperties


class Fate(StrEnum):
    """What became of a message; from then on it can be acknowledged."""

    STORED = "stored"
    REPEATED = "repeated"
    """It is in the store already."""
    DROPPED = "dropped"
    """Another message with its id is kept."""
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
    still open. `failure`: what the store, which answers, fails on it with, since `failing_since` (by time.monotonic);
    None: it does not. `is_claimed`: the failure is that a dispatcher has the message of its id, or that an earlier
    arrival of its id is retried first; it is tried until that one is settled. `given_up`: it has no room any more to be
    tried again. `copy_late`: whether its copy, which the rejected queue has not confirmed in time, arrives after all;
    None: none is on its way.
    """

    arrival: Arrival
    at: float
    meaning: DelayedMessage | SagaCleared | None = None
    objection: str | None = None
    fate: Fate | None = None
    failure: str | None = None
    failing_since: float = 0.0
    is_claimed: bool = False
    given_up: bool = False
    copy_late: LateAnswer | None = None

    @property
    def message(self) -> DelayedMessage:
        """What is to be stored."""
        assert isinstance(self.meaning, DelayedMessage)
        return self.meaning

    @property
    def message_id(self) -> str | None:
        """The id of the message to store; None: the entry is not read yet, or is no message."""
        return self.meaning.message_id if isinstance(self.meaning, DelayedMessage) else None

    @property
    def size(self) -> int:
        """Bytes of its body and of its properties."""
        return len(self.arrival.body) + len(self.arrival.properties.encoded)

    def emptied(self) -> "Entry":
        """The same without a body and without properties: what is left is in its queue."""
        return Entry(self.arrival._replace(body=b"", properties=RawProperties.of({})), self.at)


def size_of(entries: Iterable[Entry]) -> int:
    """Bytes of bodies and properties."""
    return sum(entry.size for entry in entries)
