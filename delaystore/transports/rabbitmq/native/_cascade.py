"""Delays by a cascade of queues."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from typing_extensions import override

from delaystore.errors import TransportSetupError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import ensure_bound, ensure_declared
from delaystore.transports.rabbitmq.native._abc import Delayed, NativeDelay
from delaystore.transports.rabbitmq.publication import Publication
from delaystore.transports.rabbitmq.topology import CascadeTopology


class CascadeDelay(NativeDelay):
    """Any delay up to the cascade's maximum, in its units, rounded up.

    The cascade is declared and each destination's queue is bound when they are first needed.
    """

    def __init__(self, topology: CascadeTopology) -> None:
        super().__init__()
        self._topology = topology

    @property
    @override
    def maximum(self) -> timedelta:
        return self._topology.maximum

    @override
    def address(self, delayed: Delayed) -> Publication:
        return Publication(delayed.message, self._topology.route(delayed.delay, delayed.queue))

    @override
    def prepare(self, connections: BlockingConnections, batch: Sequence[Delayed]) -> Mapping[str, str]:
        known, delivery = self._known, f"exchange {self._topology.delivery}"
        if known.lacks([delivery]):
            ensure_declared(connections, self._topology)
            known.add(delivery)
        reasons = {}
        for queue in known.lacks({delayed.queue for delayed in batch}):
            try:
                if ensure_bound(connections, self._topology, queue):
                    known.add(queue)
                else:
                    reasons[queue] = f"no queue {queue!r}"
            except TransportSetupError as error:
                reasons[queue] = str(error)
        return reasons
