"""How a snapshot of a broker differs from a layout, without a broker."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from delaystore.cascades.findings import Finding, FindingKind, differences, missing_parts
from delaystore.cascades.snapshot import BrokerSnapshot, ExchangeState, QueueState
from delaystore.transports.rabbitmq.topology import (
    NSERVICEBUS_V1,
    NSERVICEBUS_V2,
    SKIPPING,
    Binding,
    DestinationKind,
    Layout,
    celery,
)

V2 = NSERVICEBUS_V2.layout()
LEVEL = "nsb.v2.delay-level-05"
ENDS = {NSERVICEBUS_V2.delivery}


def snapshot_of(layout: Layout) -> BrokerSnapshot:
    """The snapshot of a broker after `layout` was declared."""
    exchanges = [ExchangeState(name=e.name, type=e.type, durable=True, arguments=e.arguments) for e in layout.exchanges]
    queues = [QueueState(name=q.name, type=q.type, durable=True, arguments=q.arguments) for q in layout.queues]
    return BrokerSnapshot({e.name: e for e in exchanges}, {q.name: q for q in queues}, frozenset(layout.bindings))


def with_queue(**changes: Any) -> BrokerSnapshot:
    snapshot = snapshot_of(V2)
    return replace(snapshot, queues={**snapshot.queues, LEVEL: replace(snapshot.queues[LEVEL], **changes)})


def with_argument(name: str, value: Any) -> BrokerSnapshot:
    arguments = {**snapshot_of(V2).queues[LEVEL].arguments, name: value}
    return with_queue(arguments={key: value for key, value in arguments.items() if value is not None})


def the_only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


@pytest.mark.parametrize("layout", [V2, NSERVICEBUS_V1.layout(), SKIPPING.layout(), celery("classic").layout()])
def test_what_was_declared_equals_the_layout(layout: Layout) -> None:
    assert differences(layout, snapshot_of(layout)) == []
    assert missing_parts(layout, snapshot_of(layout)) == []


def test_on_an_empty_broker_everything_is_missing_in_the_order_of_declaring() -> None:
    findings = differences(V2, BrokerSnapshot())
    assert {finding.kind for finding in findings} == {FindingKind.MISSING}
    assert [finding.subject.split()[0] for finding in findings] == ["exchange"] * 29 + ["queue"] * 28 + ["binding"] * 56
    assert not any(finding.blocks for finding in findings)


@pytest.mark.parametrize(
    ("name", "actual"),
    [
        ("x-message-ttl", 31_999),
        ("x-message-ttl", None),
        ("x-dead-letter-exchange", "elsewhere"),
        ("x-dead-letter-strategy", "at-most-once"),
        ("x-dead-letter-strategy", None),
        ("x-overflow", "drop-head"),
        ("x-max-length", 10),
    ],
)
def test_an_argument_that_differs_is_named_with_both_values(name: str, actual: Any) -> None:
    finding = the_only(differences(V2, with_argument(name, actual), ENDS))
    expected = next(queue for queue in V2.queues if queue.name == LEVEL).arguments.get(name)
    assert finding.kind is FindingKind.INEQUIVALENT
    assert (finding.argument, finding.expected, finding.actual) == (name, expected, actual)
    assert finding.subject == f"queue '{LEVEL}'"
    for value in (expected, actual):
        assert ("absent" if value is None else repr(value)) in finding.text


@pytest.mark.parametrize(
    "changes", [{"type": "classic"}, {"durable": False}, {"auto_delete": True}, {"exclusive": True}]
)
def test_a_queue_of_another_nature_is_inequivalent(changes: dict[str, Any]) -> None:
    finding = the_only(differences(V2, with_queue(**changes), ENDS))
    assert finding.kind is FindingKind.INEQUIVALENT
    assert finding.actual in changes.values()


def test_a_queue_of_the_default_type_may_spell_it_out_or_not() -> None:
    snapshot = snapshot_of(NSERVICEBUS_V1.layout())
    name = "nsb.delay-level-00"
    spelled = {**snapshot.queues[name].arguments, "x-queue-type": "classic"}
    snapshot = replace(snapshot, queues={**snapshot.queues, name: replace(snapshot.queues[name], arguments=spelled)})
    assert differences(NSERVICEBUS_V1.layout(), snapshot) == []


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        (lambda state: replace(state, type="fanout"), "type"),
        (lambda state: replace(state, internal=True), "internal"),
        (lambda state: replace(state, auto_delete=True), "auto_delete"),
        (lambda state: replace(state, arguments={"alternate-exchange": "x"}), "alternate-exchange"),
    ],
)
def test_an_exchange_of_another_nature_is_inequivalent(
    change: Callable[[ExchangeState], ExchangeState], argument: str
) -> None:
    snapshot = snapshot_of(V2)
    snapshot = replace(snapshot, exchanges={**snapshot.exchanges, LEVEL: change(snapshot.exchanges[LEVEL])})
    finding = the_only(differences(V2, snapshot, ENDS))
    assert finding.subject == f"exchange '{LEVEL}'"
    assert finding.argument == argument


def test_a_binding_that_is_missing_is_named() -> None:
    snapshot = snapshot_of(V2)
    gone = V2.bindings[7]
    finding = the_only(differences(V2, replace(snapshot, bindings=snapshot.bindings - {gone}), ENDS))
    assert finding.kind is FindingKind.MISSING
    assert repr(gone.routing_key) in finding.subject


def test_a_binding_too_much_is_found_on_levels_but_not_where_destinations_are_bound() -> None:
    snapshot = snapshot_of(V2)
    astray = Binding(LEVEL, "spy", DestinationKind.QUEUE, "#")
    destination = Binding(NSERVICEBUS_V2.delivery, "billing", DestinationKind.QUEUE, "#.billing")
    unrelated = Binding("amq.topic", "billing", DestinationKind.QUEUE, "#")
    finding = the_only(
        differences(V2, replace(snapshot, bindings=snapshot.bindings | {astray, destination, unrelated}), ENDS)
    )
    assert finding.kind is FindingKind.EXTRA_BINDING
    assert "'spy'" in finding.subject
