"""What tests of control queues share: a queue being read in a thread, and somebody who asks."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pika

from delaystore import DelayedDelivery, RabbitMQTransport, SqlDelayedMessageStore
from delaystore.ingress.control import ControlQueue
from tests.dispatching import PATIENCE, wait_until

ENDPOINT = "sales"
QUEUE = "sales.control"
DIRECT = "amq.rabbitmq.reply-to"


@contextmanager
def opened_delivery(database_url: str) -> Iterator[DelayedDelivery]:
    with DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(database_url)) as delivery:
        yield delivery


@contextmanager
def running(delivery: DelayedDelivery, rabbitmq_url: str, **options: Any) -> Iterator[ControlQueue]:
    """A control queue that is read, and being read when the block begins."""
    transport = RabbitMQTransport(rabbitmq_url)
    control = ControlQueue(delivery.operations, transport, schedules=delivery.schedules, **options)
    with reading(control):
        yield control
    transport.close()


@contextmanager
def reading(control: ControlQueue) -> Iterator[None]:
    thread = threading.Thread(target=control.run, name="delaystore-control-test", daemon=True)
    thread.start()
    try:
        wait_until(lambda: control.health().running)
        yield
    finally:
        assert control.stop(PATIENCE)
        thread.join(PATIENCE)


class Asker:
    """Asks on a connection of its own, as any AMQP client can, by RabbitMQ's direct reply-to."""

    def __init__(self, url: str, exchange: str = "", routing_key: str = QUEUE) -> None:
        self._where = exchange, routing_key
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self._connection.channel()
        self.answers: dict[str, Any] = {}
        self.properties: dict[str, Any] = {}
        self.channel.basic_consume(DIRECT, self._answered, auto_ack=True)

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection.is_open:
            self._connection.close()

    def send(self, request: Any, reply_to: str | None = DIRECT, **properties: Any) -> str:
        """Publish a request, bytes as they are; returns its correlation_id."""
        correlation = uuid4().hex
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        given = pika.BasicProperties(reply_to=reply_to, correlation_id=correlation, **properties)
        self.channel.basic_publish(*self._where, body, given)
        return correlation

    def wait(self, correlation: str) -> Any:
        """The answer to a request that was sent."""
        wait_until(lambda: self._heard(correlation), "an answer")
        return self.answers.pop(correlation)

    def ask(self, request: Any, **properties: Any) -> Any:
        """The answer to a request; what it is checked for: version 1."""
        answer = self.wait(self.send(request, **properties))
        assert answer.pop("version") == 1
        return answer

    def bodies(self, queue: str) -> list[tuple[Any, bytes]]:
        """What is in a queue, with its properties, taken out of it."""
        found = []
        while True:
            method, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((properties, body))

    def listen(self) -> dict[str, Any]:
        """All answers that are not taken yet, after a moment in which others may come."""
        self._connection.process_data_events(time_limit=0.05)
        return self.answers

    def _heard(self, correlation: str) -> bool:
        return correlation in self.answers or correlation in self.listen()

    def _answered(self, _channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        self.answers[properties.correlation_id] = json.loads(body)
        self.properties[properties.correlation_id] = properties
