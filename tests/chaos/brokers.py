"""Brokers under chaos."""

from collections.abc import Sequence
from functools import partial

from tests.chaos.faults import Fault, killing, pausing
from tests.chaos.topology import Part
from tests.servers import RabbitMQ, RabbitMQCluster

NET_TICKTIME = 10  # seconds after which nodes take a silent one to be down


def alarming(target: str, node: RabbitMQ) -> Fault:
    """It believes itself to be out of memory, and reads from no publisher."""
    return Fault("raise an alarm in", target, lambda: node.alarm("memory"), node.clear_alarms, 1, 15, weight=0.5)


class OneRabbitMQ(Part):
    """One node. `left_running`: it was started by somebody else, who ends it."""

    def __init__(self, server: RabbitMQ, *, left_running: bool = False) -> None:
        self._server = server
        self._left_running = left_running

    def start(self) -> None:
        self._server.start()
        self.url = self._server.create_vhost()

    def close(self) -> None:
        if not self._left_running:
            self._server.close()

    def faults(self) -> Sequence[Fault]:
        return [
            killing("rabbitmq", self._server),
            pausing("rabbitmq", self._server, longest=20),
            alarming("rabbitmq", self._server),
        ]

    def queues_declared(self) -> None:
        self._server.sync_queues()


class ThreeRabbitMQ(Part):
    """A cluster of three nodes, of which a minority pauses itself."""

    def __init__(self) -> None:
        self._cluster = RabbitMQCluster(partition_handling="pause_minority", net_ticktime=NET_TICKTIME)

    @property
    def consumer_urls(self) -> Sequence[str]:
        return self._cluster.urls(self._vhost)

    def start(self) -> None:
        self._cluster.start()
        self._vhost = self._cluster.create_vhost()
        self.url = self._cluster.url_of_all(self._vhost)

    def close(self) -> None:
        self._cluster.close()

    def faults(self) -> Sequence[Fault]:
        nodes = self._cluster.nodes
        restore = self._cluster.restore
        return [
            *(Fault("kill", f"rabbitmq-{n}", node.kill, restore, longest=8) for n, node in enumerate(nodes)),
            *(Fault("pause", f"rabbitmq-{n}", node.pause, restore, 0.5, 30) for n, node in enumerate(nodes)),
            *(
                Fault("part", f"rabbitmq-{n}", partial(self._cluster.part, n), restore, 5, 40)
                for n in range(len(nodes))
            ),
            *(alarming(f"rabbitmq-{n}", node) for n, node in enumerate(nodes)),
            Fault("take the majority of", "rabbitmq", self._kill_two, restore, 1, 30),
            Fault("kill all of", "rabbitmq", self._cluster.kill, restore, 0, 5, weight=0.5),
            Fault("restart each of", "rabbitmq", self._roll, restore, 0, 0, weight=0.5),
        ]

    def queues_declared(self) -> None:
        self._cluster.sync_queues()

    def _kill_two(self) -> None:
        for node in self._cluster.nodes[1:]:
            node.kill()

    def _roll(self) -> None:
        for node in self._cluster.nodes:
            node.stop()
            node.start()
