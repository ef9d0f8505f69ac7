"""`delaystore ingress create --from-plugin` on a real broker, which shows exchanges of the plugin; see the stand-in."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dispatching import wait_until
from tests.integration.cli import CommandLine
from tests.integration.ingress_brokers import Broker
from tests.integration.plugin_stand_in import RECORDED, declare_shop, plugin_management
from tests.servers import RabbitMQVhosts


@pytest.fixture
def broker(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[Broker]:
    with plugin_management(rabbitmq.management_url or "", waiting=lambda: 7) as url:
        opened = Broker(rabbitmq_url, url)
        declare_shop(opened)
        yield opened
        opened.close()


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export of the virtual host, made before anything was changed."""
    return shutil.copy(RECORDED / "plugin_definitions.json", tmp_path / "before.json")


def bound_from(broker: Broker, source: str) -> set[tuple[str, str]]:
    return {(one.destination, one.routing_key) for one in broker.management.bindings(source)}


def test_in_place_everything_is_prepared_and_the_plugins_exchange_is_left(run: CommandLine, broker: Broker) -> None:
    before = bound_from(broker, "orders")
    document = run("ingress", "create", "orders", "--from-plugin", "--json").document
    assert (document["waiting_in_plugin"], document["out_type"]) == (7, "topic")
    assert broker.management.exchanges()["orders"].type == "x-delayed-message"
    assert bound_from(broker, "orders") == before, "with one binding more, what is due would come twice"
    assert bound_from(broker, "orders.out") == before
    assert broker.management.exchanges()["orders.out"].arguments == {"alternate-exchange": "unrouted"}
    assert any("(7 now)" in step for step in document["steps"])
    with broker.channel() as channel:
        channel.queue_declare("late", durable=True)
        channel.queue_bind("late", "orders", "late.#")
    again = run("ingress", "create", "orders", "--from-plugin")
    assert again.out.splitlines()[0] == "declared: binding 'late.#' from exchange 'orders.out' to queue 'late'"
    assert "caution: queue" not in again.err


def test_in_place_the_exchange_is_replaced_with_what_leads_to_it(
    run: CommandLine, broker: Broker, export: Path
) -> None:
    arguments = ("ingress", "create", "orders", "--definitions", str(export), "--replace")
    told = run(*arguments, "--dry-run").out
    assert told.startswith("would delete: exchange 'orders'\n")
    assert broker.management.exchanges()["orders"].type == "x-delayed-message"
    assert run(*arguments).code == 0
    assert broker.management.exchanges()["orders"].type == "topic"
    assert bound_from(broker, "orders") == {("orders.ingress", "#")}
    broker.publish("shop.events", "order.7.paid", headers={"x-delay": 5000})
    assert broker.ready("orders.ingress") == 1
    assert broker.ready("billing") == 0
    again = run(*arguments)
    assert (again.code, again.out.count("\n")) == (0, 1)
    assert again.out.endswith("nothing is new\n")


def test_what_waits_for_a_direct_exchange_finds_its_keys(run: CommandLine, broker: Broker, export: Path) -> None:
    assert run("ingress", "create", "reminders", "--definitions", str(export), "--replace").code == 0
    assert broker.management.exchanges()["reminders"].type == "fanout"
    into = {("reminders.ingress", key) for key in ("billing", "shipping", "")}
    assert bound_from(broker, "reminders") == into
    broker.publish("reminders", "billing")
    assert broker.ready("reminders.ingress") == 1, "once, although two bindings take it"
    assert run("ingress", "verify", "reminders").code == 0


def test_killed_after_the_deletion_the_same_command_declares_the_rest(
    run: CommandLine, broker: Broker, export: Path
) -> None:
    run("ingress", "create", "orders", "--definitions", str(export))
    with broker.channel() as channel:
        channel.exchange_delete("orders")
    assert run("ingress", "create", "orders", "--definitions", str(export), "--replace").code == 0
    assert bound_from(broker, "orders") == {("orders.ingress", "#")}
    assert ("orders", "order.#") in bound_from(broker, "shop.events")


def test_an_export_that_is_older_than_a_binding_replaces_nothing(
    run: CommandLine, broker: Broker, export: Path
) -> None:
    with broker.channel() as channel:
        channel.queue_bind("billing", "orders", "late.#")
    told = run.refused("ingress", "create", "orders", "--definitions", str(export), "--replace")
    assert "has other bindings than in the export" in told
    assert "orders.out" not in broker.management.exchanges()


def test_what_waits_in_the_plugin_and_would_be_lost_hinders(run: CommandLine, broker: Broker, export: Path) -> None:
    arguments = ("ingress", "create", "orders", "--definitions", str(export), "--replace", "--exchange-type", "fanout")
    assert "7 messages wait in the plugin" in run.refused(*arguments)
    assert broker.management.exchanges()["orders"].type == "x-delayed-message"


def test_a_queue_that_only_its_program_may_bind_is_left_to_it(run: CommandLine, broker: Broker, export: Path) -> None:
    with broker.channel() as channel:
        own = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(own, "orders", "order.#")
        told = run("ingress", "create", "orders", "--from-plugin")
        assert told.code == 0
        assert f"queue {own!r} does not last: the program that makes it must bind it to 'orders.out' itself" in told.err
        assert own not in {one for one, _ in bound_from(broker, "orders.out")}
        assert run("ingress", "create", "orders", "--definitions", str(export), "--replace").code == 0


def test_with_another_name_both_work(run: CommandLine, broker: Broker) -> None:
    told = run("ingress", "create", "alerts", "--from-plugin", "--new-exchange", "alarms")
    assert told.code == 0
    assert "publishers change from 'alerts' to 'alarms', one by one" in told.out
    broker.publish("alarms", "", headers={"kind": "invoice", "attempt": 3})
    assert broker.ready("alarms.ingress") == 1
    broker.publish("alerts", "", headers={"kind": "invoice", "attempt": 3})
    broker.publish("alarms.out", "", headers={"kind": "invoice", "attempt": 3})
    wait_until(lambda: broker.ready("billing") == 2)
    assert broker.ready("shipping") == 0


def test_a_plan_asks_no_broker_that_only_the_environment_names(
    run: CommandLine, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYSTORE_BROKER", "amqp://127.0.0.1:1/")
    arguments = ("ingress", "create", "reminders", "--definitions", str(export), "--dry-run")
    for management in ("http://127.0.0.1:1", ""):
        monkeypatch.setenv("DELAYSTORE_MANAGEMENT", management)
        assert "would be prepared" in run(*arguments).out
    assert "pass --management URL" in run.refused(*arguments, "--broker", "amqp://127.0.0.1:1/")


def test_a_plan_needs_no_broker(
    run: CommandLine, broker: Broker, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DELAYSTORE_BROKER")
    monkeypatch.delenv("DELAYSTORE_MANAGEMENT")
    document = run("ingress", "create", "reminders", "--definitions", str(export), "--dry-run", "--json").document
    assert document["dry_run"]
    assert document["waiting_in_plugin"] is None
    declared: list[Any] = [one for one in document["missing"] if one.get("source") == "reminders.out"]
    assert {one["destination"] for one in declared} == {"billing", "shipping"}
    assert "reminders.out" not in broker.management.exchanges()
    assert "no broker is given" in run.refused("ingress", "create", "reminders", "--definitions", str(export))


def test_mistakes_are_told(run: CommandLine, export: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "pass --from-plugin" in run.refused("ingress", "create", "orders", "--type", "topic")
    assert "--from-plugin, too" in run.refused("ingress", "create", "orders", "--type", "topic", "--new-exchange", "b")
    assert "leave --type out" in run.refused("ingress", "create", "orders", "--type", "topic", "--from-plugin")
    assert "pass --definitions FILE" in run.refused("ingress", "create", "orders", "--from-plugin", "--replace")
    refused = run.refused("ingress", "create", "audit", "--from-plugin")
    assert "'audit' is of type" in refused
    assert "pass --type TYPE, the type of the output exchange" in refused
    missing = str(tmp_path / "missing.json")
    assert "No such file" in run.refused("ingress", "create", "orders", "--definitions", missing)
    monkeypatch.delenv("DELAYSTORE_MANAGEMENT")
    assert "pass --management URL" in run.refused("ingress", "create", "orders", "--definitions", str(export))
