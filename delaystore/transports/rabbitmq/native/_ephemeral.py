"""Delays by a queue for each message, which the broker deletes afterwards (https://www.rabbitmq.com/docs/ttl)."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from typing_extensions import override

from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.native._abc import Delayed, NativeDelay, unusable
from delaystore.transports.rabbitmq.publication import Publication
from delaystore.transports.rabbitmq.topology import Layout, Queue
from delaystore.transports.rabbitmq.topology.cascade import MILLISECOND

_EXTRA_LIFE: Final = 60_000
"""Milliseconds that a queue outlives its message, in case the broker is late."""
_LONGEST: Final = 2**32 - 1 - _EXTRA_LIFE
"""Milliseconds; RabbitMQ refuses a queue's life beyond 2^32-1."""


class EphemeralQueueDelay(NativeDelay):
    """Any delay up to 49 days, in milliseconds. For few messages: each costs the broker a queue.

    Queues are classic and durable: RabbitMQ 4 has no transient ones. `prefix`: of their names.
    """

    def __init__(self, prefix: str = "delaystore.ephemeral") -> None:
        super().__init__()
        self._prefix = prefix

    @property
    @override
    def maximum(self) -> timedelta:
        return _LONGEST * MILLISECOND

    @override
    def address(self, delayed: Delayed) -> Publication:
        return Publication(delayed.message, Address(DEFAULT_EXCHANGE, self._name(delayed)))

    @override
    def prepare(self, connections: BlockingConnections, batch: Sequence[Delayed]) -> Mapping[str, str]:
        reasons = unusable(connections, self._known, {delayed.queue for delayed in batch})
        own = tuple(self._queue(delayed) for delayed in batch if delayed.queue not in reasons)
        declare(connections, Layout(queues=own))
        return reasons

    def _name(self, delayed: Delayed) -> str:
        return f"{self._prefix}.{delayed.token}"

    def _queue(self, delayed: Delayed) -> Queue:
        milliseconds = _milliseconds(delayed)
        arguments = {
            "x-queue-type": "classic",
            "x-message-ttl": milliseconds,
            "x-expires": milliseconds + _EXTRA_LIFE,
            "x-dead-letter-exchange": DEFAULT_EXCHANGE,
            "x-dead-letter-routing-key": delayed.queue,
        }
        return Queue(self._name(delayed), arguments)


def _milliseconds(delayed: Delayed) -> int:
    return -(-delayed.delay // MILLISECOND)
