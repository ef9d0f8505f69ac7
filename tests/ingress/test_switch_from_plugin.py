"""The whole switch from the delayed-message plugin itself, with publishers that go on: nothing is lost, nothing early.

No package has the plugin. DELAYSTORE_TEST_DELAYED_PLUGIN names a folder to which scripts/build-delayed-plugin.sh has
compiled it from its sources (github.com/rabbitmq/rabbitmq-delayed-message-exchange, a branch for each release). Without
it these are skipped.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pika
import pytest
from pika import exceptions

from tests.conftest import ENVIRONMENT
from tests.faults.patience import PATIENCE, wait_until
from tests.ingress.service import CLOCK, Service
from tests.servers import RabbitMQ
from tests.servers.delayed_plugin import VARIABLE, RabbitMQWithPlugin

FOLDER = ENVIRONMENT.get(VARIABLE)
OLD, NEW, QUEUE = "orders", "orders.v2", "invoices"
LONGEST = 12_000
"""Of the delays, in milliseconds: some of what waits in the plugin is due after the switch."""

INSTANT = 20
"""Messages that fall due while the exchange is missing, at most, of some hundred a second."""

pytestmark = pytest.mark.skipif(FOLDER is None, reason=f"{VARIABLE} names no folder")


class Publisher:
    """A program for the plugin: it publishes with confirms, again until each is confirmed. A context manager."""

    def __init__(self, url: str, keys: Sequence[str]) -> None:
        self.due: dict[str, float] = {}
        self.exchange = OLD
        self._url = url
        self._keys = keys
        self._may = threading.Event()
        self._may.set()
        self._paused, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Publish no more. May be called twice."""
        self._may.set()
        self._ended.set()
        self._thread.join(PATIENCE)

    def pause(self) -> None:
        """Returns once nothing more is published."""
        self._paused.clear()
        self._may.clear()
        assert self._paused.wait(PATIENCE)

    def resume(self) -> None:
        self._may.set()

    def await_more(self, count: int) -> None:
        wanted = len(self.due) + count
        wait_until(lambda: len(self.due) >= wanted, f"{count} more are published")

    def _run(self) -> None:
        channel: Any = None
        number = 0
        while not self._ended.is_set():
            if not self._may.is_set():
                self._paused.set()
                self._may.wait(PATIENCE)
            delay = number * 397 % LONGEST
            try:
                channel = channel or self._open()
                due = time.time() + delay / 1000
                properties = pika.BasicProperties(headers={"x-delay": delay, "kind": "invoice"}, delivery_mode=2)
                key = self._keys[number % len(self._keys)]
                channel.basic_publish(self.exchange, key, str(number).encode(), properties)
            except exceptions.AMQPError:
                channel = None
                continue
            self.due[str(number)] = due
            number += 1
            self._ended.wait(0.01)
        channel.connection.close()

    def _open(self) -> Any:
        channel = pika.BlockingConnection(pika.URLParameters(self._url)).channel()
        channel.confirm_delivery()
        return channel


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMQ]:
    with RabbitMQWithPlugin(str(FOLDER), management=True) as broker:
        yield broker


@pytest.fixture(params=["topic", "direct", "fanout", "headers"])
def shop(request: pytest.FixtureRequest, broker: RabbitMQ) -> Iterator[tuple[str, Publisher]]:
    """A virtual host where the plugin's exchange leads to a queue, and a publisher at work."""
    url = broker.create_vhost()
    bindings = {"topic": ["order.#"], "direct": ["order.7", "order.8"], "fanout": [""], "headers": [""]}
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        arguments = {"x-delayed-type": request.param}
        channel.exchange_declare(OLD, "x-delayed-message", durable=True, arguments=arguments)
        channel.queue_declare(QUEUE, durable=True)
        for key in bindings[request.param]:
            matched = {"x-match": "all", "kind": "invoice"} if request.param == "headers" else None
            channel.queue_bind(QUEUE, OLD, key, matched)
    with Publisher(url, ["order.7", "order.8"]) as publisher:
        publisher.await_more(200)
        yield url, publisher
    broker.delete_vhost(url)


def assert_all_arrive(url: str, publisher: Publisher, began: float = 0.0, ended: float = 0.0) -> None:
    """Each message that was confirmed, once, and none before it is due.

    From `began` to `ended` the exchange was missing for a moment: what the plugin had due then may be lost.
    """
    due, seen = publisher.due, Counter[str]()
    early = []
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for method, _, body in channel.consume(QUEUE, auto_ack=True, inactivity_timeout=LONGEST / 1000 + 5):
            if method is None:
                break
            seen[body.decode()] += 1
            if body.decode() in due and time.time() < due[body.decode()] - CLOCK:
                early.append(body)
            if len(seen) == len(due):
                break
        channel.cancel()
    lost = set(due) - set(seen)
    print(f"published {len(due)}, arrived {len(seen)}, twice {sum(seen.values()) - len(seen)}")  # noqa: T201 - figures
    assert not early
    assert [one for one in lost if not began <= due[one] <= ended] == []
    assert len(lost) <= INSTANT
    assert [one for one, times in seen.items() if times > 1] == []


def test_in_place(broker: RabbitMQ, postgresql_url: str, shop: tuple[str, Publisher], tmp_path: Path) -> None:
    url, publisher = shop
    service = Service(postgresql_url, url, broker.management_url or "", OLD)
    export = tmp_path / "before.json"
    export.write_text(json.dumps(broker.request("GET", f"/api/definitions/{broker.vhost_name(url)}")))
    service.run("ingress", "create", OLD, "--definitions", str(export))
    with service:
        publisher.pause()
        began = time.time()
        said = service.run("ingress", "create", OLD, "--definitions", str(export), "--replace")
        assert f"exchange {OLD!r}" in said
        ended = time.time()
        publisher.resume()
        publisher.await_more(200)
        publisher.stop()
        assert_all_arrive(url, publisher, began, ended)


def test_under_another_name_without_a_pause(broker: RabbitMQ, postgresql_url: str, shop: tuple[str, Publisher]) -> None:
    url, publisher = shop
    service = Service(postgresql_url, url, broker.management_url or "", NEW)
    service.run("ingress", "create", OLD, "--from-plugin", "--new-exchange", NEW)
    with service:
        publisher.exchange = NEW
        publisher.await_more(200)
        publisher.stop()
        assert_all_arrive(url, publisher)
