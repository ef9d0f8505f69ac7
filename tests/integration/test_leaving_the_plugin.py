"""Each way of docs/how-to/leaving-the-plugin.md from top to bottom, with a message that waits in the plugin.

Where no broker has the plugin, a stand-in shows its exchange, and holds what waits: see `plugin_exchanges`.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import pytest

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from tests.dispatching import wait_until
from tests.integration.plugin_exchanges import WAITS, PluginExchange, plugin_exchange
from tests.integration.walks import Walk
from tests.long import long
from tests.servers import RabbitMQVhosts

BEFORE: Final = "Before you begin"
KEYS: Final = {"topic": ("order.#",), "direct": ("order.1.paid", "order.2.paid", "order.7.paid")}
"""By which the queue is bound, for each type."""
TAKES_ALL: Final = {"topic": {"#"}, "direct": {"", *KEYS["direct"]}}
"""By which the ingress queue is bound in place of it: also for what waits in the plugin."""


@pytest.fixture
def plugin(rabbitmq: RabbitMQVhosts, rabbitmq_url: str, request: pytest.FixtureRequest) -> Iterator[PluginExchange]:
    with plugin_exchange(rabbitmq, rabbitmq_url, getattr(request, "param", "topic")) as exchange:
        for key in KEYS[exchange.inner_type]:
            exchange.broker.queue("billing", "orders", key=key)
        yield exchange


def bindings(plugin: PluginExchange) -> set[tuple[str, str]]:
    """Those that it had at the beginning."""
    return {("billing", key) for key in KEYS[plugin.inner_type]}


@pytest.fixture
def page(plugin: PluginExchange, postgresql_url: str, tmp_path: Path) -> Walk:
    broker, api = urlsplit(plugin.broker.url), plugin.broker.management_url
    login = broker.netloc.rpartition("@")[0]
    real = {
        "http://guest:guest@localhost:15672": api.replace("://", f"://{login}@"),
        "http://localhost:15672": api,
        "postgresql://localhost/app": postgresql_url,
        "amqp://localhost": plugin.broker.url,
        "/%2F": f"/{quote(plugin.virtual_host, safe='')}",
    }
    return Walk("docs/how-to/leaving-the-plugin.md", BEFORE, real, tmp_path)


def running(page: Walk, plugin: PluginExchange, commands: str, queue: str) -> AbstractContextManager[None]:
    """They run for the block, which begins once the queue has a consumer."""
    broker = plugin.broker
    return page.running(commands, lambda: wait_until(lambda: broker.consumers(queue) > 0))


def arrived(plugin: PluginExchange) -> tuple[bytes, str, int]:
    """The next message in the queue: its body, its routing key, and its x-delay."""
    method, properties, body = plugin.broker.get("billing")
    return body, method.routing_key, properties.headers["x-delay"]


def test_before_you_begin_nothing_changes(page: Walk, plugin: PluginExchange) -> None:
    (look,) = page.commands(BEFORE)
    told = page.run(look)
    assert "would declare: binding 'order.#' from exchange 'orders.out' to queue 'billing'" in told
    assert "orders.out" not in plugin.broker.management.exchanges()


@pytest.mark.long
def test_under_a_new_name(page: Walk, plugin: PluginExchange) -> None:
    prepare, run, try_it, wait, delete = page.commands("Under a new name")
    plugin.publish("order.1.paid")
    page.run(prepare)
    assert plugin.bound() == bindings(plugin)
    with running(page, plugin, run, "orders.v2.ingress"):
        assert "order-7" in page.run(try_it)
        assert arrived(plugin) == (b"pay me", "order.7.paid", -3_600_000)
        plugin.broker.publish("orders.v2", "order.8.paid", headers={"x-delay": 1})
        assert arrived(plugin)[1] == "order.8.paid"
        assert page.run(wait).strip() == '"waiting_in_plugin": 1,'
        plugin.deliver()
        assert arrived(plugin) == (b"waited", "order.1.paid", -WAITS)
        assert page.run(wait).strip() == '"waiting_in_plugin": 0,'
        page.run(delete)
        assert "orders" not in plugin.broker.management.exchanges()
        plugin.broker.publish("orders.v2", "order.9.paid", headers={"x-delay": 1})
        assert arrived(plugin)[1] == "order.9.paid"
    assert plugin.broker.ready("billing") == 0


@pytest.mark.long
def test_a_new_name_is_undone(page: Walk, plugin: PluginExchange) -> None:
    page.run(page.commands("Under a new name")[0])
    page.run("delaystore ingress delete orders.v2 --delete-output-exchange --yes")
    assert {name for name in plugin.broker.management.exchanges() if name.startswith("orders")} == {"orders"}
    assert plugin.bound() == bindings(plugin)


@pytest.mark.long
@pytest.mark.parametrize("plugin", [long("topic"), "direct"], indirect=True)
def test_in_place_and_back(page: Walk, plugin: PluginExchange) -> None:
    prepare, run, export, replace, verify, back = page.commands("In place")
    plugin.publish("order.1.paid")
    page.run(prepare)
    assert plugin.bound() == bindings(plugin)
    with running(page, plugin, run, "orders.ingress"):
        page.run(export)
        page.run(replace)
        assert plugin.bound() == {("orders.ingress", key) for key in TAKES_ALL[plugin.inner_type]}
        told = page.run(verify)
        assert told.count("good") == 2, told
        plugin.broker.publish("orders", "order.7.paid", headers={"x-delay": 1})
        plugin.deliver()
        assert {arrived(plugin), arrived(plugin)} == {
            (b"order.7.paid 0", "order.7.paid", -1),
            (b"waited", "order.1.paid", -WAITS),
        }
        page.run(back)
        assert plugin.broker.management.exchanges()["orders"].type == "x-delayed-message"
        assert plugin.bound() == bindings(plugin)
        assert page.run("delaystore count").strip() == "0"
    page.run("delaystore ingress delete orders --delete-output-exchange --yes")
    assert {name for name in plugin.broker.management.exchanges() if name.startswith("orders")} == {"orders"}
    plugin.publish("order.2.paid")
    plugin.deliver()
    assert arrived(plugin)[1] == "order.2.paid"
    assert plugin.broker.ready("billing") == 0


def test_moving_what_waits_by_a_record(page: Walk, postgresql_url: str, tmp_path: Path) -> None:
    section = "Move waiting messages by your own record"
    (record,) = (block.text for block in page.blocks(section) if block.language == "json")
    (told,) = (block.text for block in page.blocks(section) if block.language == "text")
    (tmp_path / "sent.jsonl").write_text(record)
    (commands,) = page.commands(section)
    assert told.strip() in page.run(commands)
    with closing(DelayedDelivery("orders", SqlDelayedMessageStore(postgresql_url))) as delivery:
        (waiting,) = delivery.list().messages
    assert waiting.due_time == datetime(2026, 12, 20, 9, tzinfo=UTC)
    assert (waiting.destination, waiting.headers) == (
        json.loads(record.splitlines()[0])["to"],
        {"x-delay": -2592000000},
    )
