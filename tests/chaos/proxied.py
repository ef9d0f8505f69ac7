"""Databases and brokers behind proxies and a pooler, which are killed and paused as well."""

from collections.abc import Sequence
from contextlib import ExitStack

from tests.chaos.brokers import ThreeRabbitMQ
from tests.chaos.databases import FailOver
from tests.chaos.faults import Fault, killing, pausing
from tests.servers import HAProxy, PgBouncer, Proxy
from tests.servers.haproxy import PRIMARY_CHECK, RABBITMQ_CHECK


class ProxiedFailOver(FailOver):
    """Reached by a pooler, a network that fails, and a proxy that leads to the primary."""

    def __init__(self) -> None:
        super().__init__()
        self._between = ExitStack()

    def start(self) -> None:
        super().start()
        stack = self._between
        ports = [node.port for node in self._nodes.nodes]
        self._proxy = stack.enter_context(HAProxy(ports, check=PRIMARY_CHECK, shutdown_sessions=True))
        self._network = stack.enter_context(Proxy(self._proxy.port))
        self._pooler = stack.enter_context(PgBouncer(self._network.url_of(self._database), mode="session"))
        self.url = self._pooler.url_of(self._database)

    def close(self) -> None:
        self._between.close()
        super().close()

    def faults(self) -> Sequence[Fault]:
        return [
            *super().faults(),
            *of_network("database-network", self._network),
            killing("database-proxy", self._proxy, weight=0.5),
            killing("pooler", self._pooler, weight=0.5),
            pausing("pooler", self._pooler),
        ]


class ProxiedRabbitMQ(ThreeRabbitMQ):
    """Reached by a network that fails, and a proxy that leads to each node in turn. Consumers reach the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self._between = ExitStack()

    def start(self) -> None:
        super().start()
        stack = self._between
        ports = [node.port for node in self._cluster.nodes]
        self._proxy = stack.enter_context(HAProxy(ports, check=RABBITMQ_CHECK, shutdown_sessions=True))
        self._network = stack.enter_context(Proxy(self._proxy.port))
        self.url = self._network.url_of(self._vhost)

    def close(self) -> None:
        self._between.close()
        super().close()

    def faults(self) -> Sequence[Fault]:
        return [
            *super().faults(),
            *of_network("rabbitmq-network", self._network),
            killing("rabbitmq-proxy", self._proxy, weight=0.5),
            pausing("rabbitmq-proxy", self._proxy),
        ]


def of_network(target: str, network: Proxy) -> Sequence[Fault]:
    """What networks do to connections."""
    return [
        Fault("cut", target, network.cut, network.pass_on, 0, 0),
        Fault("hold", target, network.hold, network.pass_on, 0.5, 15),
        Fault("be a black hole for", target, network.swallow, network.pass_on, 0.5, 30),
    ]
