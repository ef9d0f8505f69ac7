"""Our cascades and those of Celery and NServiceBus are the same to a broker, and a Celery worker runs what we delay."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kombu
import pytest
from celery import Celery
from celery.app.amqp import AMQP
from kombu.transport import native_delayed_delivery as native

from delaystore import DelayedDelivery
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import open_transport
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2, Layout, Routing, celery
from tests.dispatching import wait_until
from tests.integration.cascades import PATIENCE, arrivals, channel_to, declare, send
from tests.servers import RabbitMQVhosts

WORKER = Path(__file__).with_name("celery_worker.py")
QUEUE = "celery-tasks"
PREFIXES = [None, "shop"]


@contextmanager
def connected_kombu(url: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(url, transport_options={"confirm_publish": True}) as connection:
        yield connection


def everything(rabbitmq: RabbitMQVhosts, url: str) -> Any:
    """The virtual host's exchanges, queues and bindings, as the broker tells them."""
    vhost = rabbitmq.vhost_name(url)
    exchanges: Any = rabbitmq.request("GET", f"/api/exchanges/{vhost}?columns=name,type,durable,arguments")
    queues: Any = rabbitmq.request("GET", f"/api/queues/{vhost}?columns=name,durable,arguments")
    bindings: Any = rabbitmq.request(
        "GET", f"/api/bindings/{vhost}?columns=source,destination,destination_type,routing_key"
    )
    return (
        sorted((each for each in exchanges if each["name"] and not each["name"].startswith("amq.")), key=str),
        sorted(queues, key=str),
        sorted((each for each in bindings if each["source"]), key=str),
    )


@pytest.mark.long_runs("classic")
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_celery_declares_the_same_as_we_do_in_either_order(
    rabbitmq: RabbitMQVhosts, rabbitmq_url: str, channel: Any, queue_type: str, prefix: str | None
) -> None:
    topology = celery(queue_type, prefix)
    with connected_kombu(rabbitmq_url) as connection:
        declare(channel, topology.layout())
        ours = everything(rabbitmq, rabbitmq_url)
        native.declare_native_delayed_delivery_exchanges_and_queues(connection, queue_type, prefix)
        assert everything(rabbitmq, rabbitmq_url) == ours
    other = rabbitmq.create_vhost()
    try:
        with connected_kombu(other) as connection, channel_to(other) as channel:
            native.declare_native_delayed_delivery_exchanges_and_queues(connection, queue_type, prefix)
            assert everything(rabbitmq, other) == ours
            declare(channel, topology.layout())
            assert everything(rabbitmq, other) == ours
    finally:
        rabbitmq.delete_vhost(other)


def test_a_queue_that_celery_bound_gets_what_we_delay_and_one_that_we_bound_what_celery_delays(
    rabbitmq_url: str, channel: Any
) -> None:
    topology = celery()
    declare(channel, topology.layout())
    queues = [kombu.Queue(name, kombu.Exchange(name, "topic"), name) for name in ("theirs", "ours")]
    with connected_kombu(rabbitmq_url) as connection:
        for queue in queues:
            queue.queue_arguments = {"x-queue-type": "quorum"}
            queue(connection).declare()
        native.bind_queue_to_native_delayed_delivery_exchange(connection, queues[0])
        declare(channel, Layout(bindings=topology.destination_bindings("ours", Routing.CONVENTIONAL)))
        for name in ("theirs", "ours"):
            send(channel, topology, 1, name, b"our delay")
            connection.Producer().publish(
                b"their delay", exchange=native.level_name(27), routing_key=native.calculate_routing_key(1, name)
            )
        found = arrivals(channel, ["theirs", "ours"], 4)
    assert sorted((each.queue, each.body) for each in found) == [
        (name, body) for name in ("ours", "theirs") for body in (b"our delay", b"their delay")
    ]


def test_names_and_arguments_of_nservicebus_are_what_its_endpoints_declare(
    rabbitmq: RabbitMQVhosts, rabbitmq_url: str, channel: Any
) -> None:
    declare(channel, NSERVICEBUS_V2.layout())
    exchanges, queues, bindings = everything(rabbitmq, rabbitmq_url)
    levels = [f"nsb.v2.delay-level-{level:02}" for level in range(28)]
    assert {each["name"]: (each["type"], each["durable"], each["arguments"]) for each in exchanges} == dict.fromkeys(
        [*levels, "nsb.v2.delay-delivery"], ("topic", True, {})
    )
    assert {each["name"]: each["arguments"] for each in queues} == {
        name: {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-message-ttl": 2**level * 1000,
            "x-dead-letter-exchange": levels[level - 1] if level else "nsb.v2.delay-delivery",
        }
        for level, name in enumerate(levels)
    }
    found = {(each["source"], each["destination_type"], each["destination"], each["routing_key"]) for each in bindings}
    assert found == {(name, "queue", name, "*." * (27 - level) + "1.#") for level, name in enumerate(levels)} | {
        (name, "exchange", levels[level - 1] if level else "nsb.v2.delay-delivery", "*." * (27 - level) + "0.#")
        for level, name in enumerate(levels)
    }


@pytest.fixture
def ran(rabbitmq: RabbitMQVhosts, rabbitmq_url: str, tmp_path: Path) -> Iterator[Path]:
    """The file where a running Celery worker notes, a line each, what its task was called with, and when."""
    path, log = tmp_path / "ran", tmp_path / "worker.log"
    command = ("-A", "tests.integration.celery_worker", "worker", "--pool", "solo", "--loglevel", "warning")
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    with log.open("wb") as output:
        worker = subprocess.Popen(
            (sys.executable, "-m", "celery", *command, *quiet),
            env=os.environ | {"CELERY_BROKER": rabbitmq_url, "CELERY_QUEUE": QUEUE, "CELERY_RAN": str(path)},
            cwd=WORKER.parents[2],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not bound_by_worker(rabbitmq, rabbitmq_url):
            assert worker.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield path
    finally:
        worker.kill()  # the pool is solo: it has no children, and a warm shutdown takes ten seconds
        worker.wait()


def bound_by_worker(rabbitmq: RabbitMQVhosts, url: str) -> bool:
    bindings: Any = rabbitmq.request("GET", f"/api/bindings/{rabbitmq.vhost_name(url)}")
    return any(each["source"] == celery().delivery for each in bindings)


def task(call: str) -> tuple[bytes, dict[str, Any], dict[str, Any]]:
    """A call of the worker's task as a message of Celery's protocol 2: body, headers, properties."""
    message = AMQP(Celery()).as_task_v2(call, "note", args=[call])
    properties = {"content_type": "application/json", "content_encoding": "utf-8", "correlation_id": call}
    return json.dumps(message.body).encode(), message.headers, properties


def test_a_celery_worker_runs_tasks_that_we_delayed_in_the_cascade_and_in_the_store(
    rabbitmq_url: str, channel: Any, ran: Path, sqlite_url: str
) -> None:
    declare(channel, celery().layout())  # as the worker did
    body, headers, properties = task("by the cascade")
    due = {"by the cascade": time.time() + 2, "by the store": time.time() + 2}
    send(channel, celery(), 2, QUEUE, body, headers=headers, **properties)
    body, headers, properties = task("by the store")
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url), open_transport(rabbitmq_url)) as delivery:
        due["by the store"] = time.time() + 2
        delivery.send(QUEUE, body, delay=2, headers=headers, properties=properties)
        wait_until(lambda: ran.exists() and len(ran.read_text().splitlines()) >= 2, "both tasks")
    calls = dict(json.loads(line) for line in ran.read_text().splitlines())
    assert calls.keys() == due.keys()
    assert all(calls[call] >= due[call] for call in due)
