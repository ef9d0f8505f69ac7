"""Delays by a cascade of queues."""

from collections.abc import Sequence
from datetime import timedelta

from typing_extensions import override

from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import ensure_bound
from delaystore.transports.rabbitmq.native._abc import Handover, NativeDelay
from delaystore.transports.rabbitmq.publication import Publication
from delaystore.transports.rabbitmq.topology import Binding, CascadeTopology, Queue


class CascadeDelay(NativeDelay):
    """Any delay up to the cascade's maximum, in its units, rounded up.

    The cascade is declared and each destination's queue is bound when they are first needed.
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
