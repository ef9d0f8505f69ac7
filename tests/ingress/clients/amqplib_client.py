"""Node's amqplib."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from tests.ingress.clients import node
from tests.ingress.clients.abc import Arrived, Client, Sent


class AmqplibClient(Client):
    """In processes of its own."""

    @override
    def publish(self, url: str, exchange: str, messages: Sequence[Sent]) -> None:
        node.run("publish.js", url=url, exchange=exchange, messages=[one.as_dict() for one in messages])

    @override
    def consume(self, url: str, queue: str, count: int) -> list[Arrived]:
        return [Arrived(**one) for one in node.run("consume.js", url=url, queue=queue, count=count)]

    @override
    def work(self, url: str, exchange: str, queue: str, delay: int) -> list[Any]:
        return node.run("work.js", url=url, exchange=exchange, queue=queue, delay=delay)
