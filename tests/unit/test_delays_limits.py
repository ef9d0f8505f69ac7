"""How often a message may be given back, and the policy that lifts the limit, without a broker."""

import re
from dataclasses import replace
from typing import Any

import pytest

from delaystore.cascades.delivery_limits import (
    check_limits,
    delivery_limit,
    lifted_by_policy,
    limit_competitor,
    limit_policy,
    limited_queues,
)
from delaystore.cascades.findings import FindingKind
from delaystore.cascades.policies import command_for, complete_layout
from delaystore.cascades.snapshot import BrokerSnapshot, Policy, QueueState
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V1, NSERVICEBUS_V2, CascadeTopology, celery, custom

OURS = limit_policy(NSERVICEBUS_V2)
assert OURS is not None
LEVEL = NSERVICEBUS_V2.level(16)
THEIRS = Policy(name="theirs", pattern="^nsb", definition={"max-length": 5}, apply_to="queues", priority=3)


def queue(name: str = LEVEL, kind: str = "quorum", **more: Any) -> QueueState:
    return QueueState(name=name, type=kind, durable=True, **more)


def snapshot(*policies: Policy, **more: Any) -> BrokerSnapshot:
    return BrokerSnapshot(queues={LEVEL: queue(**more)}, policies=policies)


@pytest.mark.parametrize(
    ("version", "state", "limit"),
    [
        ("3.10.8", queue(), None),
        ("3.10.8", None, None),
        ("4.0.1", None, 20),
        ("unknown", None, 20),
        ("4.0.1", queue(kind="classic"), None),
        ("4.0.1", queue(), 20),
        ("4.0.1", queue(policy_definition={"delivery-limit": -1}), None),
        ("4.0.1", queue(arguments={"x-delivery-limit": 100_000}), None),
        ("4.0.1", queue(arguments={"x-delivery-limit": 7}), 7),
        ("4.0.1", queue(arguments={"x-delivery-limit": 7}, policy_definition={"delivery-limit": -1}), 7),
        ("4.0.1", queue(policy_definition={"delivery-limit": -1}, delivery_limit=20), 20),
        ("3.10.8", queue(arguments={"x-delivery-limit": -1}), 0),
        ("3.10.8", queue(arguments={"x-delivery-limit": 7}, policy_definition={"delivery-limit": 5}), 5),
    ],
)
def test_how_often_a_message_may_be_given_back(version: str, state: QueueState | None, limit: int | None) -> None:
    assert delivery_limit(version, state) == limit


def test_a_policy_counts_before_the_queue_tells_of_it() -> None:
    assert delivery_limit("4.0.5", queue(), [OURS]) is None
    assert delivery_limit("4.0.5", queue(), [OURS, THEIRS]) == 20
    elsewhere = Policy(name="e", pattern=".*", definition={"delivery-limit": 1}, apply_to="exchanges", priority=9)
    assert delivery_limit("4.3.6", queue(), [OURS, elsewhere]) is None


@pytest.mark.parametrize(
    "topology",
    [
        NSERVICEBUS_V2,
        NSERVICEBUS_V1,
        celery(),
        celery("classic", "a.b"),
        custom("9", levels=1),
        custom("x+", levels=12),
    ],
)
def test_the_policy_fits_the_quorum_queues_of_the_cascade_alone(topology: CascadeTopology) -> None:
    policy = limit_policy(topology)
    assert policy is not None
    for one in complete_layout(topology).queues:
        assert bool(re.search(policy.pattern, one.name)) == (one.type == "quorum")
        assert not re.search(policy.pattern, f"x{one.name}")
        assert not re.search(policy.pattern, f"{one.name}.error")


def test_queues_with_a_limit_are_a_finding_with_the_command() -> None:
    (finding,) = check_limits("4.0.5", NSERVICEBUS_V2, snapshot(), "/")
    assert finding.kind is FindingKind.DELIVERY_LIMIT
    assert "limit of 20" in finding.text
    assert command_for(OURS, "/") in finding.text
    assert not finding.blocks
    assert check_limits("4.0.5", NSERVICEBUS_V2, snapshot(OURS), "/") == []
    assert check_limits("3.13.0", NSERVICEBUS_V2, snapshot(), "/") == []


def test_what_keeps_the_policy_from_helping_is_named() -> None:
    (finding,) = check_limits("4.0.5", NSERVICEBUS_V2, snapshot(OURS, THEIRS), "/")
    assert "'theirs' (priority 3)" in finding.text
    assert limit_competitor(NSERVICEBUS_V2, snapshot(OURS)) is None
    (finding,) = check_limits("4.0.5", NSERVICEBUS_V2, snapshot(OURS, arguments={"x-delivery-limit": 5}), "/")
    assert "was declared with it" in finding.text
    low = replace(THEIRS, definition={"delivery-limit": 3})
    (finding,) = check_limits("4.3.6", NSERVICEBUS_V2, snapshot(low, arguments={"x-delivery-limit": 100_000}), "/")
    assert "limit of 3" in finding.text
    assert "'theirs' (priority 3) applies" in finding.text


@pytest.mark.parametrize(
    ("policies", "lifted"),
    [
        ([], False),
        ([OURS], True),
        ([OURS, THEIRS], False),
        ([OURS, replace(THEIRS, priority=-1)], True),
        ([replace(THEIRS, definition={"delivery-limit": 100_000})], True),
        ([replace(THEIRS, definition={"delivery-limit": -1})], True),
        ([replace(THEIRS, definition={"delivery-limit": 5})], False),
        ([replace(THEIRS, definition={"delivery-limit": 100_000}, pattern="level-16$")], False),
    ],
)
def test_a_limit_is_lifted_by_the_policy_that_applies_to_each_queue(policies: list[Policy], lifted: bool) -> None:
    assert lifted_by_policy(NSERVICEBUS_V2, policies) == lifted


def test_queues_that_do_not_exist_have_no_limit() -> None:
    assert limited_queues("4.0.5", NSERVICEBUS_V2, BrokerSnapshot()) == {}
    assert limited_queues("4.0.5", NSERVICEBUS_V2, snapshot()) == {LEVEL: 20}
