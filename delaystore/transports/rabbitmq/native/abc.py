"""What every way of delaying natively has in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from delaystore.errors import UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.address import queue_name
from delaystore.transports.rabbitmq.administration.declaring import queue_exists
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.flight import Publication


@dataclass(frozen=True, slots=True)
class Delayed:
    """A message, and how long it is to wait from now on."""

    message: DelayedMessage
    delay: timedelta

    @property
    def queue(self) -> str:
        """The queue it is for; `check_delayable` has seen that it is for one."""
        return str(queue_name(self.message.destination))


class NativeDelay(ABC):
    """A way to let RabbitMQ keep a message until it is due. May be shared by threads."""

    @property
    @abstractmethod
    def maximum(self) -> timedelta:
        """The longest delay."""

    @abstractmethod
    def address(self, delayed: Delayed) -> Publication:
        """What to publish, and where. Raises UnsupportedMessageError for what cannot be delayed this way."""

    @abstractmethod
    def prepare(self, connections: BlockingConnections, batch: Sequence[Delayed]) -> frozenset[str]:
        """See to it that what `batch` needs is on the broker; the queues among its destinations that do not exist.

        Asks the broker for what it has not seen to before, and nothing else. Raises TransportSetupError,
        TransportUnavailableError.
        """

    def forget(self) -> None:  # noqa: B027 - there may be nothing to forget
        """Look anew at what is on the broker, which may have been deleted meanwhile."""

    def publications(
        self, connections: BlockingConnections, batch: Sequence[Delayed]
    ) -> Sequence[Publication | Outcome]:
        """What to publish for each of `batch`, or why not: UNSUITED, or UNROUTABLE for a queue that does not exist.

        Raises as `prepare`.
        """
        found: list[Publication | Outcome] = []
        suited: list[Delayed] = []
        for delayed in batch:
            try:
                check_delayable(delayed.message)
                found.append(self.address(delayed))
                suited.append(delayed)
            except UnsupportedMessageError as error:
                found.append(Outcome(OutcomeKind.UNSUITED, str(error)))
        missing = self.prepare(connections, suited) if suited else frozenset()
        if not missing:
            return found
        return [
            Outcome(OutcomeKind.UNROUTABLE, f"no queue {delayed.queue!r}")
            if isinstance(one, Publication) and delayed.queue in missing
            else one
            for delayed, one in zip(batch, found, strict=True)
        ]


def existing(connections: BlockingConnections, queues: Iterable[str]) -> frozenset[str]:
    """Those of `queues` that exist; raises TransportSetupError, TransportUnavailableError."""
    return frozenset(queue for queue in queues if queue_exists(connections, queue))


def check_delayable(message: DelayedMessage) -> None:
    """UnsupportedMessageError for what no way of delaying natively can do."""
    if queue_name(message.destination) is None:
        raise UnsupportedMessageError(
            f"destination {message.destination!r} is an exchange; native delays lead to queues, for other destinations "
            "the store keeps messages until they are due"
        )
    if "CC" in message.headers:
        raise UnsupportedMessageError("header 'CC' would deliver copies at once; the store can keep the message")
