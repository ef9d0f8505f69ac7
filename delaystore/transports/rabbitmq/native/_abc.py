"""What all native delays have in common."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Final
from uuid import uuid4

from delaystore.address import queue_or_none
from delaystore.errors import (
    ConfigurationError,
    TransportSetupError,
    TransportUnansweredError,
    UnsupportedMessageError,
)
from delaystore.message import DelayedMessage
from delaystore.names import control_character
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.delay_headers import to_be_delayed
from delaystore.transports.rabbitmq.existence import queue_exists
from delaystore.transports.rabbitmq.publication import Publication
from delaystore.transports.rabbitmq.topology import Binding, Layout, Queue

ASK_AGAIN_AFTER: Final = 30.0
"""Seconds after which a queue or exchange is declared again: somebody may have deleted it, and its bindings."""
_OWN_LAYOUT: Final = ""
"""No queue's name."""


@dataclass(frozen=True, slots=True)
class Handover:
    """A message to hand over, and how long it is to wait from now on."""

    message: DelayedMessage
    delay: timedelta
    token: str = field(default_factory=lambda: uuid4().hex)
    """A new one for each attempt to send the message."""

    @property
    def queue(self) -> str:
        """The destination's queue; it is one, or the message would have been UNSUITED."""
        return str(queue_or_none(self.message.destination))


class NativeDelay(ABC):
    """A way to have RabbitMQ keep a message until it is due. May be shared by threads.

    `layout`: what it needs on the broker, whatever the messages.
    """

    def __init__(self, layout: Layout | None = None) -> None:
        for node in () if layout is None else layout.nodes:
            check_name(node.name)
        self._layout = layout
        self._prepared: dict[str, float] = {}
        """When what is prepared was, by name. Threads share it without a lock, which a fork could leave taken."""

    @property
    @abstractmethod
    def maximum(self) -> timedelta:
        """The longest delay."""

    @abstractmethod
    def address(self, handover: Handover) -> Publication:
        """What to publish, and where. Raises UnsupportedMessageError for what cannot be delayed this way."""

    def prepare(self, connections: BlockingConnections, batch: Sequence[Handover]) -> Mapping[str, str]:
        """Declare what `batch` needs; returns the queues that nothing can be delayed for, each with the reason.

        What was declared or found a short while ago is not asked for again. Raises TransportSetupError where nothing
        at all can be delayed, TransportUnavailableError.
        """
        prepared, now = self._prepared, time.monotonic()
        queues = {handover.queue for handover in batch}
        stale = {name for name in (_OWN_LAYOUT, *queues) if now - prepared.get(name, -inf) >= ASK_AGAIN_AFTER}
        if self._layout is not None and _OWN_LAYOUT in stale:
            declare(connections, self._layout)
            prepared[_OWN_LAYOUT] = time.monotonic()
            stale |= queues  # an exchange that is declared anew has lost its bindings
        reasons, unanswered = {}, False
        for queue in queues & stale:
            try:
                if self.prepare_queue(connections, queue):
                    prepared[queue] = time.monotonic()
                else:
                    reasons[queue] = f"no queue {queue!r}"
            except TransportSetupError as error:
                reasons[queue] = str(error)
            except TransportUnansweredError as error:
                if unanswered:
                    raise  # it is not the queue
                unanswered = True
                reasons[queue] = str(error)
        return reasons

    def prepare_queue(self, connections: BlockingConnections, queue: str) -> bool:
        """Have messages reach `queue`; False: it does not exist.

        Raises TransportSetupError where it may not be checked or bound, TransportUnavailableError.
        """
        return queue_exists(connections, queue)

    def required(self, queue: str) -> Sequence[Queue | Binding]:
        """What a message for `queue` needs, and is asked for right before it is published.

        What was prepared a while ago may be gone: a queue that somebody deletes and declares anew has no bindings.
        """
        return (Queue(queue),)

    def forget(self) -> None:
        """Ask the broker for everything again: something may have been deleted."""
        self._prepared = {}

    def publications(
        self, connections: BlockingConnections, messages: Sequence[DelayedMessage], now: datetime
    ) -> Sequence[Publication | Outcome]:
        """What to publish for each of `messages`, or UNSUITED. Raises as `prepare`.

        Delays are counted when everything is prepared, so that preparing makes nothing late.
        """
        began = time.monotonic()
        batch = [self._checked(message, now) for message in messages]
        suited = [one for one in batch if isinstance(one, Handover)]
        hindered = self.prepare(connections, suited) if suited else {}
        spent = timedelta(seconds=time.monotonic() - began)
        return [one if isinstance(one, Outcome) else self._publication(one, hindered, spent) for one in batch]

    def _checked(self, message: DelayedMessage, now: datetime) -> Handover | Outcome:
        try:
            _check_delayable(message)
            handover = Handover(to_be_delayed(message, now), message.due_time - now)
            self.address(handover)
        except UnsupportedMessageError as error:
            return Outcome(OutcomeKind.UNSUITED, str(error))
        return handover

    def _publication(self, handover: Handover, hindered: Mapping[str, str], spent: timedelta) -> Publication | Outcome:
        if handover.queue in hindered:
            return Outcome(OutcomeKind.UNSUITED, hindered[handover.queue])
        try:
            publication = self.address(replace(handover, delay=handover.delay - spent))
            return replace(publication, requires=self.required(handover.queue))
        except UnsupportedMessageError as error:
            return Outcome(OutcomeKind.UNSUITED, str(error))


def check_name(name: str) -> None:
    """Raise ConfigurationError for a name with control characters, such as line breaks."""
    character = control_character(name)
    if character is not None:
        raise ConfigurationError(f"the name {name[:80]!r} contains the control character {character!r}")


def _check_delayable(message: DelayedMessage) -> None:
    """Raise UnsupportedMessageError for a message that no native delay can take."""
    if queue_or_none(message.destination) is None:
        raise UnsupportedMessageError(
            f"destination {message.destination!r} is an exchange; native delays lead to queues, for other destinations "
            "the store keeps messages until they are due"
        )
    if "CC" in message.headers:
        raise UnsupportedMessageError("header 'CC' would deliver copies at once; the store can keep the message")
