"""Delays by a cascade of queues."""

import threading
from collections.abc import Sequence
from datetime import timedelta

from delaystore.transports.rabbitmq.administration.declaring import ensure_bound, ensure_declared
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.flight import Publication
from delaystore.transports.rabbitmq.native.abc import Delayed, NativeDelay
from delaystore.transports.rabbitmq.topology import CascadeTopology


class CascadeDelay(NativeDelay):
    """Any delay up to the cascade's maximum, in its units, rounded up.

    The cascade is declared and each destination's queue is bound when they are first needed.
    """

    def __init__(self, topology: CascadeTopology) -> None:
        self._topology = topology
        self._lock = threading.Lock()
        self._declared = False
        self._bound: set[str] = set()

    @property
    def maximum(self) -> timedelta:
        """The cascade's."""
        return self._topology.maximum

    def address(self, delayed: Delayed) -> Publication:
        """By the cascade's route."""
        return Publication(delayed.message, self._topology.route(delayed.delay, delayed.queue))

    def prepare(self, connections: BlockingConnections, batch: Sequence[Delayed]) -> frozenset[str]:
        """Declare the cascade, bind the queues."""
        queues = {delayed.queue for delayed in batch}
        with self._lock:
            if not self._declared:
                ensure_declared(connections, self._topology)
                self._declared = True
            missing = {queue for queue in queues - self._bound if not ensure_bound(connections, self._topology, queue)}
            self._bound |= queues - missing
        return frozenset(missing)

    def forget(self) -> None:
        """Declare and bind anew."""
        self._declared = False
        self._bound = set()
