"""An exchange with its ingress, and a queue behind it, on a real broker."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import pika

from delaystore import DelayedDelivery, DelayedDeliverySettings, RabbitMQTransport, SqlDelayedMessageStore
from delaystore.ingress.ingress import Ingress
from delaystore.ingress.reading.destinations import parse_destination
from delaystore.ingress.reading.forms.naming import parse_forms
from delaystore.ingress.reading.reader import ReadingRules
from delaystore.ingress.settings import IngressSettings
from tests.faults.patience import wait_until

EXCHANGE: Final = "orders"
QUEUE: Final = "orders.ingress"
EXPIRED: Final = "orders.ingress.expired"
REJECTED: Final = "orders.ingress.rejected"
OUT: Final = "orders.out"
DESTINATION: Final = "invoices"
ENDPOINT: Final = "sales"
QUORUM: Final = {"x-queue-type": "quorum"}
LONG: Final = 3_600_000
"""A delay in milliseconds that no test waits for."""


class Received(NamedTuple):
    """A message at the end of its way."""

    body: bytes
    properties: Any
    routing_key: str
    at: float


class Ground:
    """The topology of one exchange, declared with plain pika or there already, and a connection to use it."""

    def __init__(self, url: str, *, declare: bool = True) -> None:
        self.url = url
        self._declares = declare

    def __enter__(self) -> Self:
        self.connection = pika.BlockingConnection(pika.URLParameters(self.url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        if self._declares:
            self._declare(self.channel)
        return self

    def _declare(self, declare: Any) -> None:
        declare.exchange_declare(EXCHANGE, "topic", durable=True)
        declare.exchange_declare(EXPIRED, "fanout", durable=True)
        declare.exchange_declare(OUT, "topic", durable=True)
        limits = {
            "x-dead-letter-exchange": EXPIRED,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
        declare.queue_declare(QUEUE, durable=True, arguments=QUORUM | limits)
        declare.queue_bind(QUEUE, EXCHANGE, "#")
        declare.queue_declare(EXPIRED, durable=True, arguments=QUORUM)
        declare.queue_bind(EXPIRED, EXPIRED, "")
        declare.queue_declare(DESTINATION, durable=True, arguments=QUORUM)
        declare.queue_bind(DESTINATION, OUT, "#")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.connection.is_open:
            self.connection.close()

    def publish(
        self, body: bytes, *, delay: object = None, key: str = "invoice.new", headers: Any = None, **properties: Any
    ) -> None:
        """Publish with confirms, mandatory."""
        sent = dict(headers or {})
        if delay is not None:
            sent["x-delay"] = delay
        self.channel.basic_publish(
            EXCHANGE, key, body, pika.BasicProperties(headers=sent, delivery_mode=2, **properties), mandatory=True
        )

    def depth(self, queue: str) -> int:
        """How many messages are ready there."""
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def consumers(self, queue: str) -> int:
        """How many take from it."""
        return int(self.channel.queue_declare(queue, passive=True).method.consumer_count)

    def receive(self, queue: str = DESTINATION, count: int = 1, patience: float = 30) -> list[Received]:
        """So many messages of the queue, acknowledged; fewer when patience is over."""
        found: list[Received] = []
        deadline = time.monotonic() + patience
        while len(found) < count and time.monotonic() < deadline:
            method, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if method is None:
                self.connection.sleep(0.02)
            else:
                found.append(Received(body, properties, method.routing_key, time.time()))
        return found

    def drain(self, queue: str) -> list[bytes]:
        """The bodies of all that is ready there, acknowledged."""
        bodies = []
        while True:
            method, _, body = self.channel.basic_get(queue, auto_ack=True)
            if method is None:
                return bodies
            bodies.append(body)


def queue_bound(url: str, queue: str, exchange: str, key: str) -> None:
    """Declare a queue, and bind it."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare(queue, durable=True)
        connection.channel().queue_bind(queue, exchange, key)


def rules(forms: Sequence[str] = ()) -> ReadingRules:
    """As for an exchange that stands in for the plugin's. `forms`: names of delay forms; none: the usual ones."""
    transport = RabbitMQTransport("amqp://localhost")  # it is asked what it carries, which takes no connection
    destination = parse_destination(f"/exchanges/{OUT}", "--destination")
    chosen = parse_forms(forms, "--delay-headers") if forms else ()
    return ReadingRules(ingress_queue=QUEUE, destination=destination, forms=chosen, check=transport.check)


@contextmanager
def endpoint(store_url: str, broker_url: str | None = None, **settings: Any) -> Iterator[DelayedDelivery]:
    """The endpoint that keeps what arrives; with a broker's URL it dispatches as well."""
    transport = None if broker_url is None else RabbitMQTransport(broker_url)
    store = SqlDelayedMessageStore(store_url)
    delivery = DelayedDelivery(ENDPOINT, store, transport, DelayedDeliverySettings(**settings))
    try:
        if transport is not None:
            delivery.start()
        yield delivery
    finally:
        delivery.close()


@contextmanager
def running(delivery: DelayedDelivery, url: str, *, forms: Sequence[str] = (), **settings: Any) -> Iterator[Ingress]:
    """An ingress at work; at the end it has stopped."""
    ingress = Ingress(delivery, url, rules(forms), IngressSettings(queue=QUEUE, **settings))
    ingress.start()
    try:
        yield ingress
    finally:
        assert ingress.stop(30)


def settled(ingress: Ingress) -> int:
    """How many messages have a result."""
    health = ingress.health()
    counts = health.stored, health.duplicate, health.discarded, health.repeated, health.passthrough
    return sum((*counts, health.rejected, health.applied))


def await_settled(ingress: Ingress, count: int, patience: float = 60) -> None:
    """Wait until so many messages have a result."""
    wait_until(lambda: settled(ingress) >= count, f"{count} messages have a result: {ingress.health()}", patience)


def bodies(received: Sequence[Received]) -> list[bytes]:
    """Their bodies."""
    return [one.body for one in received]
