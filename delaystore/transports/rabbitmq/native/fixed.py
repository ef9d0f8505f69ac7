"""Delays by one queue, which has one delay (seed 004, #17)."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from delaystore.errors import ConfigurationError, UnsupportedMessageError
from delaystore.transports.rabbitmq.address import DEFAULT_EXCHANGE, Address
from delaystore.transports.rabbitmq.administration.declaring import declare
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.flight import Publication
from delaystore.transports.rabbitmq.native.abc import Delayed, NativeDelay, unusable
from delaystore.transports.rabbitmq.native.known import Known
from delaystore.transports.rabbitmq.topology import Binding, DestinationKind, Exchange, Layout, Queue
from delaystore.transports.rabbitmq.topology.cascade import MILLISECOND, QUORUM

TOLERANCE: Final = timedelta(seconds=1)
"""How much sooner a message may be due, which comes late by that: sending it takes time."""


class FixedDelay(NativeDelay):
    """Always the same delay: a fanout exchange and a queue `NAME`, which lets each message go on to its destination.

    A message of another delay would wait for those before it, and is refused.
    """

    def __init__(self, delay: timedelta, name: str | None = None) -> None:
        if not isinstance(delay, timedelta) or delay < MILLISECOND:
            raise ConfigurationError(f"a fixed delay is a timedelta of at least a millisecond, not {delay!r}")
        self._delay = delay
        milliseconds = -(-delay // MILLISECOND)
        self._name = name or f"delaystore.fixed.{milliseconds}"
        arguments = {"x-message-ttl": milliseconds, "x-dead-letter-exchange": DEFAULT_EXCHANGE}
        self._layout = Layout(
            exchanges=(Exchange(self._name, "fanout"),),
            queues=(Queue(self._name, {**QUORUM, **arguments}),),
            bindings=(Binding(self._name, self._name, DestinationKind.QUEUE),),
        )
        self._known = Known()

    @property
    def maximum(self) -> timedelta:
        """The one delay."""
        return self._delay

    def address(self, delayed: Delayed) -> Publication:
        """The routing key is the destination: the queue gives it to the default exchange, where it names a queue."""
        if not timedelta(0) <= self._delay - delayed.delay <= TOLERANCE:
            raise UnsupportedMessageError(
                f"this queue delays by {self._delay} and not by {delayed.delay}; messages leave it one after another"
            )
        return Publication(delayed.message, Address(self._name, delayed.queue))

    def prepare(self, connections: BlockingConnections, batch: Sequence[Delayed]) -> Mapping[str, str]:
        """Declare exchange and queue; look for the destinations."""
        known, own = self._known, f"exchange {self._name}"
        if known.lacks([own]):
            declare(connections, self._layout)
            known.add(own)
        return unusable(connections, known, {delayed.queue for delayed in batch})

    def forget(self) -> None:
        """Declare and look anew."""
        self._known = Known()
