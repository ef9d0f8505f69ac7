"""`delaystore ingress create` on a real broker."""

import pytest
from pika import exceptions

from tests.integration.cli import CommandLine
from tests.integration.ingress_brokers import Broker
from tests.servers import RabbitMQVhosts

PARTS = 8


@pytest.mark.parametrize(
    ("out_type", "own_type"), [("topic", "topic"), ("fanout", "fanout"), ("headers", "headers"), ("direct", "fanout")]
)
def test_all_that_is_published_comes_to_the_ingress_queue(
    run: CommandLine, broker: Broker, out_type: str, own_type: str
) -> None:
    document = run("ingress", "create", "orders", "--type", out_type, "--json").document
    assert (document["declared"], len(document["missing"])) == (PARTS, PARTS)
    exchanges = broker.management.exchanges()
    assert {name: exchanges[name].type for name in ("orders", "orders.out")} == {
        "orders": own_type,
        "orders.out": out_type,
    }
    broker.publish("orders", "")
    broker.publish("orders", "any.key", headers={"x-delay": 5000})
    assert broker.ready("orders.ingress") == 2


def test_a_second_run_changes_nothing_and_says_so(
    run: CommandLine, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run("ingress", "create", "orders", "--type", "topic", "--dry-run")
    assert first.out.count("would declare: ") == PARTS
    assert not {"orders", "orders.out"} & set(broker.management.exchanges())
    assert run("ingress", "create", "orders", "--type", "topic").out.count("declared: ") == PARTS
    before = broker.management.snapshot()
    again = run("ingress", "create", "orders", "--type", "topic")
    assert again.code == 0
    assert again.out.endswith("nothing is new\n")
    assert again.out.count("\n") == 1
    monkeypatch.delenv("DELAYSTORE_MANAGEMENT")
    assert run("ingress", "create", "orders", "--type", "topic").out.endswith("nothing is new\n")
    after = broker.management.snapshot()
    assert (after.exchanges, after.queues.keys(), after.bindings) == (
        before.exchanges,
        before.queues.keys(),
        before.bindings,
    )


@pytest.mark.parametrize("management", [True, False])
def test_what_differs_is_named_one_by_one_and_nothing_is_changed(
    run: CommandLine, broker: Broker, monkeypatch: pytest.MonkeyPatch, management: bool
) -> None:
    if not management:
        monkeypatch.delenv("DELAYSTORE_MANAGEMENT")
    broker.exchange("orders", "direct")
    broker.queue("orders.ingress")
    result = run("ingress", "create", "orders", "--type", "topic")
    assert (result.code, result.out) == (2, "")
    *told, last = [line for line in result.err.splitlines() if not line.startswith("not checked")]
    assert last.startswith("error: ")
    assert last.endswith("blocking findings, and nothing was declared; correct them, and run the command again")
    (by_type,) = [line for line in told if line.startswith("inequivalent: exchange 'orders': type ")]
    assert "--exchange-type" in by_type
    missing = [name for name in ("dead-letter-exchange", "overflow", "delivery-limit") if name in " ".join(told)]
    assert len(missing) == (3 if management else 1), "AMQP tells of the first difference only"
    assert "orders.out" not in broker.management.exchanges()
    document = run("ingress", "create", "orders", "--type", "topic", "--json").document
    assert {"orders", "orders.ingress"} == {one["subject"].split("'")[1] for one in document["findings"]}


def test_as_long_as_no_queue_is_bound_behind_it_a_caution_says_so(run: CommandLine, broker: Broker) -> None:
    caution = "exchange 'orders.out' leads to no queue yet"
    assert caution not in run("ingress", "create", "orders", "--type", "topic", "--dry-run").err
    assert caution in run("ingress", "create", "orders", "--type", "topic").err
    broker.queue("invoices")
    with broker.channel() as channel:
        channel.queue_bind("invoices", "orders.out", "#")
    assert caution not in run("ingress", "create", "orders", "--type", "topic").err


def test_exchanges_may_have_arguments_of_their_own(run: CommandLine, broker: Broker) -> None:
    broker.exchange("elsewhere", "fanout")
    for name in ("orders", "orders.out"):
        broker.exchange(name, "topic", **{"alternate-exchange": "elsewhere"})
    assert run("ingress", "create", "orders", "--type", "topic").code == 0
    broker.publish("orders", "a")
    assert broker.ready("orders.ingress") == 1


def test_what_the_ingress_queue_gives_up_is_kept_with_its_routing_key(run: CommandLine, broker: Broker) -> None:
    run("ingress", "create", "orders", "--type", "topic")
    broker.publish("orders", "short.lived", expiration="1")
    method, properties, body = broker.get("orders.ingress.expired")
    assert (method.routing_key, body) == ("short.lived", b"short.lived 0")
    assert properties.headers["x-death"][0]["queue"] == "orders.ingress"


def test_mandatory_works_where_the_plugin_returns_everything(run: CommandLine, broker: Broker) -> None:
    run("ingress", "create", "orders", "--type", "direct")
    broker.publish("orders", "a", headers={"x-delay": 60_000})
    with broker.channel() as channel:
        channel.queue_delete("orders.ingress")
    with pytest.raises(exceptions.UnroutableError):
        broker.publish("orders", "a", headers={"x-delay": 60_000})


def test_names_and_types_that_cannot_be(run: CommandLine) -> None:
    assert "pass --type" in run.refused("ingress", "create", "orders")
    told = run.refused("ingress", "create", "orders", "--type", "direct", "--exchange-type", "direct")
    assert "--exchange-type fanout, or topic" in told
    assert "would come back" in run.refused(
        "ingress", "create", "orders", "--type", "topic", "--output-exchange", "orders"
    )
    assert "has 261 bytes" in run.refused("ingress", "create", "x" * 245, "--type", "topic")
    assert "control character" in run.refused("ingress", "create", "a\nb", "--type", "topic")
    assert "no name" in run.refused("ingress", "create", "", "--type", "topic")
    assert "begin with 'amq.'" in run.refused("ingress", "create", "amq.topic", "--type", "topic")


def test_an_exchange_of_rabbitmqs_own_can_be_an_entrance(run: CommandLine, broker: Broker) -> None:
    names = ("--queue", "all.ingress", "--output-exchange", "all.out")
    assert run("ingress", "create", "amq.topic", "--type", "direct", "--exchange-type", "topic", *names).code == 0
    broker.publish("amq.topic", "a.b")
    assert broker.ready("all.ingress") == 1


@pytest.mark.parametrize("management", [True, False])
def test_a_user_who_may_not_declare_is_told_before_anything_is(
    run: CommandLine, broker: Broker, rabbitmq: RabbitMQVhosts, monkeypatch: pytest.MonkeyPatch, management: bool
) -> None:
    with rabbitmq.user(broker.url, configure="^orders", write=".*", read="^orders", tags="management") as url:
        monkeypatch.setenv("DELAYSTORE_BROKER", url)
        if not management:
            monkeypatch.delenv("DELAYSTORE_MANAGEMENT")
        told = run("ingress", "create", "sales", "--type", "topic")
        assert (told.code, told.out) == (2, "")
        assert "permission" in told.err
        assert "sales.out" not in broker.management.exchanges()
        assert run("ingress", "create", "orders", "--type", "topic").code == 0
