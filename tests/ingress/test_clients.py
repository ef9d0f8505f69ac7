"""Programs that were written for the delayed-message plugin go on, in several languages, with each type of exchange."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pika
import pytest

from tests.ingress.clients.abc import Arrived, Client, Sent
from tests.ingress.clients.amqplib_client import AmqplibClient
from tests.ingress.clients.kombu_client import KombuClient
from tests.ingress.clients.pika_client import PikaClient
from tests.ingress.service import CLOCK, Service
from tests.servers import PostgreSQLDatabases, RabbitMQVhosts

CLIENTS: Final = {"pika": PikaClient(), "kombu": KombuClient(), "amqplib": AmqplibClient()}
PROPERTIES: Final = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "order-7",
    "reply_to": "answers",
    "timestamp": 1_700_000_000,
    "type": "invoice",
    "app_id": "shop",
}
"""All that a program may set, but for those that make the broker do something."""


@dataclass(frozen=True)
class Routing:
    """An exchange of a type: a binding, the keys and headers that it takes, and others."""

    key: str
    taken: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None
    refused_headers: Mapping[str, Any] = field(default_factory=dict)


TYPES: Final = {
    "direct": Routing("paid", ("paid", "paid", "paid"), refused="other"),
    "topic": Routing("order.*.paid", ("order.7.paid", "order.8.paid", "order.9.paid"), refused="order.7.sent"),
    "fanout": Routing("", ("", "a", "b.c")),
    "headers": Routing(
        "",
        ("", "x", "y"),
        arguments={"x-match": "all", "kind": "invoice"},
        headers={"kind": "invoice"},
        refused="",
        refused_headers={"kind": "order"},
    ),
}


@pytest.fixture(scope="module", params=TYPES)
def service(
    request: pytest.FixtureRequest, rabbitmq: RabbitMQVhosts, postgresql: PostgreSQLDatabases
) -> Iterator[Service]:
    """An exchange of each type, with delaystore behind it."""
    broker, store = rabbitmq.create_vhost(), postgresql.create_database()
    service = Service(store, broker, rabbitmq.management_url or "", f"shop-{request.param}")
    with service.create(request.param):
        yield service
    rabbitmq.delete_vhost(broker)
    postgresql.drop_database(store)


@pytest.fixture
def routing(service: Service) -> Routing:
    return TYPES[service.exchange.removeprefix("shop-")]


@pytest.fixture
def channel(service: Service) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(service.url)) as connection:
        yield connection.channel()


@pytest.fixture
def queue(service: Service, routing: Routing, channel: Any) -> Iterator[str]:
    """A queue as it was bound to the plugin's exchange, now to OUT."""
    name = "invoices"
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, service.out, routing.key, dict(routing.arguments))
    yield name
    channel.queue_delete(name)


@pytest.mark.long_runs("fanout", "headers")
@pytest.mark.parametrize("name", CLIENTS)
def test_messages_arrive_in_their_time_and_as_the_plugin_delivers_them(
    service: Service, routing: Routing, channel: Any, queue: str, name: str
) -> None:
    client: Client = CLIENTS[name]
    ids: list[dict[str, Any]] = [{"message_id": f"{name}-1"}, {"message_id": f"{name}-2"}, {}]
    messages = [
        Sent(
            f"{delay}",
            key,
            {"x-delay": delay, "attempt": 1, "shop": "zürich", **routing.headers},
            PROPERTIES | message_id,
        )
        for delay, key, message_id in zip((1500, 700, 0), routing.taken, ids, strict=True)
    ]
    if routing.refused is not None:
        messages.append(Sent("for nobody", routing.refused, {"x-delay": 300, **routing.refused_headers}))
    before = time.time()
    client.publish(service.url, service.exchange, messages)
    found = client.consume(service.url, queue, 3)
    assert [one.body for one in found] == ["0", "700", "1500"]
    for one in found:
        (sent,) = [message for message in messages if message.body == one.body]
        _assert_as_from_the_plugin(one, sent, service.out)
        assert one.at - before >= int(one.body) / 1000 - CLOCK
    if routing.refused is not None:
        assert _next(channel, "error") == b"for nobody", "the plugin drops what no binding takes when it is due"


@pytest.mark.long_runs("fanout", "headers")
@pytest.mark.parametrize("name", CLIENTS)
def test_a_worker_that_delays_anew_what_failed_goes_on_unchanged(
    service: Service, routing: Routing, queue: str, name: str
) -> None:
    client: Client = CLIENTS[name]
    client.publish(service.url, service.exchange, [Sent("job", routing.taken[0], {"tries": 0, **routing.headers})])
    before = time.monotonic()
    assert client.work(service.url, service.exchange, queue, 400) == [-400, -400]
    assert time.monotonic() - before >= 0.8 - 2 * CLOCK


def _assert_as_from_the_plugin(arrived: Arrived, sent: Sent, out: str) -> None:
    delay = sent.headers["x-delay"]
    assert arrived.headers == {**sent.headers, "x-delay": -delay}
    assert (arrived.key, arrived.exchange, arrived.redelivered) == (sent.key, out, False)
    given = {name: _plain(value) for name, value in arrived.properties.items()}
    if "message_id" not in sent.properties:
        assert given.pop("message_id"), "what has no id is given one"
    assert given == sent.properties


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    return value


def _next(channel: Any, queue: str) -> bytes:
    for _ in range(300):
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            return bytes(body)
        channel.connection.sleep(0.1)
    raise AssertionError(f"nothing comes to {queue}")
