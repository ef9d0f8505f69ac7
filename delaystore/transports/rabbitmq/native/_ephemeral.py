"""Delays by a queue for each message, which the broker deletes afterwards (https://www.rabbitmq.com/docs/ttl)."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from typing_extensions import override

from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.errors import UnsupportedMessageError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.native._abc import Handover, NativeDelay, check_name
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
        own = tuple(self._queue(handover) for handover in batch if handover.queue not in reasons)
        declare(connections, Layout(queues=own))
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
