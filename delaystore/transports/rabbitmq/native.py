"""Letting RabbitMQ itself keep a message until it is due: by a cascade, one queue, a queue per message, the plugin."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Final
from uuid import uuid4

from typing_extensions import override

from delaystore.errors import (
    ConfigurationError,
    TransportError,
    TransportSetupError,
    TransportUnansweredError,
    UnsupportedMessageError,
)
from delaystore.message import DelayedMessage
from delaystore.text import DEFAULT_EXCHANGE, Address, control_character, queue_or_none
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare, ensure_bound
from delaystore.transports.rabbitmq.delay_headers import to_be_delayed
from delaystore.transports.rabbitmq.publication import Publication
from delaystore.transports.rabbitmq.queues import queue_exists
from delaystore.transports.rabbitmq.topology import (
    Binding,
    CascadeTopology,
    DestinationKind,
    Exchange,
    Layout,
    Queue,
    topology_named,
)
from delaystore.transports.rabbitmq.topology.cascades import MILLISECOND, QUORUM
from delaystore.transports.rabbitmq.topology.layout import ALTERNATE_EXCHANGE, fanout_queue

__all__ = [
    "CascadeDelay",
    "DelayedMessagePluginDelay",
    "EphemeralQueueDelay",
    "FixedDelay",
    "NativeDelay",
    "delay_named",
]

ASK_AGAIN_AFTER: Final = 30.0
"""Seconds after which a queue or exchange is declared again: it may have been deleted, and its bindings."""
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
        """The destination's queue; it is one, or the message would have been NOT_DELAYABLE."""
        return str(queue_or_none(self.message.destination))


class NativeDelay(ABC):
    """A way to have RabbitMQ keep a message until it is due. May be shared by threads.

    Args:
        layout: The parts that it needs on the broker for any message; None: none.

    Raises:
        ConfigurationError: A name contains a control character.

    """

    def __init__(self, layout: Layout | None = None) -> None:
        for node in () if layout is None else layout.nodes:
            check_name(node.name)
        self._layout = layout
        self._prepared: dict[str, float] = {}
        """The times of preparation, by name. Threads share it without a lock, which a fork could leave taken."""

    @property
    @abstractmethod
    def maximum(self) -> timedelta:
        """The longest delay."""

    @abstractmethod
    def address(self, handover: Handover) -> Publication:
        """Make the publication that delays a message.

        Args:
            handover: The message, and how long it is to wait.

        Returns:
            The message to publish, and where.

        Raises:
            UnsupportedMessageError: It cannot be delayed this way.

        """

    def prepare(self, connections: BlockingConnections, batch: Sequence[Handover]) -> Mapping[str, str]:
        """Declare the parts that messages need. Parts that were declared or found a short while ago are not asked
        for again.

        Args:
            connections: Connections to the broker.
            batch: The messages.

        Returns:
            The queues that nothing can be delayed for, each with the reason.

        Raises:
            TransportSetupError: Nothing at all can be delayed.
            TransportUnavailableError: The broker does not answer.

        """
        prepared, now = self._prepared, time.monotonic()
        queues = {handover.queue for handover in batch}
        stale = {name for name in (_OWN_LAYOUT, *queues) if now - prepared.get(name, -inf) >= ASK_AGAIN_AFTER}
        if self._layout is not None and _OWN_LAYOUT in stale:
            declare(connections, self._layout.parts)
            prepared[_OWN_LAYOUT] = time.monotonic()
            stale |= queues  # an exchange that is declared again has lost its bindings
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
        """Have messages reach a queue.

        Args:
            connections: Connections to the broker.
            queue: The queue's name.

        Returns:
            False: it does not exist.

        Raises:
            TransportSetupError: It may not be checked or bound.
            TransportUnavailableError: The broker does not answer.

        """
        return queue_exists(connections, queue)

    def required(self, queue: str) -> Sequence[Queue | Binding]:
        """Queues and bindings that a message needs. They are checked right before it is published.

        Parts that were prepared a while ago may be gone: a queue that is deleted and declared again has no bindings.

        Args:
            queue: The queue that the message is for.

        Returns:
            The parts.

        """
        return (Queue(queue),)

    def forget(self) -> None:
        """Ask the broker for everything again: something may have been deleted."""
        self._prepared = {}

    def publications(
        self, connections: BlockingConnections, messages: Sequence[DelayedMessage], now: datetime
    ) -> Sequence[Publication | Outcome]:
        """Make the publications that delay messages.

        Delays are counted when everything is prepared, so that preparing makes nothing late.

        Args:
            connections: Connections to the broker.
            messages: The messages.
            now: The present, an aware datetime.

        Returns:
            For each message, in their order, its publication, or NOT_DELAYABLE.

        Raises:
            TransportSetupError: Nothing at all can be delayed.
            TransportUnavailableError: The broker does not answer.

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
            return Outcome(OutcomeKind.NOT_DELAYABLE, str(error))
        return handover

    def _publication(self, handover: Handover, hindered: Mapping[str, str], spent: timedelta) -> Publication | Outcome:
        if handover.queue in hindered:
            return Outcome(OutcomeKind.NOT_DELAYABLE, hindered[handover.queue])
        try:
            publication = self.address(replace(handover, delay=handover.delay - spent))
            return replace(publication, requires=self.required(handover.queue))
        except UnsupportedMessageError as error:
            return Outcome(OutcomeKind.NOT_DELAYABLE, str(error))


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


class CascadeDelay(NativeDelay):
    """Any delay up to the cascade's maximum, in its units, rounded up.

    The cascade is declared and each destination's queue is bound when they are first needed.

    Args:
        topology: The cascade.

    """

    def __init__(self, topology: CascadeTopology) -> None:
        super().__init__(topology.layout())
        self._topology = topology

    @property
    @override
    def maximum(self) -> timedelta:
        return self._topology.maximum

    @override
    def address(self, handover: Handover) -> Publication:
        return Publication(handover.message, self._topology.route(handover.delay, handover.queue))

    @override
    def prepare_queue(self, connections: BlockingConnections, queue: str) -> bool:
        return ensure_bound(connections, self._topology, queue)

    @override
    def required(self, queue: str) -> Sequence[Queue | Binding]:
        return self._topology.destination_bindings(queue) or super().required(queue)


_EXTRA_LIFE: Final = 60_000
"""Milliseconds that a queue outlives its message, in case the broker is late."""
_LONGEST: Final = 2**32 - 1 - _EXTRA_LIFE
"""Milliseconds; RabbitMQ refuses a queue's life beyond 2^32-1."""


class EphemeralQueueDelay(NativeDelay):
    """Any delay up to 49 days, in milliseconds. For few messages: each costs the broker a queue.

    Queues are classic and durable: RabbitMQ 4 has no transient ones.

    Args:
        prefix: The beginning of the queues' names.

    Raises:
        ConfigurationError: The name contains a control character.

    """

    def __init__(self, prefix: str = "delaystore.ephemeral") -> None:
        super().__init__()
        check_name(prefix)
        self._prefix = prefix

    @property
    @override
    def maximum(self) -> timedelta:
        return _LONGEST * MILLISECOND

    @override
    def address(self, handover: Handover) -> Publication:
        if handover.delay > self.maximum:
            raise UnsupportedMessageError(f"a queue for each message delays by at most {self.maximum}")
        return Publication(handover.message, Address(DEFAULT_EXCHANGE, self._name(handover)))

    @override
    def prepare(self, connections: BlockingConnections, batch: Sequence[Handover]) -> Mapping[str, str]:
        reasons = super().prepare(connections, batch)
        declare(connections, [self._queue(handover) for handover in batch if handover.queue not in reasons])
        return reasons

    def _name(self, handover: Handover) -> str:
        return f"{self._prefix}.{handover.token}"

    def _queue(self, handover: Handover) -> Queue:
        milliseconds = max(0, -(-handover.delay // MILLISECOND))
        arguments = {
            "x-queue-type": "classic",
            "x-message-ttl": milliseconds,
            "x-expires": milliseconds + _EXTRA_LIFE,
            "x-dead-letter-exchange": DEFAULT_EXCHANGE,
            "x-dead-letter-routing-key": handover.queue,
        }
        return Queue(self._name(handover), arguments)


TOLERANCE: Final = timedelta(seconds=1)
"""A message may be due this much sooner than the queue's delay, and is then late by that: sending takes time."""


class FixedDelay(NativeDelay):
    """Always the same delay, by a fanout exchange and a queue of one name.

    A message with another delay would have to wait for those before it, and is refused.

    Args:
        delay: The delay, a millisecond at least.
        name: The name of exchange and queue; None: `delaystore.fixed.` and the milliseconds.

    Raises:
        ConfigurationError: The delay or the name cannot work.

    """

    def __init__(self, delay: timedelta, name: str | None = None) -> None:
        if not isinstance(delay, timedelta) or delay < MILLISECOND:
            raise ConfigurationError(f"a fixed delay is a timedelta of at least a millisecond, not {delay!r}")
        self._delay = delay
        milliseconds = -(-delay // MILLISECOND)
        self._name = name or f"delaystore.fixed.{milliseconds}"
        arguments = {"x-message-ttl": milliseconds, "x-dead-letter-exchange": DEFAULT_EXCHANGE}
        super().__init__(fanout_queue(self._name, {**QUORUM, **arguments}))

    @property
    @override
    def maximum(self) -> timedelta:
        return self._delay

    @override
    def address(self, handover: Handover) -> Publication:
        """The routing key is the destination: the queue gives it to the default exchange, where it names a queue."""
        if not timedelta(0) <= self._delay - handover.delay <= TOLERANCE:
            raise UnsupportedMessageError(
                f"this queue delays by {self._delay}, not by {handover.delay}; use one queue for each delay, "
                "because messages leave a queue in order"
            )
        return Publication(handover.message, Address(self._name, handover.queue))


DELAY_HEADER: Final = "x-delay"
"""Milliseconds."""
MAXIMUM: Final = 2**32 - 1
"""Milliseconds; the plugin delivers a message with a longer delay at once."""
EXCHANGE_TYPE: Final = "x-delayed-message"


class DelayedMessagePluginDelay(NativeDelay):
    """Any delay up to 49 days, in milliseconds, where the broker has the plugin.

    It keeps messages on one node, without a copy, and is not made for hundreds of thousands. It does not support
    `mandatory`: every delayed message would come back as unroutable, so they are published without it.

    A due message goes from the plugin's exchange to the exchange `EXCHANGE.delivery`, to which each destination's queue
    is bound by its own name. A message that has no queue by then goes to the queue `EXCHANGE.undeliverable`, as the
    plugin would drop it. An alternate exchange of its own would get a copy of each message at once: while a message is
    delayed, it counts as unroutable.

    Args:
        exchange: The name of the plugin's exchange.

    Raises:
        ConfigurationError: The name contains a control character.

    """

    def __init__(self, exchange: str = "delaystore.delayed") -> None:
        self._exchange = exchange
        self._delivery = f"{exchange}.delivery"
        undeliverable = f"{exchange}.undeliverable"
        end = (
            Exchange(exchange, EXCHANGE_TYPE, {"x-delayed-type": "direct"}),
            Exchange(self._delivery, "direct", {ALTERNATE_EXCHANGE: undeliverable}),
        )
        super().__init__(fanout_queue(undeliverable, {"x-queue-type": "quorum"}) + Layout(exchanges=end))

    @property
    @override
    def maximum(self) -> timedelta:
        return MAXIMUM * MILLISECOND

    @override
    def address(self, handover: Handover) -> Publication:
        milliseconds = -(-handover.delay // MILLISECOND)
        if milliseconds > MAXIMUM:
            raise UnsupportedMessageError(f"the delayed-message plugin delays by at most {self.maximum}")
        message = replace(handover.message, headers={**handover.message.headers, DELAY_HEADER: milliseconds})
        return Publication(message, Address(self._exchange, handover.queue), mandatory=False)

    @override
    def prepare(self, connections: BlockingConnections, batch: Sequence[Handover]) -> Mapping[str, str]:
        try:
            return super().prepare(connections, batch)
        except TransportError as error:
            if "exchange type" not in str(error):
                raise
            raise TransportSetupError(
                f"{error}; is the plugin rabbitmq_delayed_message_exchange enabled on this broker?"
            ) from None

    @override
    def prepare_queue(self, connections: BlockingConnections, queue: str) -> bool:
        if not queue_exists(connections, queue):
            return False
        declare(connections, self.required(queue))
        return True

    @override
    def required(self, queue: str) -> Sequence[Queue | Binding]:
        return (
            Binding(self._exchange, self._delivery, DestinationKind.EXCHANGE, queue),
            Binding(self._delivery, queue, DestinationKind.QUEUE, queue),
        )


def delay_named(name: str) -> NativeDelay:
    """Make a native delay by its name.

    Args:
        name: A cascade (see `topology_named`), or `plugin`, `ephemeral`, `fixed:SECONDS`.

    Returns:
        The native delay.

    Raises:
        ConfigurationError: There is none of that name.

    """
    if name == "plugin":
        return DelayedMessagePluginDelay()
    if name == "ephemeral":
        return EphemeralQueueDelay()
    kind, _, seconds = name.partition(":")
    if kind != "fixed":
        return CascadeDelay(topology_named(name))
    try:
        return FixedDelay(timedelta(seconds=float(seconds)))
    except (ValueError, OverflowError):
        raise ConfigurationError(f"a fixed delay is written fixed:SECONDS, as in fixed:30, not {name!r}") from None
