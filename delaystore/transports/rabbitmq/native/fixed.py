"""Delays by one queue, which has one delay (seed 004, #17)."""

import threading
from collections.abc import Sequence
from datetime import timedelta

from delaystore.errors import ConfigurationError, UnsupportedMessageError
from delaystore.transports.rabbitmq.address import DEFAULT_EXCHANGE, Address
from delaystore.transports.rabbitmq.administration.declaring import declare
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.flight import Publication
from delaystore.transports.rabbitmq.native.abc import Delayed, NativeDelay, existing
from delaystore.transports.rabbitmq.topology import Binding, DestinationKind, Exchange, Layout, Queue
from delaystore.transports.rabbitmq.topology.cascade import MILLISECOND, QUORUM


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
        self._lock = threading.Lock()
        self._declared = False
        self._seen: set[str] = set()

    @property
    def maximum(self) -> timedelta:
        """The one delay."""
        return self._delay

    def address(self, delayed: Delayed) -> Publication:
        """The routing key is the destination: the queue gives it to the default exchange, where it names a queue."""
        if delayed.delay != self._delay:
            raise UnsupportedMessageError(
                f"this queue delays by {self._delay} and not by {delayed.delay}; messages leave it one after another"
            )
        return Publication(delayed.message, Address(self._name, delayed.queue))

    def prepare(self, connections: BlockingConnections, batch: Sequence[Delayed]) -> frozenset[str]:
        """Declare exchange and queue; look for the destinations."""
        queues = {delayed.queue for delayed in batch}
        with self._lock:
            if not self._declared:
                declare(connections, self._layout)
                self._declared = True
            self._seen |= existing(connections, queues - self._seen)
            return frozenset(queues - self._seen)

    def forget(self) -> None:
        """Declare and look anew."""
        self._declared = False
        self._seen = set()
