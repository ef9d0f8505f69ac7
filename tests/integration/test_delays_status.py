"""`delaystore cascade status`, on a real broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest

from delaystore.cascades.delivery_limits import limit_policy
from delaystore.cascades.management import Management
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.topology import CascadeTopology, Routing, topology_named
from tests.dispatching import wait_until
from tests.integration.cli import CommandLine
from tests.servers import RabbitMQVhosts

CASCADE = "custom:mine:3"
TOPOLOGY = topology_named(CASCADE)
FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


class Broker:
    """A virtual host, and the short words of these tests."""

    def __init__(self, url: str, management: str) -> None:
        self.url = url
        self.management = Management(management, broker_from_url(url))
        self.connections = BlockingConnections(broker_from_url(url))

    def close(self) -> None:
        self.management.close()
        self.connections.close()

    @property
    def limits_by_default(self) -> bool:
        """Whether it has delivery limits without being told; RabbitMQ 3 has not."""
        return int(self.management.version().partition(".")[0]) >= 4

    def create(self, topology: CascadeTopology = TOPOLOGY) -> None:
        if self.limits_by_default and (policy := limit_policy(topology)) is not None:
            self.management.set_policy(policy)
        declare(self.connections, topology.layout().parts)

    def add_queue(self, name: str, arguments: dict[str, Any] | None = None, *, bound: bool = True) -> None:
        with self.channel() as channel:
            channel.queue_declare(name, durable=True, arguments=arguments)
        if bound:
            declare(self.connections, TOPOLOGY.destination_bindings(name))

    def add_exchange(self, name: str) -> None:
        with self.channel() as channel:
            channel.exchange_declare(name, "fanout", durable=True)

    def bind_exchange(self, name: str) -> None:
        declare(self.connections, TOPOLOGY.destination_bindings(name, Routing.CONVENTIONAL))

    def publish(self, delay: float, address: str, count: int = 1) -> None:
        exchange, key = TOPOLOGY.route(delay, address)
        self.publish_to(exchange, key, count)

    def publish_to(self, exchange: str, key: str, count: int = 1) -> None:
        with self.channel() as channel:
            channel.confirm_delivery()
            for number in range(count):
                channel.basic_publish(exchange, key, str(number).encode(), pika.BasicProperties(delivery_mode=2))

    def ready(self, queue: str) -> int:
        with self.channel() as channel:
            count: int = channel.queue_declare(queue, passive=True).method.message_count
            return count

    @contextmanager
    def channel(self) -> Iterator[Any]:
        with self.connections.channel() as channel:
            yield channel


@pytest.fixture
def broker(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[Broker]:
    opened = Broker(rabbitmq_url, rabbitmq.management_url or "")
    yield opened
    opened.close()


@pytest.fixture
def environment(broker: Broker, rabbitmq: RabbitMQVhosts) -> dict[str, str]:
    return {
        "DELAYSTORE_BROKER": broker.url,
        "DELAYSTORE_MANAGEMENT": rabbitmq.management_url or "",
        "DELAYSTORE_CASCADE": CASCADE,
    }


def status(run: CommandLine, *arguments: str, code: int) -> Any:
    result = run("cascade", "status", "--json", *arguments)
    assert result.code == code, result
    assert result.document["good"] == (code == 0)
    return result.document


def undelivered(document: Any) -> dict[str | None, tuple[int, str]]:
    (queue,) = document["undeliverable"]
    return {one["address"]: (one["messages"], one["reason"]) for one in queue["undelivered"]}


def test_a_cascade_at_rest_is_good(run: CommandLine, broker: Broker) -> None:
    broker.create()
    document = status(run, code=0)
    assert [(level["number"], level["queue"], level["ttl"]) for level in document["levels"]] == [
        (2, "mine.delay-level-02", 4000),
        (1, "mine.delay-level-01", 2000),
        (0, "mine.delay-level-00", 1000),
    ]
    assert document["blocked"] == []
    told = run("cascade", "status")
    assert told.code == 0
    assert " 4s " in told.out
    assert told.out.splitlines()[-1].endswith("good")


@pytest.mark.long
def test_what_is_stuck_behind_a_destination_is_told_with_the_destination(run: CommandLine, broker: Broker) -> None:
    broker.create()
    broker.add_queue("full", FULL)
    broker.add_queue("good")
    broker.add_exchange("dead end")
    broker.bind_exchange("dead end")
    broker.publish(1, "full", 60)
    broker.publish(2, "dead end", 40)
    broker.publish(4, "good", 5)
    wait_until(lambda: broker.ready("good") == 5)  # what jams the other levels does not block its own

    def counted() -> bool:
        queues = broker.management.queues()
        dead_lettering = [queues[f"mine.delay-level-0{level}"].dead_lettering for level in range(3)]
        return bool(dead_lettering[0] and dead_lettering[1] and dead_lettering[2] == 0 and queues["full"].ready)

    wait_until(counted)
    document = status(run, "--observe", "6s", code=1)
    levels = {level["number"]: (bool(level["held"]), level["stuck"]) for level in document["levels"]}
    assert levels == {2: (False, False), 1: (True, True), 0: (True, True)}
    assert broker.ready("mine.delay-level-00") == 0, "what AMQP can tell of it"
    assert broker.ready("mine.undeliverable") == 0, "no alternate exchange catches what goes to a dead end"
    queue, exchange = document["blocked"]
    assert (queue["kind"], queue["name"]) == ("queue", "full")
    assert "max-length 1" in queue["why"]
    assert exchange == {"kind": "exchange", "name": "dead end", "why": "leads to no queue"}
    told = run("cascade", "status", "--observe", "0")
    assert told.code == 1
    assert "blocked: queue 'full' is full" in told.out
    assert "not known: whether dead-lettering messages leave their levels" in told.out


def test_each_undeliverable_message_is_told_with_its_reason(run: CommandLine, broker: Broker) -> None:
    broker.create()
    broker.add_queue("unbound", bound=False)
    broker.add_exchange("dead end")
    broker.add_exchange("unbound exchange")
    broker.publish(0, "nowhere", 2)
    broker.publish(1, "nowhere")
    broker.publish(0, "a.b")
    for address in ("unbound", "unbound exchange", "dead end"):
        broker.publish(0, address)
    broker.publish_to(TOPOLOGY.delivery, "no key of ours")
    broker.add_queue("late", bound=False)
    broker.publish(0, "late")
    broker.add_queue("late")
    wait_until(lambda: broker.ready("mine.undeliverable") == 9)
    broker.bind_exchange("dead end")
    reasons = undelivered(status(run, code=1))
    assert reasons.pop("nowhere") == (3, "no queue or exchange has this name")
    assert reasons.pop("a.b") == (1, "no queue or exchange has this name")
    assert reasons.pop("unbound")[1] == ("the queue is not bound; run delaystore cascade bind unbound --routing direct")
    assert reasons.pop("unbound exchange")[1].startswith("the exchange is not bound")
    assert reasons.pop("dead end")[1] == "exchange 'dead end' is bound, and leads to no queue"
    assert reasons.pop("late")[1].startswith("bound since: queue 'late' would get it now")
    assert reasons.pop(None)[1] == "its routing key is none of this cascade"
    assert reasons == {}
    wait_until(lambda: broker.ready("mine.undeliverable") == 9)  # what was read is put back, a moment later
    told = run("cascade", "status", "--sample", "4").out
    assert "undeliverable: 9 messages in queue 'mine.undeliverable', of which 4 were read" in told


def test_without_a_management_api_it_says_what_cannot_be_known(
    run: CommandLine, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DELAYSTORE_MANAGEMENT")
    broker.create()
    broker.publish(0, "nowhere")
    broker.publish(4, "nowhere", 3)
    wait_until(lambda: broker.ready("mine.undeliverable") == 1)
    document = status(run, code=1)
    first = document["levels"][0]
    assert (first["ready"], first["messages"], first["held"]) == (3, None, None)
    if broker.limits_by_default:
        assert any("unless a policy lifts that" in sentence for sentence in document["unknown"])
    else:
        assert undelivered(document) == {"nowhere": (1, "no queue or exchange has this name")}
    assert any("dead-lettering" in sentence for sentence in document["unknown"])
    assert (
        "not known: how many messages of the levels are unacknowledged or dead-lettering"
        in run("cascade", "status").out
    )


def test_messages_that_reading_would_wear_out_are_not_read(run: CommandLine, broker: Broker) -> None:
    with broker.channel() as channel:
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": 5}
        channel.queue_declare("worn", durable=True, arguments=arguments)
    broker.create()
    with broker.channel() as channel:
        channel.queue_bind("worn", "mine.undeliverable", "")
        channel.queue_unbind("mine.undeliverable", "mine.undeliverable", "")
    broker.publish(0, "nowhere")
    for _ in range(2):
        document = status(run, code=1)
        (queue,) = document["undeliverable"]
        assert (queue["name"], queue["sampled"]) == ("worn", 0)
        assert any("drops a message after 5" in sentence for sentence in document["unknown"])
    with broker.channel() as channel:
        assert not (channel.basic_get("worn")[1].headers or {}).get("x-delivery-count")


@pytest.mark.long
def test_a_user_who_may_not_read_is_told_what_the_management_api_knows(
    run: CommandLine, broker: Broker, rabbitmq: RabbitMQVhosts
) -> None:
    broker.create()
    broker.publish(0, "nowhere")
    wait_until(lambda: broker.management.queues()["mine.undeliverable"].messages == 1)
    with rabbitmq.user(broker.url, tags="management") as url:
        document = status(run, "--broker", url, code=1)
    (queue,) = document["undeliverable"]
    assert (queue["messages"], queue["sampled"]) == (1, 0)
    assert any("grant this user read on 'mine.undeliverable'" in sentence for sentence in document["unknown"])


def test_a_shared_cascade_is_asked_for_what_a_policy_catches(run: CommandLine, broker: Broker) -> None:
    assert run("cascade", "create", "--cascade", "celery:classic").code == 0
    broker.publish_to("celery_delayed_0", "0." * 28 + "nowhere")
    wait_until(lambda: broker.ready("celery_delayed_delivery.undeliverable") == 1)
    document = status(run, "--cascade", "celery:classic", code=1)
    assert undelivered(document) == {"nowhere": (1, "no queue or exchange has this name")}


def test_a_missing_level_is_no_good_and_a_missing_cascade_an_error(run: CommandLine, broker: Broker) -> None:
    assert "there is no queue 'mine.delay-level-00', nor any other" in run.refused("cascade", "status")
    broker.create()
    with broker.channel() as channel:
        channel.queue_delete("mine.delay-level-01")
    missing = [level["missing"] for level in status(run, code=1)["levels"]]
    assert missing == [False, True, False]


def test_mistakes_are_told_in_a_line(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--observe" in run.refused("cascade", "status", "--observe", "soon")
    assert "no cascade is called" in run.refused("cascade", "status", "--cascade", "x")
    monkeypatch.delenv("DELAYSTORE_BROKER")
    assert "DELAYSTORE_BROKER" in run.refused("cascade", "status")
