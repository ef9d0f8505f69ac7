"""An exchange of the delayed-message plugin, with what waits in it: the plugin's own where the broker has it.

No package of RabbitMQ has the plugin. `DELAYSTORE_TEST_RABBITMQ_URL` may name a broker that does.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import pika
from typing_extensions import override

from delaystore.transports.rabbitmq.topology.layout import DestinationKind
from tests.integration.ingress_brokers import Broker
from tests.integration.plugin_stand_in import INNER_TYPE, PLUGIN_TYPE, plugin_management
from tests.servers import RabbitMQVhosts

WAITS = 30_000
"""Milliseconds: longer than all commands take that come before it is due."""


class PluginExchange(ABC):
    """The exchange `orders` of the plugin, with that x-delayed-type, in the broker's virtual host."""

    def __init__(self, broker: Broker, inner_type: str) -> None:
        self.broker = broker
        self.inner_type = inner_type
        self.virtual_host = unquote(urlsplit(broker.url).path[1:]) or "/"

    @abstractmethod
    def declare(self) -> None:
        """Declare it."""

    @abstractmethod
    def publish(self, key: str) -> None:
        """Publish a message to it that is due in `WAITS`."""

    @abstractmethod
    def deliver(self) -> None:
        """Have that message delivered, as the plugin does when it is due, or wait for it."""

    def bound(self) -> set[tuple[str, str]]:
        """The queues that are bound to it, and by which keys."""
        return {
            (one.destination, one.routing_key)
            for one in self.broker.management.bindings("orders")
            if one.kind is DestinationKind.QUEUE
        }


class RealExchange(PluginExchange):
    """The plugin's own."""

    @override
    def declare(self) -> None:
        self.broker.exchange("orders", PLUGIN_TYPE, **{INNER_TYPE: self.inner_type})

    @override
    def publish(self, key: str) -> None:
        with self.broker.channel() as channel:
            channel.basic_publish("orders", key, b"waited", _properties(WAITS))

    @override
    def deliver(self) -> None:
        """Whoever looks for the message waits for it."""


class StandIn(PluginExchange):
    """An exchange of the inner type that the management API shows as the plugin's. What waits in it waits here."""

    def __init__(self, broker: Broker, inner_type: str) -> None:
        super().__init__(broker, inner_type)
        self._waiting: list[str] = []

    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    @override
    def declare(self) -> None:
        self.broker.exchange("orders", self.inner_type, **{INNER_TYPE: self.inner_type})

    @override
    def publish(self, key: str) -> None:
        self._waiting.append(key)

    @override
    def deliver(self) -> None:
        """To the exchange that has the name by now, with x-delay negated."""
        with self.broker.channel() as channel:
            while self._waiting:
                channel.basic_publish("orders", self._waiting.pop(), b"waited", _properties(-WAITS))


@contextmanager
def plugin_exchange(rabbitmq: RabbitMQVhosts, url: str, inner_type: str) -> Iterator[PluginExchange]:
    """Such an exchange, declared in the virtual host of `url`."""
    management = rabbitmq.management_url or ""
    if _has_plugin(rabbitmq):
        with _opened(RealExchange(Broker(url, management), inner_type)) as exchange:
            yield exchange
    else:
        held: list[StandIn] = []
        with plugin_management(management, lambda: held[0].waiting() if held else 0) as shown:
            held.append(StandIn(Broker(url, shown), inner_type))
            with _opened(held[0]) as exchange:
                yield exchange


@contextmanager
def _opened(exchange: PluginExchange) -> Iterator[PluginExchange]:
    exchange.declare()
    yield exchange
    exchange.broker.close()


def _has_plugin(rabbitmq: RabbitMQVhosts) -> bool:
    overview: Any = rabbitmq.request("GET", "/api/overview")
    return any(one["name"] == PLUGIN_TYPE for one in overview["exchange_types"])


def _properties(delay: int) -> pika.BasicProperties:
    return pika.BasicProperties(headers={"x-delay": delay}, delivery_mode=2)
