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
    """The kinds of results of sending a message."""

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
    """The result of sending one message, and why (empty when delivered)."""

    kind: OutcomeKind
    reason: str = ""
    late: PendingConfirm | None = field(default=None, compare=False, repr=False)
    """Of UNCONFIRMED and UNAVAILABLE: what tells later whether it arrived; None: nothing does."""


DELIVERED: Final = Outcome(OutcomeKind.DELIVERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message as its consumer sees it.

    Attributes:
        message_id: Its id; empty: it has none.
        body: Its body.
        headers: Its headers.
        properties: Its other AMQP properties.

    """

    message_id: str
    body: bytes
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenMessage:
    """A message that one caller has taken from a queue. No other consumer gets it until that caller gives it back.

    Attributes:
        message: The message, as its consumer would see it.
        tag: By which the queue knows it, and no other queue.

    """

    message: ReceivedMessage
    tag: Any


class OpenQueue(ABC):
    """A queue whose messages one caller takes, a few at a time, and removes or gives back. It belongs to one thread."""

    @abstractmethod
    def take(self, limit: int) -> Sequence[TakenMessage]:
        """Take the next messages that no consumer has. This caller does not get them again.

        Args:
            limit: Number of messages at most.

        Returns:
            The messages, in the order of the queue. Empty: there are no more.

        Raises:
            TransportError: The queue cannot be read.
            TransportUnavailableError: The broker cannot be reached.

        """

    @abstractmethod
    def remove(self, taken: Sequence[TakenMessage]) -> None:
        """Remove messages for good. Once this returns, the queue has removed them.

        Args:
            taken: Messages that `take` returned.

        Raises:
            TransportUnavailableError: The connection is lost. The messages may be removed, or in the queue.

        """

    def move(
        self,
        taken: Sequence[TakenMessage],  # noqa: ARG002 - for overriders
        messages: Sequence[DelayedMessage],  # noqa: ARG002 - for overriders
        timeout: float,  # noqa: ARG002 - for overriders
    ) -> Sequence[Outcome] | None:
        """Send messages and remove their originals, in one transaction.

        Args:
            taken: Messages that `take` returned.
            messages: The message to send for each of them, in the same order.
            timeout: Seconds for the whole call.

        Returns:
            One outcome for each message. A message that is not DELIVERED is in the queue as before. None: this queue
            has no such transactions, and nothing was done. Then call `send` and `remove`.

        Raises:
            TransportError: Nothing was moved.
            TransportUnavailableError: The connection is lost. Each message is either in the queue or sent, never both.

        """
        return None


class Transport(ABC):
    """Carries messages to their destinations; may be shared by threads, and connects when first used."""

    @abstractmethod
    def send(
        self, messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float
    ) -> Sequence[Outcome]:
        """Forward messages to their destinations.

        A message without an answer in time may stay in flight; `Outcome.late` reports its result later. An
        outage is an outcome (UNCONFIRMED), never an exception.

        Args:
            messages: The messages.
            transaction: The store, bound to the transaction to send in, for exactly once. None unless
                `shares_transaction_with` returned True. DELIVERED then holds once the transaction commits.
            timeout: Seconds for all of them.

        Returns:
            One outcome for each message, in their order.

        Raises:
            TransportError: A failure may have spoilt the shared transaction. The caller rolls it back.

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
        """Forward messages now, each to arrive at its due time and not before.

        Args:
            messages: The messages.
            now: The time by the store's clock, aware.
            timeout: Seconds for all of them.

        Returns:
            One outcome for each message, in their order. DELIVERED: the broker keeps it until it is due. UNCONFIRMED,
            UNAVAILABLE: an outage. NOT_DELAYABLE: `send` the message when it is due.

        Raises:
            ConfigurationError: `longest_native_delay` is None.

        """
        raise ConfigurationError(f"{self!r} has no native delay; name one, as in delays=...")

    @abstractmethod
    def declare(self, queue: str) -> None:
        """Create a queue if it does not exist.

        Args:
            queue: Its name.

        Raises:
            TransportSetupError: The broker refuses it.
            TransportUnavailableError: The broker cannot be reached.

        """

    def declare_error_queue(self, queue: str) -> None:
        """As `declare`, for a queue whose messages people look at, and give back, as often as they like."""
        self.declare(queue)

    @abstractmethod
    def receive(
        self, queue: str, limit: int = 1, timeout: float = 0
    ) -> AbstractContextManager[Sequence[ReceivedMessage]]:
        """Take messages for the time of a block. For demos, tests and small consumers.

        They leave the queue when the block ends, and go back if it raises.

        Args:
            queue: Its name.
            limit: Number of messages at most.
            timeout: Seconds to wait for the first message.

        Returns:
            A context manager that yields the messages; none, if none came in time.

        """

    def open_queue(self, queue: str) -> AbstractContextManager[OpenQueue]:
        """Open a queue, to take messages and remove some of them.

        Messages that are not removed when the block ends go back, in their order where possible. A caller that
        removes nothing has changed nothing.

        Args:
            queue: Its name.

        Returns:
            A context manager that yields the queue.

        Raises:
            TransportError: The queue is missing or may not be read.
            TransportUnavailableError: The broker cannot be reached.
            ConfigurationError: This transport cannot open queues.

        """
        raise ConfigurationError(f"{type(self).__name__} cannot inspect the queue {queue!r}")

    def depth(self, queue: str) -> int | None:  # noqa: ARG002 - for overriders
        """Count the messages that are ready in a queue.

        Args:
            queue: Its name.

        Returns:
            The number of messages. None: there is no such queue, or this transport cannot count.

        Raises:
            TransportUnavailableError: The broker cannot be reached.

        """
        return None

    def reaches(self, destination: str) -> bool | None:  # noqa: ARG002 - for overriders
        """Check whether a message for a destination would arrive in a queue now.

        Args:
            destination: A queue's name or an address.

        Returns:
            Whether it would, as far as its name shows. None: unknown.

        Raises:
            TransportUnavailableError: The broker cannot be reached.

        """
        return None

    def check(self, message: DelayedMessage) -> None:  # noqa: B027 - carrying everything is a fair default
        """Refuse a message that this transport cannot carry unchanged. Needs no connection.

        The dispatcher also checks messages for the error queue, and each header and property on its own: refused
        ones go there as text. A message that only `send` refuses stays in the store.

        Args:
            message: The message.

        Raises:
            UnsupportedMessageError: It cannot be carried. The text says why.

        """

    def unavailable(self) -> str | None:
        """Say why nothing can be sent at present, and start to re-establish a lost connection.

        The dispatcher asks before it claims messages. Returns at once.

        Returns:
            The reason, such as no connection or an alarm of the broker. None: messages can be sent, or that is unknown.

        """
        return None

    def shares_transaction_with(self, store: DelayedMessageStore) -> bool:  # noqa: ARG002 - for overriders
        """Check whether `send` can take part in a transaction of a store, which makes exactly once possible.

        Args:
            store: The store.

        Returns:
            Whether it can.

        """
        return False

    def close(self) -> None:  # noqa: B027 - a transport may hold nothing
        """Close connections; may be called twice. The transport may be used again, and then reconnects.

        Messages in flight are given up: no confirm will come for them.

        """
