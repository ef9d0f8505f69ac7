"""pika."""

import time
from collections.abc import Sequence
from typing import Any, Final

import pika
from typing_extensions import override

from tests.ingress.clients.abc import Arrived, Client, Sent

PATIENCE: Final = 60
"""Seconds without a message after which no more are expected."""
NAMES: Final = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
)


class PikaClient(Client):
    """Blocking, with confirms."""

    @override
    def publish(self, url: str, exchange: str, messages: Sequence[Sent]) -> None:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for one in messages:
                properties = pika.BasicProperties(headers=dict(one.headers), **one.properties)
                channel.basic_publish(exchange, one.key, one.body.encode(), properties, mandatory=True)

    @override
    def consume(self, url: str, queue: str, count: int) -> list[Arrived]:
        found: list[Arrived] = []
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            for method, properties, body in channel.consume(queue, inactivity_timeout=PATIENCE):
                if method is None:
                    break
                found.append(_arrived(method, properties, body))
                channel.basic_ack(method.delivery_tag)
                if len(found) == count:
                    break
            channel.cancel()
        return found

    @override
    def work(self, url: str, exchange: str, queue: str, delay: int) -> list[Any]:
        seen: list[Any] = []
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for method, properties, body in channel.consume(queue, inactivity_timeout=PATIENCE):
                if method is None:
                    break
                tries = properties.headers.get("tries", 0)
                if tries:
                    seen.append(properties.headers["x-delay"])
                if tries < 2:
                    properties.headers.update({"tries": tries + 1, "x-delay": delay})
                    channel.basic_publish(exchange, method.routing_key, body, properties, mandatory=True)
                channel.basic_ack(method.delivery_tag)
                if tries == 2:
                    break
            channel.cancel()
        return seen


def _arrived(method: Any, properties: Any, body: bytes) -> Arrived:
    given = {name: getattr(properties, name) for name in NAMES}
    return Arrived(
        body.decode(),
        method.routing_key,
        method.exchange,
        method.redelivered,
        properties.headers,
        {name: value for name, value in given.items() if value is not None},
        time.time(),
    )
