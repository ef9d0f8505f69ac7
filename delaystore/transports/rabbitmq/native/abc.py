"""What every way of delaying natively has in common."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import uuid4

from delaystore.errors import TransportSetupError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.address import queue_name
from delaystore.transports.rabbitmq.administration.declaring import queue_exists
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.flight import Publication
from delaystore.transports.rabbitmq.native.headers import to_be_delayed
from delaystore.transports.rabbitmq.native.known import Known


@dataclass(frozen=True, slots=True)
class Delayed:
    """A message, and how long it is to wait from now on."""

    message: DelayedMessage
    delay: timedelta
    token: str = field(default_factory=lambda: uuid4().hex)
    """Another one at each attempt to send it."""

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
    def prepare(self, connections: BlockingConnections, batch: Sequence[Delayed]) -> Mapping[str, str]:
        """See to it that what `batch` needs is on the broker; queues that nothing can be delayed for, and why not.

        Asks the broker for what it has not seen to lately, and nothing else. Raises TransportSetupError where nothing
        at all can be delayed, TransportUnavailableError.
        """

    def forget(self) -> None:  # noqa: B027 - there may be nothing to forget
        """Look anew at what is on the broker, which may have been deleted meanwhile."""

    def publications(
        self, connections: BlockingConnections, messages: Sequence[DelayedMessage], now: datetime
    ) -> Sequence[Publication | Outcome]:
        """What to publish for each of `messages`, or UNSUITED. Raises as `prepare`.

        Delays are counted when everything is prepared, so that preparing makes nothing late.
        """
        began = time.monotonic()
        batch: list[Delayed | Outcome] = [self._checked(message, now) for message in messages]
        suited = [one for one in batch if isinstance(one, Delayed)]
        hindered = self.prepare(connections, suited) if suited else {}
        spent = timedelta(seconds=time.monotonic() - began)
        return [one if isinstance(one, Outcome) else self._publication(one, hindered, spent) for one in batch]

    def _checked(self, message: DelayedMessage, now: datetime) -> Delayed | Outcome:
        try:
            check_delayable(message)
            delayed = Delayed(to_be_delayed(message, now), message.due_time - now)
            self.address(delayed)
        except UnsupportedMessageError as error:
            return Outcome(OutcomeKind.UNSUITED, str(error))
        return delayed

    def _publication(self, delayed: Delayed, hindered: Mapping[str, str], spent: timedelta) -> Publication | Outcome:
        if delayed.queue in hindered:
            return Outcome(OutcomeKind.UNSUITED, hindered[delayed.queue])
        try:
            return self.address(replace(delayed, delay=delayed.delay - spent))
        except UnsupportedMessageError as error:
            return Outcome(OutcomeKind.UNSUITED, str(error))


def unusable(connections: BlockingConnections, known: Known, queues: set[str]) -> dict[str, str]:
    """Those of `queues` that do not exist or may not be looked up, and why; raises TransportUnavailableError."""
    reasons = {}
    for queue in known.lacks(queues):
        try:
            if queue_exists(connections, queue):
                known.add(queue)
            else:
                reasons[queue] = f"no queue {queue!r}"
        except TransportSetupError as error:
            reasons[queue] = str(error)
    return reasons


def check_delayable(message: DelayedMessage) -> None:
    """UnsupportedMessageError for what no way of delaying natively can do."""
    if queue_name(message.destination) is None:
        raise UnsupportedMessageError(
            f"destination {message.destination!r} is an exchange; native delays lead to queues, for other destinations "
            "the store keeps messages until they are due"
        )
    if "CC" in message.headers:
        raise UnsupportedMessageError("header 'CC' would deliver copies at once; the store can keep the message")
