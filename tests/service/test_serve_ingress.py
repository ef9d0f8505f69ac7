"""`delaystore serve` with ingresses: what programs publish waits in the store, and arrives."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.transports import open_transport
from tests.dispatching import wait_until
from tests.integration.cli import CommandLine
from tests.servers import RabbitMQ, RabbitMQVhosts
from tests.service.busy import depth
from tests.service.serving import endpoint, serving, write

INGRESS = "[endpoint.sales.ingress.{name}]\n"


def publish(broker: str, exchange: str, *delays: int, key: str = "billing") -> None:
    """Messages with the plugin's header, each confirmed."""
    with closing(pika.BlockingConnection(pika.URLParameters(broker))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number, delay in enumerate(delays):
            properties = pika.BasicProperties(headers={"x-delay": delay}, delivery_mode=2)
            channel.basic_publish(exchange, key, f"pay me {number}".encode(), properties, mandatory=True)


def bound(broker: str, out: str, queue: str) -> None:
    """A queue that gets what is due with the routing key of its name."""
    with closing(open_transport(broker)) as transport:
        transport.declare(queue)
    with closing(pika.BlockingConnection(pika.URLParameters(broker))) as connection:
        connection.channel().queue_bind(queue, out, routing_key=queue)


@pytest.fixture
def create(capsys: pytest.CaptureFixture[str], rabbitmq: RabbitMQVhosts) -> Callable[[str, str], None]:
    """Makes what an exchange's ingress needs."""

    def make(broker: str, exchange: str, management: str | None = None) -> None:
        run = CommandLine(capsys, {})
        address = management or rabbitmq.management_url or ""
        done = run("ingress", "create", exchange, "--type", "topic", "--broker", broker, "--management", address)
        assert done.code == 0, done.err

    return make


def test_what_is_published_waits_and_arrives(
    postgresql_url: str, rabbitmq_url: str, create: Callable[[str, str], None]
) -> None:
    create(rabbitmq_url, "orders")
    bound(rabbitmq_url, "orders.out", "billing")
    environment = {
        "DELAYSTORE_STORE": postgresql_url,
        "DELAYSTORE_TRANSPORT": rabbitmq_url,
        "DELAYSTORE_ENDPOINT": "sales",
    }
    with serving("--web", "127.0.0.1:0", "--ingress", "orders", environment=environment) as service:
        service.wait_until_ready()
        publish(rabbitmq_url, "orders", 500, 3_600_000)
        wait_until(lambda: depth(rabbitmq_url, "billing") == 1, "the first message")
        with closing(DelayedDelivery("sales", SqlDelayedMessageStore(postgresql_url))) as delivery:
            assert delivery.count() == 1
        assert depth(rabbitmq_url, "orders.ingress") == 0
        assert service.stop() == 0


def test_ingresses_come_and_go_with_a_reload(
    postgresql_url: str, rabbitmq_url: str, tmp_path: Path, create: Callable[[str, str], None]
) -> None:
    for exchange in ("orders", "refunds"):
        create(rabbitmq_url, exchange)
    sales = endpoint("sales", postgresql_url, rabbitmq_url)
    config = write(tmp_path / "delaystore.toml", sales, INGRESS.format(name="orders"))
    with (
        serving("--config", str(config)) as service,
        closing(DelayedDelivery("sales", SqlDelayedMessageStore(postgresql_url))) as delivery,
    ):
        service.wait_until_ready()
        write(config, sales, INGRESS.format(name="refunds"))
        assert (
            service.reload()
            == "reloaded: [endpoint.sales.ingress.orders] removed, [endpoint.sales.ingress.refunds] added"
        )
        service.wait_until_ready()
        publish(rabbitmq_url, "orders", 3_600_000)
        publish(rabbitmq_url, "refunds", 3_600_000)
        wait_until(lambda: delivery.count() == 1, "the message of the ingress that was added")
        assert depth(rabbitmq_url, "orders.ingress") == 1
        write(config, sales, INGRESS.format(name="refunds") + "prefetch = 7\n" + INGRESS.format(name="orders"))
        assert "[endpoint.sales.ingress.refunds] prefetch, [endpoint.sales.ingress.orders] added" in service.reload()
        wait_until(lambda: delivery.count() == 2, "the message that waited for its ingress")
        assert service.stop() == 0


@pytest.mark.long
def test_an_ingress_without_its_queue_is_told_and_the_rest_goes_on(
    postgresql_url: str, rabbitmq_url: str, tmp_path: Path, create: Callable[[str, str], None]
) -> None:
    config = write(tmp_path / "x.toml", endpoint("sales", postgresql_url, rabbitmq_url), INGRESS.format(name="orders"))
    with serving("--config", str(config)) as service:
        wait_until(lambda: service.probe()[1]["not_ready"] == ["sales ingress orders"], "what is not ready")
        assert service.probe("/livez")[0] == 200
        create(rabbitmq_url, "orders")
        service.wait_until_ready()
        assert service.stop() == 0


@pytest.mark.long  # tests/ingress/test_faults.py kills an ingress sooner
def test_nothing_is_lost_when_it_ends_in_the_midst(
    postgresql_url: str, rabbitmq_url: str, tmp_path: Path, create: Callable[[str, str], None]
) -> None:
    create(rabbitmq_url, "orders")
    config = write(tmp_path / "x.toml", endpoint("sales", postgresql_url, rabbitmq_url), INGRESS.format(name="orders"))
    program = f"""
from tests.service.test_serve_ingress import publish
publish({rabbitmq_url!r}, "orders", *([3_600_000] * 2000))
"""
    with subprocess.Popen([sys.executable, "-c", program]) as publisher:
        for _ in range(2):
            with serving("--config", str(config)) as service:
                service.wait_until_ready()
                time.sleep(1)
                assert service.stop() == 0
        assert publisher.wait(60) == 0
    with (
        closing(DelayedDelivery("sales", SqlDelayedMessageStore(postgresql_url))) as delivery,
        serving("--config", str(config)) as service,
    ):
        service.wait_until_ready()
        wait_until(lambda: depth(rabbitmq_url, "orders.ingress") == 0, "an empty queue")
        assert service.stop() == 0
        assert delivery.count() == 2000  # neither fewer nor, as each end was a drain, more


@pytest.mark.long
def test_readiness_of_an_ingress_while_the_broker_is_down(
    private_rabbitmq: RabbitMQ, postgresql_url: str, tmp_path: Path, create: Callable[[str, str, str], None]
) -> None:
    broker = private_rabbitmq.create_vhost()
    create(broker, "orders", private_rabbitmq.management_url or "")
    config = write(tmp_path / "x.toml", endpoint("sales", postgresql_url, broker), INGRESS.format(name="orders"))
    with serving("--config", str(config)) as service:
        service.wait_until_ready()
        private_rabbitmq.kill()
        wait_until(lambda: "sales ingress orders" in service.probe()[1]["not_ready"], "not to be ready")
        private_rabbitmq.restore()
        service.wait_until_ready()
        publish(broker, "orders", 3_600_000)
        with closing(DelayedDelivery("sales", SqlDelayedMessageStore(postgresql_url))) as delivery:
            wait_until(lambda: delivery.count() == 1, "the message")
        assert service.stop() == 0


def ask(broker: str, request: dict[str, Any]) -> Any:
    """What the control queue answers."""
    with closing(pika.BlockingConnection(pika.URLParameters(broker))) as connection:
        channel = connection.channel()
        answers: list[Any] = []
        channel.basic_consume("amq.rabbitmq.reply-to", lambda *got: answers.append(json.loads(got[3])), auto_ack=True)
        properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
        channel.basic_publish("", "sales.control", json.dumps(request).encode(), properties)
        connection.process_data_events(time_limit=10)
        while not answers:
            connection.process_data_events(time_limit=10)
        return answers[0]


def test_the_control_queue_does_what_is_asked(postgresql_url: str, rabbitmq_url: str, tmp_path: Path) -> None:
    sales = endpoint("sales", postgresql_url, rabbitmq_url)
    config = write(tmp_path / "x.toml", sales, "[endpoint.sales.control]\nenabled = true")
    with (
        serving("--config", str(config)) as service,
        closing(DelayedDelivery("sales", SqlDelayedMessageStore(postgresql_url))) as delivery,
    ):
        service.wait_until_ready()
        wait_until(lambda: depth(rabbitmq_url, "sales.control") is not None, "the queue")
        delivery.send("billing", b"pay me", delay=3600, message_id="invoice-7")
        ask(rabbitmq_url, {"cancel": "invoice-7"})
        assert delivery.count() == 0
        write(config, sales)
        assert service.reload() == "reloaded: [endpoint.sales.control] enabled"
        assert service.stop() == 0


def test_an_ingress_has_metrics(
    postgresql_url: str, rabbitmq_url: str, tmp_path: Path, create: Callable[[str, str], None]
) -> None:
    create(rabbitmq_url, "orders")
    sales = endpoint("sales", postgresql_url, rabbitmq_url)
    config = write(tmp_path / "x.toml", '[metrics]\nlisten = "127.0.0.1:0"', sales, INGRESS.format(name="orders"))
    with serving("--config", str(config)) as service:
        url = service.says(r"^serving metrics at (\S+)").group(1)
        service.wait_until_ready()
        publish(rabbitmq_url, "orders", 3_600_000)
        stored = r'^delaystore_ingress_messages_total\{.*endpoint="sales".*result="stored".*\} 1'
        wait_until(lambda: re.search(stored, httpx.get(url).text, re.MULTILINE), "the metric")
        assert service.stop() == 0


@pytest.mark.long
def test_of_two_services_one_may_die(
    postgresql_url: str, rabbitmq_url: str, tmp_path: Path, create: Callable[[str, str], None]
) -> None:
    create(rabbitmq_url, "orders")
    bound(rabbitmq_url, "orders.out", "billing")
    config = write(tmp_path / "x.toml", endpoint("sales", postgresql_url, rabbitmq_url), INGRESS.format(name="orders"))
    with serving("--config", str(config)) as one, serving("--config", str(config)) as other:
        for service in (one, other):
            service.wait_until_ready()
        publish(rabbitmq_url, "orders", *([1500] * 300))
        one.process.kill()
        with closing(DelayedDelivery("sales", SqlDelayedMessageStore(postgresql_url))) as delivery:
            wait_until(lambda: depth(rabbitmq_url, "orders.ingress") == 0 and delivery.count() == 0, "an empty store")
        other.wait_until_ready()
        assert other.stop() == 0
    arrived = bodies(rabbitmq_url, "billing")
    assert len(set(arrived)) == 300


def bodies(broker: str, queue: str) -> list[str]:
    """The bodies of what is in a queue."""
    found: list[str] = []
    with closing(pika.BlockingConnection(pika.URLParameters(broker))) as connection:
        channel = connection.channel()
        while True:
            method, _, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append(body.decode())


@pytest.mark.long
def test_a_message_of_a_hundred_mebibytes_takes_its_own_size(
    rabbitmq_url: str, sqlite_url: str, create: Callable[[str, str], None], tmp_path: Path
) -> None:
    """It is rejected, and in the rejected queue as it came."""
    create(rabbitmq_url, "orders")
    body = os.urandom(1024) * 1024 * 100
    config = write(
        tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, rabbitmq_url), INGRESS.format(name="orders")
    )
    with serving("--config", str(config)) as service:
        service.wait_until_ready()
        before = most_resident(service.process.pid)
        with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("orders", "billing", body, pika.BasicProperties(headers={"x-delay": 1}))
            wait_until(lambda: depth(rabbitmq_url, "orders.ingress.rejected") == 1, "the message")
            assert most_resident(service.process.pid) - before < 200
            _, _, found = channel.basic_get("orders.ingress.rejected", auto_ack=True)
        assert found == body
        assert service.stop() == 0


def most_resident(pid: int) -> int:
    """The most memory that a process has had, in MiB."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) // 1024
