"""Delays by one queue with one time to live (https://www.rabbitmq.com/docs/ttl): all messages wait equally long."""

from datetime import timedelta
from typing import Final

from typing_extensions import override

from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.errors import ConfigurationError, UnsupportedMessageError
from delaystore.transports.rabbitmq.native._abc import Handover, NativeDelay
from delaystore.transports.rabbitmq.publication import Publication
from delaystore.transports.rabbitmq.topology.cascade import MILLISECOND, QUORUM
from delaystore.transports.rabbitmq.topology.layout import fanout_queue

TOLERANCE: Final = timedelta(seconds=1)
"""A message may be due this much sooner than the queue's delay, and is then late by that: sending takes time."""


class FixedDelay(NativeDelay):
    """Always the same delay, by a fanout exchange and a queue of one name.

    A message with another delay would have to wait for those before it, and is refused.
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
                f"this queue delays by {self._delay} and not by {handover.delay}; messages leave it one after another"
            )
        return Publication(handover.message, Address(self._name, handover.queue))
