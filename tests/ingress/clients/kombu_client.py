"""kombu, as Celery has it."""

import time
from collections.abc import Sequence
from typing import Any, Final

from kombu import Connection, Consumer, Message, Producer, Queue
from typing_extensions import override

from tests.ingress.clients.abc import Arrived, Client, Sent

PATIENCE: Final = 60
"""Seconds without a message after which no more are expected."""


class KombuClient(Client):
    """Over py-amqp."""

    @override
    def publish(self, url: str, exchange: str, messages: Sequence[Sent]) -> None:
        with _connection(url) as connection:
            producer = Producer(connection.channel())
            for one in messages:
                producer.publish(
                    one.body,
                    exchange=exchange,
                    routing_key=one.key,
                    headers=dict(one.headers),
                    mandatory=True,
                    **{"content_type": "text/plain", "content_encoding": "utf-8", **one.properties},
                )

    @override
    def consume(self, url: str, queue: str, count: int) -> list[Arrived]:
        found: list[Arrived] = []

        def take(_body: object, message: Message) -> None:
            found.append(_arrived(message))
            message.ack()

        _drain(url, queue, take, lambda: len(found) == count)
        return found

    @override
    def work(self, url: str, exchange: str, queue: str, delay: int) -> list[Any]:
        seen: list[Any] = []

        def take(body: object, message: Message) -> None:
            tries = message.headers.get("tries", 0)
            if tries:
                seen.append(message.headers["x-delay"])
            if tries < 2:
                headers = {**message.headers, "tries": tries + 1, "x-delay": delay}
                again = Producer(message.channel)
                key = message.delivery_info["routing_key"]
                rest = {name: value for name, value in message.properties.items() if name != "application_headers"}
                again.publish(body, exchange=exchange, routing_key=key, headers=headers, **rest)
            message.ack()

        _drain(url, queue, take, lambda: len(seen) == 2)
        return seen


def _connection(url: str) -> Connection:
    return Connection(url.replace("amqp://", "pyamqp://", 1), transport_options={"confirm_publish": True})


def _drain(url: str, queue: str, take: Any, enough: Any) -> None:
    with _connection(url) as connection, Consumer(connection, [Queue(queue, no_declare=True)], callbacks=[take]):
        deadline = time.monotonic() + PATIENCE
        while not enough() and time.monotonic() < deadline:
            try:
                connection.drain_events(timeout=1)
            except TimeoutError:
                continue


def _arrived(message: Message) -> Arrived:
    properties = dict(message.properties)
    headers = properties.pop("application_headers")
    return Arrived(
        message.body if isinstance(message.body, str) else bytes(message.body).decode(),
        message.delivery_info["routing_key"],
        message.delivery_info["exchange"],
        message.delivery_info["redelivered"],
        headers,
        properties | {"content_type": message.content_type, "content_encoding": message.content_encoding},
        time.time(),
    )
