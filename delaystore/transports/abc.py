"""The transport contract: how due messages reach their destinations.

Its semantics live here and only here; `delaystore.testing` checks them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore


class OutcomeKind(Enum):
    """What became of one message."""

    DELIVERED = "delivered"
    """Confirmed by the broker."""
    UNROUTABLE = "unroutable"
    """No such destination; it came back."""
    REFUSED = "refused"
    """Nacked, or the broker closes the channel because of this message."""
    UNCONFIRMED = "unconfirmed"
    """No answer before the deadline, or before the connection went: it may or may not have arrived."""
    UNAVAILABLE = "unavailable"
    """Its destination is unavailable, although the broker answers: the message is deferred, and tried again later.

    That is an outage of the destination, and no fault of the message. As with UNCONFIRMED, it may have arrived.
    """
    NOT_DELAYABLE = "not_delayable"
    """Only from `send_delayed`: the message cannot be delayed natively, and stays in the store until it is due."""

    @property
    def passes(self) -> bool:
        """Whether it is an outage, which passes: the same message is to be sent again."""
        return self in (OutcomeKind.UNCONFIRMED, OutcomeKind.UNAVAILABLE)


class PendingConfirm(ABC):
    """The answer to a message in flight that may still come. Any thread may look, at any time."""

    @property
    @abstractmethod
    def arrived(self) -> bool | None:
        """True: it is confirmed. False: no confirm will come any more; send it again. None: it is in flight."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one message, and why (empty when delivered)."""

    kind: OutcomeKind
    reason: str = ""
    late: PendingConfirm | None = field(default=None, compare=False, repr=False)
    """Of UNCONFIRMED and UNAVAILABLE: what tells later whether it arrived; None: nothing does."""


DELIVERED: Final = Outcome(OutcomeKind.DELIVERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message as its consumer sees it."""

    message_id: str
    body: bytes
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenMessage:
    """A message that one caller has taken from a queue. No other consumer gets it until that caller gives it back.

    `message`: as its consumer would see it. `tag`: by which the queue knows it, and no other queue.
    """

    message: ReceivedMessage
    tag: Any


class OpenQueue(ABC):
    """A queue whose messages one caller takes, a few at a time, and removes or gives back. It belongs to one thread."""

    @abstractmethod
    def take(self, limit: int) -> Sequence[TakenMessage]:
        """The next messages that no consumer has, `limit` at most; none: there are no more.

        What was taken is not taken again by this caller. Raises TransportError, TransportUnavailableError.
        """

    @abstractmethod
    def remove(self, taken: Sequence[TakenMessage]) -> None:
        """Remove messages for good. Once this returns the queue has forgotten them.

        Raises TransportUnavailableError: perhaps it has not.
        """

    def move(
        self,
        taken: Sequence[TakenMessage],  # noqa: ARG002 - for overriders
        messages: Sequence[DelayedMessage],  # noqa: ARG002 - for overriders
        timeout: float,  # noqa: ARG002 - for overriders
    ) -> Sequence[Outcome] | None:
        """Send each of `messages`, and remove what was taken for it, in one transaction; an outcome for each.

        What is not DELIVERED is in the queue as before. None: this queue has no such transactions, and nothing was
        done: `send`, then `remove`. Raises TransportError, TransportUnavailableError: perhaps nothing was moved, and
        whatever was is no longer in the queue.
        """
        return None


class Transport(ABC):
    """Carries messages to their destinations; may be shared by threads, and connects when first used."""

    @abstractmethod
    def send(
        self, messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float
    ) -> Sequence[Outcome]:
        """Forward `messages` and return one outcome for each, in their order, within about `timeout` seconds.

        A message without an answer by then may stay on its way: `Outcome.late` tells what becomes of it.
        `transaction`: the store bound to the transaction to send in, for exactly once; None unless
        `shares_transaction_with` returned True. DELIVERED then holds once it commits. An outage is an outcome
        (UNCONFIRMED), never an exception. But a failure that may have spoilt a shared transaction raises
        TransportError,
        and the caller rolls the transaction back.
        """

    @property
    def longest_native_delay(self) -> timedelta | None:
        """The longest delay that `send_delayed` takes; None: native delays are switched off, or there are none."""
        return None

    def send_delayed(
        self,
        messages: Sequence[DelayedMessage],  # noqa: ARG002 - for overriders
        now: datetime,  # noqa: ARG002 - for overriders
        timeout: float,  # noqa: ARG002 - for overriders
    ) -> Sequence[Outcome]:
        """Forward `messages`, each to arrive at its due time and not before; `now` is the time by the store's clock.

        Returns one outcome for each: DELIVERED: the broker keeps it until it is due; UNCONFIRMED, UNAVAILABLE: an
        outage; NOT_DELAYABLE: `send` it when it is due. Raises ConfigurationError where `longest_native_delay` is None.
        """
        raise ConfigurationError(f"native delays are switched off for {self!r}; give it one, as in delays=...")

    @abstractmethod
    def declare(self, queue: str) -> None:
        """Create the queue if it does not exist. Raises TransportSetupError, TransportUnavailableError."""

    def declare_error_queue(self, queue: str) -> None:
        """As `declare`, for a queue whose messages people look at, and give back, as often as they like."""
        self.declare(queue)

    @abstractmethod
    def receive(
        self, queue: str, limit: int = 1, timeout: float = 0
    ) -> AbstractContextManager[Sequence[ReceivedMessage]]:
        """Take up to `limit` messages, waiting up to `timeout` seconds for the first.

        They leave the queue when the block ends, and go back if it raises. For demos, tests and small consumers.
        """

    def open_queue(self, queue: str) -> AbstractContextManager[OpenQueue]:
        """Take messages of `queue`; what is not removed when the block ends goes back, in its order where possible.

        A caller that removes nothing has changed nothing. Raises TransportError for a queue that is missing or may
        not be read, TransportUnavailableError; ConfigurationError: this transport cannot.
        """
        raise ConfigurationError(f"{type(self).__name__} cannot inspect the queue {queue!r}")

    def depth(self, queue: str) -> int | None:  # noqa: ARG002 - for overriders
        """How many messages are in `queue`; None: there is no such queue, or this transport cannot tell.

        Raises TransportUnavailableError.
        """
        return None

    def reaches(self, destination: str) -> bool | None:  # noqa: ARG002 - for overriders
        """Whether a message for `destination` would arrive somewhere now, by its name; None: this cannot tell.

        Raises TransportUnavailableError.
        """
        return None

    def check(self, message: DelayedMessage) -> None:  # noqa: B027 - carrying everything is a fair default
        """Raise UnsupportedMessageError for a message this transport cannot carry unchanged; needs no connection.

        The dispatcher asks about what goes to the error queue, too, and about each header and property by itself: what
        is refused goes there as text. What only `send` refuses stays in the store.
        """

    def unavailable(self) -> str | None:
        """Why nothing can be sent at present (no connection, a broker alarm); None: it can, or that is unknown.

        The dispatcher asks before it claims messages. Returns at once, and starts to re-establish a lost connection.
        """
        return None

    def shares_transaction_with(self, store: DelayedMessageStore) -> bool:  # noqa: ARG002 - for overriders
        """Whether `send` can take part in a transaction of `store`, which makes exactly once possible."""
        return False

    def close(self) -> None:  # noqa: B027 - a transport may hold nothing
        """Give back connections; may be called twice. The transport may be used again, and reconnects.

        It also ends what is on its way: no confirm of that will come any more.
        """
