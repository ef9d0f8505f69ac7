"""The cases by which the delayed-message plugin is tested itself (its test/plugin_SUITE.erl), against an ingress.

Each has the plugin's name for it, and is written anew. Delays are longer, as delaystore is reached over a network. What
differs is said in docs/reference/ingress-messages.md.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pika
import pytest
import sqlalchemy
from pika import exceptions

from tests.faults.patience import wait_until
from tests.ingress.service import CLOCK, Service
from tests.servers import PostgreSQLDatabases, RabbitMQ

DIRECT, TOPIC, FANOUT, SECOND = "x-direct", "x-topic", "x-fanout", "x-second"
ERROR = "error"
DELAYS = (2500, 500, 1500, 1000, 500, 2000)
PATIENCE = 60.0


class Channel:
    """A channel to the broker, whose queues are bound to what is due."""

    def __init__(self, url: str, queue: str) -> None:
        self.queue = queue
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self.amqp = self._connection.channel()
        self.amqp.confirm_delivery()

    def close(self) -> None:
        with suppress(exceptions.AMQPError):  # the broker was restarted
            self._connection.close()

    def bind(self, exchange: str, *keys: str) -> None:
        """The queue, by these keys."""
        self.amqp.queue_declare(self.queue, durable=True)
        for key in keys:
            self.amqp.queue_bind(self.queue, exchange, key)

    def publish(self, exchange: str, delays: Sequence[int], key: str = "", *, text: bool = False) -> None:
        """A message for each delay."""
        for delay in delays:
            properties = pika.BasicProperties(headers={"x-delay": str(delay) if text else delay}, delivery_mode=2)
            self.amqp.basic_publish(exchange, key, str(delay).encode(), properties, mandatory=True)

    def consume(self, queue: str, count: int) -> list[tuple[int, Any]]:
        """So many messages, as the delays they were published with and their headers; fewer if no more come."""
        found: list[tuple[int, Any]] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < deadline:
            method, properties, body = self.amqp.basic_get(queue, auto_ack=True)
            if method is None:
                self._connection.sleep(0.02)
            else:
                found.append((int(body), properties.headers))
        return found

    def delays(self, count: int) -> list[int]:
        """Of so many messages of the queue, each of which says that it was delayed."""
        found = self.consume(self.queue, count)
        assert all(headers["x-delay"] == -delay for delay, headers in found)
        return [delay for delay, _ in found]


@pytest.fixture(scope="module")
def service(private_rabbitmq: RabbitMQ, postgresql: PostgreSQLDatabases) -> Iterator[Service]:
    store, broker = postgresql.create_database(), private_rabbitmq.create_vhost()
    service = Service(store, broker, private_rabbitmq.management_url or "", DIRECT, TOPIC, FANOUT, SECOND)
    with service.create("direct", "topic", "fanout", "direct"):
        yield service
    postgresql.drop_database(store)


@pytest.fixture
def channel(service: Service) -> Iterator[Channel]:
    """With a queue of its own."""
    channel = Channel(service.url, f"q-{uuid4()}")
    yield channel
    channel.close()
    again = Channel(service.url, channel.queue)
    again.amqp.queue_delete(channel.queue)
    again.close()


def waiting(service: Service) -> int:
    """How many messages wait."""
    with service.delivery() as delivery:
        return delivery.count()


@pytest.mark.long
@pytest.mark.parametrize("out_type", ["x-not-valid-type"])
def test_wrong_exchange_argument_type(service: Service, channel: Channel, out_type: str) -> None:
    refused = service.attempt("ingress", "create", "x-fail", "--type", out_type)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert out_type in refused.stderr
    with pytest.raises(exceptions.ChannelClosedByBroker, match="no exchange 'x-fail'"):
        channel.amqp.exchange_declare("x-fail", passive=True)


@pytest.mark.long
def test_exchange_argument_type_not_self(service: Service, channel: Channel) -> None:
    test_wrong_exchange_argument_type(service, channel, "x-delayed-message")


def assert_routed(
    service: Service, channel: Channel, exchange: str, bound: Sequence[str], routed: Sequence[str], refused: str
) -> None:
    """Messages with no delay: each key of `routed` brings one, however many bindings take it."""
    channel.bind(f"{exchange}.out", *bound)
    for key in (*routed, *([refused] if refused else [])):
        channel.publish(exchange, [0], key)
    assert len(channel.consume(channel.queue, len(routed))) == len(routed)
    wait_until(lambda: waiting(service) == 0, "nothing waits any more")
    if refused:
        assert len(channel.consume(ERROR, 1)) == 1, "the plugin drops it"
    assert channel.amqp.queue_declare(channel.queue, passive=True).method.message_count == 0


def test_routing_topic(service: Service, channel: Channel) -> None:
    assert_routed(service, channel, TOPIC, ["a.b.c", "a.*.c", "a.#"], ["a.b.c", "a.z.c", "a.j.k"], "b.b.c")


def test_routing_direct(service: Service, channel: Channel) -> None:
    assert_routed(service, channel, DIRECT, ["mykey"], ["mykey", "mykey"], "noroute")


def test_routing_fanout(service: Service, channel: Channel) -> None:
    assert_routed(service, channel, FANOUT, ["mykey", "", "otherkey"], ["mykey", "noroute", "mykey"], "")


def assert_end_to_end(channel: Channel, delays: Sequence[int]) -> None:
    """From one exchange with an ingress to another: each message is delayed once."""
    channel.bind(f"{SECOND}.out", "")
    channel.amqp.exchange_bind(SECOND, f"{DIRECT}.out", "")
    began = time.monotonic()
    channel.publish(DIRECT, delays)
    assert channel.delays(len(delays)) == sorted(delays)
    assert time.monotonic() - began >= max(delays) / 1000 - CLOCK
    channel.amqp.exchange_unbind(SECOND, f"{DIRECT}.out", "")


def test_e2e_nodelay(channel: Channel) -> None:
    assert_end_to_end(channel, [0])


def test_e2e_delay(channel: Channel) -> None:
    assert_end_to_end(channel, DELAYS)


@pytest.mark.long_runs("e2e_delay")
@pytest.mark.parametrize("delays", [(0,), DELAYS], ids=["e2e_nodelay", "e2e_delay"])
def test_fine_stats(service: Service, private_rabbitmq: RabbitMQ, channel: Channel, delays: Sequence[int]) -> None:
    """The broker counts what is due, once it is."""
    assert_end_to_end(channel, delays)
    vhost = RabbitMQ.vhost_name(service.url)

    def counted() -> int:
        queue = private_rabbitmq.request("GET", f"/api/queues/{vhost}/{channel.queue}")
        assert isinstance(queue, dict)
        return int(queue.get("message_stats", {}).get("publish", 0))

    wait_until(lambda: counted() == len(delays), "all are counted", PATIENCE)


def test_delay_order(channel: Channel) -> None:
    channel.bind(f"{DIRECT}.out", "")
    channel.publish(DIRECT, DELAYS)
    assert channel.delays(len(DELAYS)) == sorted(DELAYS)


@pytest.mark.long
def test_delayed_messages_count(service: Service, private_rabbitmq: RabbitMQ, channel: Channel) -> None:
    delays = [delay + 8_000 for delay in (1000, 400, 600, 400, 600, 800)]
    channel.bind(f"{DIRECT}.out", "")
    channel.publish(DIRECT, delays)
    wait_until(lambda: waiting(service) == len(delays), "all wait")
    vhost = RabbitMQ.vhost_name(service.url)
    policy = f"/api/policies/{vhost}/p-1"
    definition = {"pattern": f"^{DIRECT}$", "apply-to": "exchanges", "definition": {"alternate-exchange": "altex"}}
    private_rabbitmq.request("PUT", policy, definition)
    assert int(service.run("count")) == len(delays), "an operator is told it"
    assert channel.delays(len(delays)) == sorted(delays)
    private_rabbitmq.request("DELETE", policy)


@pytest.mark.long
def test_node_restart_before_delay_expires(service: Service, private_rabbitmq: RabbitMQ, channel: Channel) -> None:
    delays = [delay + 8_000 for delay in (1000, 2000, 600, 400, 3000, 200, 800)]
    channel.bind(f"{DIRECT}.out", "")
    channel.publish(DIRECT, delays)
    wait_until(lambda: waiting(service) == len(delays), "all wait")
    private_rabbitmq.stop()
    private_rabbitmq.start()
    again = Channel(service.url, channel.queue)
    assert again.delays(len(delays)) == sorted(delays)
    again.close()


@pytest.mark.long
def test_node_restart_after_delay_expires(service: Service, private_rabbitmq: RabbitMQ, channel: Channel) -> None:
    delays = [2500, 500, 1500, 1000, 500, 2000]
    channel.bind(f"{DIRECT}.out", "")
    channel.publish(DIRECT, delays)
    wait_until(
        lambda: channel.amqp.queue_declare(channel.queue, passive=True).method.message_count == len(delays),
        "all are due",
    )
    private_rabbitmq.stop()
    private_rabbitmq.start()
    again = Channel(service.url, channel.queue)
    assert again.delays(len(delays)) == sorted(delays)
    again.close()


@pytest.mark.long
def test_no_message_for_index(service: Service, channel: Channel) -> None:
    """One is taken out of the table by hand: the others arrive."""
    channel.bind(f"{DIRECT}.out", "")
    channel.publish(DIRECT, [6_000, 6_500])
    wait_until(lambda: waiting(service) == 2, "both wait")
    engine = sqlalchemy.create_engine(service.environment["DELAYSTORE_STORE"])
    table = sqlalchemy.Table("shop_delayed", sqlalchemy.MetaData(), autoload_with=engine)
    with engine.begin() as connection:
        connection.execute(table.delete().where(table.c.body == b"6000"))
    engine.dispose()
    assert waiting(service) == 1
    assert channel.delays(1) == [6_500]


@pytest.mark.long
def test_string_delay_header(channel: Channel) -> None:
    channel.bind(f"{DIRECT}.out", "")
    channel.publish(DIRECT, DELAYS, text=True)
    assert channel.delays(len(DELAYS)) == sorted(DELAYS)
