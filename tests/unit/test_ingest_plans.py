"""What an ingress consists of, and how an exchange of the delayed-message plugin becomes one. Without a broker."""

import json
from pathlib import Path

import pytest

from delaystore.cascades import BrokerSnapshot, Definitions
from delaystore.errors import ConfigurationError, TransportSetupError
from delaystore.ingress.topology import IngressNames, IngressTopology, Switch, switch_from_plugin
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange

RECORDED = Path(__file__).parents[1] / "recorded"


@pytest.fixture
def shop() -> BrokerSnapshot:
    return Definitions(RECORDED / "plugin_definitions.json").snapshot("shop")


def topology(**given: str) -> IngressTopology:
    return IngressTopology(
        names=IngressNames.of("orders"), **{"out_type": "direct", "exchange_type": "fanout", **given}
    )


def test_the_exchange_to_publish_to_is_bound_right_after_it_is_declared() -> None:
    found = topology()
    exchange, binding = found.ingress_exchange.parts
    assert exchange == Exchange("orders", "fanout")
    assert binding == Binding("orders", "orders.ingress", DestinationKind.QUEUE)
    assert not {"orders"} & {part.name for part in found.behind.nodes}


def test_what_the_ingress_queue_gives_up_goes_where_it_is_kept() -> None:
    queues = {queue.name: queue for queue in topology().behind.queues}
    ingress = queues["orders.ingress"].arguments
    assert ingress["x-dead-letter-exchange"] == "orders.ingress.expired"
    assert ingress["x-dead-letter-strategy"] == "at-least-once"
    assert ingress["x-overflow"] == "reject-publish", "without it RabbitMQ dead-letters at most once"
    assert {queue.arguments["x-delivery-limit"] for queue in queues.values()} == {2**31 - 1}
    assert {queue.type for queue in queues.values()} == {"quorum"}


def test_a_direct_exchange_is_no_entrance() -> None:
    with pytest.raises(ConfigurationError, match="--exchange-type fanout, or topic"):
        topology(exchange_type="direct")


def test_a_copy_has_the_plugins_type_bindings_and_arguments(shop: BrokerSnapshot) -> None:
    switch = switch_from_plugin(shop, "orders")
    found = switch.topology
    assert (found.out_type, found.exchange_type) == ("topic", "topic")
    assert found.out_arguments == {"alternate-exchange": "unrouted"}
    assert {(one.source, one.destination, one.kind.value, one.routing_key) for one in found.out_bindings} == {
        ("orders.out", "audit", "exchange", "#"),
        ("orders.out", "billing", "queue", "order.*.paid"),
        ("orders.out", "screen", "queue", "order.#"),
        ("orders.out", "shipping", "queue", "order.#"),
    }
    assert [(one.source, one.destination) for one in found.sources] == [("shop.events", "orders")]
    assert any("'screen' does not last" in remark for remark in switch.plugin.remarks)


def test_bindings_by_headers_keep_their_arguments(shop: BrokerSnapshot) -> None:
    found = switch_from_plugin(shop, "alerts", new_name="alarms").topology
    assert {one.destination: dict(one.arguments) for one in found.out_bindings} == {
        "billing": {"x-match": "all", "kind": "invoice", "attempt": 3},
        "shipping": {"x-match": "any", "kind": "parcel", "urgent": True},
    }
    assert {one.source for one in found.out_bindings} == {"alarms.out"}
    assert found.sources == ()


def test_an_alternate_exchange_by_policy_becomes_an_argument(shop: BrokerSnapshot) -> None:
    switch = switch_from_plugin(shop, "reminders")
    assert switch.topology.out_arguments == {"alternate-exchange": "unrouted"}
    assert any("policy 'reminders-unrouted'" in remark for remark in switch.plugin.remarks)


@pytest.mark.parametrize(
    ("exchange", "exchange_type", "keys", "survives"),
    [
        ("reminders", "fanout", ["billing", "shipping", ""], True),
        ("reminders", "topic", ["billing", "shipping", "#"], True),
        ("orders", "topic", ["#"], True),
        ("orders", "fanout", [""], False),
        ("alerts", "fanout", [""], True),
    ],
)
def test_what_waits_in_the_plugin_finds_the_ingress_queue(
    shop: BrokerSnapshot, exchange: str, exchange_type: str, keys: list[str], survives: bool
) -> None:
    switch = switch_from_plugin(shop, exchange, exchange_type=exchange_type)
    into = [one for one in switch.topology.ingress_exchange.bindings if one.source == exchange]
    assert [one.routing_key for one in into] == keys
    assert switch.plugin.survives(exchange_type) is survives
    told = " ".join(switch.steps(ingress_exchange=False))
    assert ("are lost when the exchange is deleted" in told) is not survives
    assert ("come to" in told) is survives


def steps(switch: Switch) -> str:
    return "\n".join(switch.steps(ingress_exchange=False))


def test_in_place_publishers_pause_and_bindings_are_exported_first(shop: BrokerSnapshot) -> None:
    switch = switch_from_plugin(shop, "orders")
    told = steps(switch)
    order = ["export_definitions", "stop the publishers", "shop.events", "--replace", "start them", "disable it"]
    assert [told.index(words) for words in order] == sorted(told.index(words) for words in order)
    assert not switch.takes_place(shop.exchanges), "the plugin's exchange is still there"
    assert switch.takes_place({})
    assert switch.steps(ingress_exchange=True) == []


def test_with_another_name_both_work_and_the_old_one_goes_last(shop: BrokerSnapshot) -> None:
    switch = switch_from_plugin(shop, "orders", new_name="orders.v2")
    told = steps(switch)
    assert "one by one" in told
    assert "bind it to 'orders.v2' with the same keys, then unbind it" in told
    assert told.splitlines()[-1].startswith("delete 'orders'")
    assert switch.takes_place(shop.exchanges)
    assert "orders" not in {part.name for part in switch.topology.behind.nodes + switch.topology.ingress_exchange.nodes}


def test_bindings_to_what_is_gone_since_the_export_are_left_out(shop: BrokerSnapshot) -> None:
    live = BrokerSnapshot(exchanges={"audit": shop.exchanges["audit"]}, queues={"billing": shop.queues["billing"]})
    switch = switch_from_plugin(shop, "orders", live=live)
    assert {one.destination for one in switch.topology.out_bindings} == {"audit", "billing"}
    assert switch.topology.sources == ()
    assert sum("is left out" in remark for remark in switch.plugin.remarks) == 3


def test_what_cannot_be_copied(shop: BrokerSnapshot) -> None:
    with pytest.raises(TransportSetupError, match="no exchange 'nothing'"):
        switch_from_plugin(shop, "nothing")
    with pytest.raises(TransportSetupError, match="of type fanout, and not of the delayed-message plugin"):
        switch_from_plugin(shop, "audit")
    with pytest.raises(ConfigurationError, match="the present name of the exchange"):
        switch_from_plugin(shop, "orders", new_name="orders")
    with pytest.raises(ConfigurationError, match="cannot be the output exchange"):
        switch_from_plugin(shop, "orders", new_name="orders.v2", out="orders")


def test_an_export_of_all_virtual_hosts_is_read_for_one() -> None:
    definitions = Definitions(RECORDED / "plugin_definitions_of_all.json")
    assert definitions.virtual_host_with("orders") == "shop"
    found = definitions.snapshot("shop")
    assert found.exchanges["audit"].type == "fanout"
    assert definitions.snapshot("/").exchanges["audit"].type == "topic"
    assert found.alternate_exchange("reminders") == "unrouted"
    with pytest.raises(ConfigurationError, match="in several virtual hosts"):
        definitions.virtual_host_with("audit")
    with pytest.raises(ConfigurationError, match="has no exchange 'nothing'"):
        definitions.virtual_host_with("nothing")


@pytest.mark.parametrize("text", ["", "[]", "{}", "no JSON", json.dumps({"exchanges": [{"name": "orders"}]})])
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="no export of definitions"):
        Definitions(path).snapshot(None)
