"""A virtual host with an ingress in it, and the short words of the tests about that."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika

from delaystore.cascades import BrokerClient, Management
from tests.dispatching import wait_until


class Broker:
    """A virtual host by AMQP and by the management API."""

    def __init__(self, url: str, management: str) -> None:
        self.client = BrokerClient(url, management)
        self.url, self.management_url = url, management

    def close(self) -> None:
        self.client.close()

    @property
    def management(self) -> Management:
        assert self.client.management is not None
        return self.client.management

    @contextmanager
    def channel(self) -> Iterator[Any]:
        with self.client.connections.channel() as channel:
            channel.confirm_delivery()
            yield channel

    def exchange(self, name: str, exchange_type: str, **arguments: Any) -> None:
        with self.channel() as channel:
            channel.exchange_declare(name, exchange_type, durable=True, arguments=arguments)

    def queue(self, name: str, *bound_to: str, key: str = "", arguments: dict[str, Any] | None = None) -> None:
        """A quorum queue, bound to these exchanges."""
        with self.channel() as channel:
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
            for exchange in bound_to:
                channel.queue_bind(name, exchange, key, arguments)

    def publish(self, exchange: str, key: str, count: int = 1, **properties: Any) -> None:
        """Mandatory, and confirmed."""
        with self.channel() as channel:
            for number in range(count):
                channel.basic_publish(
                    exchange, key, f"{key} {number}".encode(), pika.BasicProperties(**properties), mandatory=True
                )

    def get(self, queue: str) -> tuple[Any, Any, bytes]:
        """The next message, acknowledged."""
        got: list[tuple[Any, Any, bytes]] = []

        def found() -> bool:
            with self.channel() as channel:
                got.append(channel.basic_get(queue, auto_ack=True))
            return got[-1][0] is not None

        wait_until(found)
        return got[-1]

    def ready(self, queue: str) -> int:
        with self.channel() as channel:
            count: int = channel.queue_declare(queue, passive=True).method.message_count
            return count

    def consumers(self, queue: str) -> int:
        with self.channel() as channel:
            count: int = channel.queue_declare(queue, passive=True).method.consumer_count
            return count
