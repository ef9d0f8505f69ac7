"""`delaystore ingress verify`, `status` and `delete` on a real broker."""

import json
import signal
import time
from threading import Timer
from typing import Any

import pytest

from delaystore.cascades import TopologyInUseError
from delaystore.ingress.topology import IngressNames, delete
from tests.dispatching import wait_until
from tests.integration.cli import CommandLine, started
from tests.integration.ingress_brokers import Broker
from tests.integration.plugin_stand_in import declare_shop, plugin_management
from tests.servers import RabbitMQVhosts

QUEUES = ("orders.ingress", "orders.ingress.expired", "orders.ingress.rejected")


@pytest.fixture
def orders(run: CommandLine, broker: Broker) -> None:
    """An ingress that leads to the queue billing."""
    assert run("ingress", "create", "orders", "--type", "topic").code == 0
    broker.queue("billing", "orders.out", key="#")


def findings(run: CommandLine, *arguments: str) -> dict[str, list[str]]:
    """What verify finds, by its kind."""
    result = run("ingress", "verify", "orders", "--json", *arguments)
    document = result.document
    assert result.code == (0 if document["good"] else 1)
    found: dict[str, list[str]] = {}
    for one in document["findings"]:
        found.setdefault(one["kind"], []).append(f"{one['subject']}: {one['text']}")
    return found


@pytest.mark.usefixtures("orders")
def test_what_create_has_declared_is_good(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(run) == {}
    assert findings(run, "--type", "topic", "--passive") == {}
    assert run("ingress", "verify", "orders").out.startswith("good: 'orders' on ")
    assert list(findings(run, "--type", "direct")) == ["inequivalent"]
    monkeypatch.delenv("DELAYSTORE_MANAGEMENT")
    assert findings(run, "--type", "topic") == {}
    assert "pass --type" in run.refused("ingress", "verify", "orders")


def test_each_missing_part_is_told(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(findings(run)["missing"]) == 8
    monkeypatch.delenv("DELAYSTORE_MANAGEMENT")
    assert len(findings(run, "--type", "topic")["missing"]) == 6, "AMQP does not tell of bindings"


@pytest.mark.usefixtures("orders")
def test_what_leads_around_the_delay_or_nowhere_is_told(run: CommandLine, broker: Broker) -> None:
    with broker.channel() as channel:
        channel.queue_bind("billing", "orders", "a.#")
        channel.queue_unbind("billing", "orders.out", "#")
        channel.queue_bind("orders.ingress", "orders", "one.more.key")
    found = findings(run)
    (around,) = found["extra-binding"]
    assert "'a.#' from exchange 'orders' to queue 'billing'" in around
    assert "bind to 'orders.out' in its place" in around
    (nowhere,) = found["undeliverable"]
    assert "'orders.out': leads to no queue" in nowhere


@pytest.mark.usefixtures("orders")
def test_what_leads_back_to_the_ingress_queue_is_told(run: CommandLine, broker: Broker) -> None:
    with broker.channel() as channel:
        channel.exchange_declare("between", "fanout", durable=True)
        channel.exchange_bind("between", "orders.out", "#")
        channel.exchange_bind("orders", "between")
    (back,) = findings(run)["extra-binding"]
    assert "'orders.out': leads back to the queue 'orders.ingress'" in back


@pytest.mark.long
@pytest.mark.usefixtures("orders")
def test_policies_that_harm_are_told(run: CommandLine, broker: Broker, rabbitmq: RabbitMQVhosts) -> None:
    vhost = rabbitmq.vhost_name(broker.url)
    definition = {"expires": 3_600_000, "message-ttl": 60_000, "max-length": 10, "delivery-limit": 5}
    policy = {"pattern": "^orders[.]ingress", "definition": definition, "apply-to": "queues"}
    rabbitmq.request("PUT", f"/api/policies/{vhost}/strict", policy)
    told: list[str] = []

    def all_told() -> bool:
        told[:] = findings(run).get("policy", [])
        return len(told) == 11

    wait_until(all_told)
    assert sum("delivery-limit 5" in one for one in told) == 3
    assert [one for one in told if "max-length" in one and "orders.ingress'" in one] == [], "it refuses what is more"


def test_a_plugins_exchange_is_told_once(
    run: CommandLine, rabbitmq: RabbitMQVhosts, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare_shop(broker)
    with plugin_management(rabbitmq.management_url or "", waiting=lambda: 3) as url:
        monkeypatch.setenv("DELAYSTORE_MANAGEMENT", url)
        assert run("ingress", "create", "orders", "--from-plugin").code == 0
        assert list(findings(run)) == ["inequivalent"]
        assert "--from-plugin" in findings(run)["inequivalent"][0]
        document = run("ingress", "status", "orders", "--json").document
        assert document["waiting_in_plugin"] == 3
        assert run("ingress", "delete", "orders", "--yes", "--force").err.count("stays:") == 2
    assert {"orders", "orders.out"} <= set(broker.management.exchanges())


@pytest.mark.long
@pytest.mark.usefixtures("orders")
def test_status_counts_what_is_in_the_queues(run: CommandLine, broker: Broker) -> None:
    broker.publish("orders", "b", expiration="1")
    wait_until(lambda: broker.ready("orders.ingress.expired") == 1)  # it expires at the head of its queue
    broker.publish("orders", "a", 4)
    broker.publish("", "orders.ingress.rejected")
    document: dict[str, Any] = {}

    def counted() -> bool:
        document.update(run("ingress", "status", "orders", "--json").document)
        return [queue["messages"] for queue in document["queues"]] == [4, 1, 1]

    wait_until(counted)
    assert [queue["name"] for queue in document["queues"]] == list(QUEUES)
    assert [queue["ready"] for queue in document["queues"]] == [4, 1, 1]
    assert document["queues"][0]["publish_rate"] is not None
    assert document["queues_behind_out"] == 1
    assert document["waiting_in_plugin"] is None
    assert [sentence.partition(";")[0] for sentence in document["problems"]] == [
        "no ingress consumes 'orders.ingress'",
        "1 in 'orders.ingress.expired'",
        "1 in 'orders.ingress.rejected'",
    ]
    told = run("ingress", "status", "orders")
    assert told.code == 1
    assert "problem: no ingress consumes 'orders.ingress'" in told.out
    assert "delaystore ingress replay orders.ingress.rejected publishes them again\n" in told.out
    assert "retry orders.ingress.expired" not in told.out


@pytest.mark.long
def test_status_tells_how_old_the_oldest_is_where_the_broker_does(run: CommandLine, broker: Broker) -> None:
    with broker.channel() as channel:
        channel.queue_declare("My.Timeouts", durable=True)  # a classic queue
    broker.publish("", "My.Timeouts", timestamp=int(time.time()) - 7200)

    def aged() -> bool:
        document = run("ingress", "status", "orders", "--queue", "My.Timeouts", "--json").document
        return document["queues"][0]["oldest"] is not None

    wait_until(aged)
    (line,) = [
        line
        for line in run("ingress", "status", "orders", "--queue", "My.Timeouts").out.splitlines()
        if line.split()[:1] == ["ingress"]
    ]
    assert line.split()[-1].startswith("2h")


@pytest.mark.usefixtures("orders")
def test_status_is_good_while_somebody_takes(run: CommandLine, broker: Broker) -> None:
    with broker.channel() as channel:
        channel.basic_consume("orders.ingress", lambda *_: None)
        document = run("ingress", "status", "orders", "--json").document
    assert (document["good"], document["queues"][0]["consumers"]) == (True, 1)


@pytest.mark.usefixtures("orders")
def test_status_without_a_management_api_says_what_it_does_not_know(
    run: CommandLine, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.publish("orders", "a", 2)
    monkeypatch.delenv("DELAYSTORE_MANAGEMENT")
    document = run("ingress", "status", "orders", "--json").document
    assert [document["queues"][0][name] for name in ("ready", "messages", "publish_rate")] == [2, None, None]
    assert any("only the management API" in sentence for sentence in document["unknown"])
    told = run("ingress", "status", "nothing")
    assert told.out.count("problem: ") == 5, "two exchanges and three queues are missing"
    assert told.code == 1


@pytest.mark.usefixtures("orders")
def test_status_is_watched_until_somebody_stops_it(run: CommandLine) -> None:
    assert "add --json" in run.refused("ingress", "status", "orders", "--watch")
    assert "--interval must be above 0" in run.refused("ingress", "status", "orders", "--watch", "--interval", "0")
    with started(
        ["ingress", "status", "orders", "--watch", "--json", "--interval", "100ms"], run.environment
    ) as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert {one["exchange"] for one in seen} == {"orders"}


@pytest.mark.long
@pytest.mark.usefixtures("orders")
def test_delete_leaves_what_others_use(run: CommandLine, broker: Broker) -> None:
    would = run("ingress", "delete", "orders", "--dry-run")
    assert (would.code, would.out.count("would delete: ")) == (0, 5)
    assert "orders" in broker.management.exchanges()
    assert "pass --yes" in run.refused("ingress", "delete", "orders")
    document = run("ingress", "delete", "orders", "--yes", "--json").document
    assert len(document["deleted"]) == 5
    assert document["kept"] == [
        "exchange 'orders.out' stays: it has 1 binding; --delete-output-exchange deletes it, too"
    ]
    assert not set(QUEUES) & set(broker.management.queues())
    assert {"orders", "orders.ingress.expired", "orders.out"} & set(broker.management.exchanges()) == {"orders.out"}
    again = run("ingress", "delete", "orders", "--yes", "--delete-output-exchange")
    assert again.out == "deleted: exchange 'orders.out'\n"
    assert "queue 'billing' gets no messages from it any more" in again.err
    assert run("ingress", "delete", "orders", "--yes").out.startswith("nothing to delete")


@pytest.mark.long
@pytest.mark.usefixtures("orders")
def test_an_exchange_that_others_are_bound_to_stays(run: CommandLine, broker: Broker) -> None:
    with broker.channel() as channel:
        channel.queue_bind("billing", "orders", "a.#")
    told = run("ingress", "delete", "orders", "--yes")
    assert "exchange 'orders' stays: queue 'billing' is bound to it, too" in told.err
    assert "orders.ingress" not in broker.management.queues()
    broker.publish("orders", "a.b")
    assert broker.ready("billing") == 1


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("queue", QUEUES)
def test_delete_refuses_while_messages_are_in_a_queue(run: CommandLine, broker: Broker, queue: str) -> None:
    broker.publish("", queue, 3)
    refused = run("ingress", "delete", "orders", "--yes")
    assert refused.code == 1
    assert f"3 messages are in {queue!r}" in refused.err
    assert broker.ready(queue) == 3
    forced = run("ingress", "delete", "orders", "--yes", "--force")
    assert (forced.code, "3 messages lost" in forced.err) == (0, True)


@pytest.mark.usefixtures("orders")
def test_delete_refuses_while_somebody_takes(run: CommandLine, broker: Broker) -> None:
    with broker.channel() as channel:
        channel.basic_consume("orders.ingress", lambda *_: None)
        refused = run("ingress", "delete", "orders", "--yes")
    assert refused.code == 1
    assert "1 consumers take from 'orders.ingress'" in refused.err
    assert "orders" in broker.management.exchanges()


@pytest.mark.usefixtures("orders")
def test_delete_waits_for_a_consumer_that_is_just_leaving(run: CommandLine, broker: Broker) -> None:
    with broker.channel() as channel:
        tag = channel.basic_consume("orders.ingress", lambda *_: None)
        leaving = Timer(0.5, channel.basic_cancel, [tag])
        leaving.start()
        would = run("ingress", "delete", "orders", "--dry-run")
        leaving.join()
    assert would.code == 0, would.err


@pytest.mark.usefixtures("orders")
def test_what_comes_after_the_last_check_is_kept_and_the_way_restored(broker: Broker) -> None:
    with broker.channel() as channel:
        channel.exchange_declare("events", "topic", durable=True)
        channel.exchange_bind("orders", "events", "order.#")

    def publish_late(_part: Any) -> None:
        if broker.ready("orders.ingress") == 0:
            broker.publish("", "orders.ingress")  # as what was on its way when the exchange was deleted
            wait_until(lambda: broker.ready("orders.ingress") == 1)

    with pytest.raises(TopologyInUseError, match="just now; what had been deleted is restored"):
        delete(broker.client, IngressNames.of("orders"), statistics_age=0, on_deleted=publish_late)
    assert broker.ready("orders.ingress") == 1
    with broker.channel() as channel:
        channel.basic_publish("events", "order.7", b"", mandatory=True)
    wait_until(lambda: broker.ready("orders.ingress") == 2)


def test_delete_needs_the_management_api(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYSTORE_MANAGEMENT")
    assert "pass --management URL" in run.refused("ingress", "delete", "orders", "--yes")
