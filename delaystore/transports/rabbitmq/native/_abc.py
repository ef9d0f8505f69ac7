"""What all native delays have in common."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from delaystore.address import queue_or_none
from delaystore.errors import TransportSetupError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.delay_headers import to_be_delayed
from delaystore.transports.rabbitmq.existence import queue_exists
from delaystore.transports.rabbitmq.publication import Publication

ASK_AGAIN_AFTER: Final = 30.0
"""Seconds after which a queue or exchange is declared again: somebody may have deleted it, and its bindings."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """A message, and how long it is to wait from now on."""

    message: DelayedMessage
    delay: timedelta
    token: str = field(default_factory=lambda: uuid4().hex)
    """A new one for each attempt to send the message."""

    @property
    def queue(self) -> str:
        """The destination's queue; `check_delayable` has made sure that it is one."""
        return str(queue_or_none(self.message.destination))


class Known:
    """Names of what was declared or found lately. Threads share it without a lock, which a fork could leave taken."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def lacks(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are to be declared or checked now."""
        now = time.monotonic()
        return [name for name in names if self._until.get(name, 0.0) <= now]

    def add(self, name: str) -> None:
        """Note that `name` was declared or found just now."""
        self._until[name] = time.monotonic() + ASK_AGAIN_AFTER


class NativeDelay(ABC):
    """A way to have RabbitMQ keep a message until it is due. May be shared by threads."""

    def __init__(self) -> None:
        self._known = Known()

    @property
    @abstractmethod
    def maximum(self) -> timedelta:
        """The longest delay."""

    @abstractmethod
    def address(self, delayed: Delayed) -> Publication:
        """What to publish, and where. Raises UnsupportedMessageError for what cannot be delayed this way."""

    @abstractmethod
    def prepare(self, connections: BlockingConnections, batch: Sequence[Delayed]) -> Mapping[str, str]:
        """Declare what `batch` needs; returns the queues that nothing can be delayed for, each with the reason.

        What was declared or found a short while ago is not asked for again. Raises TransportSetupError where nothing
        at all can be delayed, TransportUnavailableError.
        """

    def forget(self) -> None:
        """Ask the broker for everything again: something may have been deleted."""
        self._known = Known()

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
    """Those of `queues` that do not exist or may not be checked, and why; raises TransportUnavailableError."""
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
    """Raise UnsupportedMessageError for a message that no native delay can take."""
    if queue_or_none(message.destination) is None:
        raise UnsupportedMessageError(
            f"destination {message.destination!r} is an exchange; native delays lead to queues, for other destinations "
            "the store keeps messages until they are due"
        )
    if "CC" in message.headers:
        raise UnsupportedMessageError("header 'CC' would deliver copies at once; the store can keep the message")
