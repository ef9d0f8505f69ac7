"""What the figures are measured on: a cluster, a primary with standbys, one dispatcher in a process of its own."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import pika
import psutil

from delaystore.delivery import DelayedDelivery
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import RabbitMQTransport
from tests.chaos.figures.stream import Stream
from tests.faults.arrivals import drain
from tests.faults.backlog import ENDPOINT
from tests.faults.process import DispatcherProcess
from tests.servers import PostgreSQLReplication, RabbitMQCluster

POSTGRESQL_SETTINGS = {"fsync": "off", "full_page_writes": "off"}
QUORUM, CLASSIC, ERROR = "orders", "billing", "error"
LED = QUORUM, "orders-1", "orders-2"
"""Quorum queues, each with its leader on the node of its index."""


class Ground:
    """Running servers with queues declared. Use `ground()`."""

    def __init__(self, brokers: RabbitMQCluster, databases: PostgreSQLReplication) -> None:
        self.brokers = brokers
        self.databases = databases
        self._vhost = brokers.create_vhost()
        for leader, queue in enumerate(LED):
            brokers.declare_quorum_queue(self._vhost, queue, leader)
        brokers.declare_quorum_queue(self._vhost, ERROR)
        brokers.declare_classic_queue(self._vhost, CLASSIC)
        brokers.sync_queues()
        self.store_url = databases.url_of_all(databases.primary.create_database())
        self.delivery = DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(self.store_url))
        self.delivery.setup_infrastructure()

    def dispatcher(self) -> DispatcherProcess:
        """To all nodes; a context manager."""
        return DispatcherProcess(self.store_url, self.brokers.url_of_all(self._vhost), error_queue=ERROR)

    @contextmanager
    def streaming(self, queues: Sequence[str]) -> Iterator[tuple[Stream, DispatcherProcess]]:
        """A steady stream to these queues, under way."""
        with self.dispatcher() as process, Stream(self.delivery, queues, self.consumer_urls) as stream:
            yield stream, process

    @property
    def consumer_urls(self) -> list[str]:
        """Of the nodes, the last one first."""
        return self.brokers.urls(self._vhost)[::-1]

    def node_of(self, process: DispatcherProcess) -> int:
        """The index of the node that a dispatcher is connected to."""
        ports = [node.port for node in self.brokers.nodes]
        connections = psutil.Process(process.pid).net_connections("tcp")
        return next(ports.index(one.raddr.port) for one in connections if one.raddr and one.raddr.port in ports)

    def errors(self) -> int:
        """How many messages are in the error queue."""
        return self.depth(ERROR)

    def depth(self, queue: str) -> int:
        """How many messages are in a queue."""
        with pika.BlockingConnection(pika.URLParameters(self.consumer_urls[0])) as connection:
            count: int = connection.channel().queue_declare(queue, passive=True).method.message_count
            return count

    def taken(self, queue: str) -> Counter[str]:
        """How often each message_id is in a queue; it is empty then."""
        with closing(RabbitMQTransport(self.consumer_urls)) as transport:
            return drain(transport, queue)

    def close(self) -> None:
        """Give back what this process has open."""
        self.delivery.close()


@contextmanager
def ground() -> Iterator[Ground]:
    """Servers of our own, which end with the context."""
    with RabbitMQCluster(partition_handling="pause_minority") as brokers, databases() as replication:
        found = Ground(brokers, replication)
        try:
            yield found
        finally:
            found.close()


@contextmanager
def databases() -> Iterator[PostgreSQLReplication]:
    """A primary with a synchronous standby."""
    with PostgreSQLReplication(1, POSTGRESQL_SETTINGS) as replication:
        yield replication


def wait(seconds: float, condition: Callable[[], bool] = lambda: False) -> None:
    """Sleep so long, or until something holds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
