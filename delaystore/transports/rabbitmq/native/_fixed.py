"""Delays by one queue with one time to live (https://www.rabbitmq.com/docs/ttl): all messages wait equally long."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from typing_extensions import override

from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.errors import ConfigurationError, UnsupportedMessageError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.native._abc import Delayed, NativeDelay, unusable
from delaystore.transports.rabbitmq.publication import Publication
from delaystore.transports.rabbitmq.topology import Binding, DestinationKind, Exchange, Layout, Queue
from delaystore.transports.rabbitmq.topology.cascade import MILLISECOND, QUORUM

TOLERANCE: Final = timedelta(seconds=1)
"""A message may be due this much sooner than the queue's delay, and is then late by that: sending takes time."""


class FixedDelay(NativeDelay):
    """Always the same delay, by a fanout exchange and a queue of one name.

    A message with another delay would have to wait for those before it, and is refused.
    """

    def __init__(self, delay: timedelta, name: str | None = None) -> None:
        super().__init__()
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

    @property
    @override
    def maximum(self) -> timedelta:
        return self._delay

    @override
    def address(self, delayed: Delayed) -> Publication:
        """The routing key is the destination: the queue gives it to the default exchange, where it names a queue."""
        if not timedelta(0) <= self._delay - delayed.delay <= TOLERANCE:
            raise UnsupportedMessageError(
                f"this queue delays by {self._delay} and not by {delayed.delay}; messages leave it one after another"
            )
        return Publication(delayed.message, Address(self._name, delayed.queue))

    @override
    def prepare(self, connections: BlockingConnections, batch: Sequence[Delayed]) -> Mapping[str, str]:
        known, own = self._known, f"exchange {self._name}"
        if known.lacks([own]):
            declare(connections, self._layout)
            known.add(own)
        return unusable(connections, known, {delayed.queue for delayed in batch})
