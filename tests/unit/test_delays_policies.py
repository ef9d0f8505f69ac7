"""The policy that catches what has no destination, without a broker."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from delaystore.cascades.findings import FindingKind
from delaystore.cascades.policies import (
    check_policy,
    command_for,
    competitor,
    complete_layout,
    policy_for,
    undeliverable_name,
)
from delaystore.cascades.snapshot import BrokerSnapshot, ExchangeState, Policy
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2, SKIPPING, Binding, DestinationKind, celery, custom

DELIVERY = NSERVICEBUS_V2.delivery
UNDELIVERABLE = "nsb.v2.delay-delivery.undeliverable"
OURS = policy_for(NSERVICEBUS_V2)
assert OURS is not None
MIRRORED = Policy(name="mirrored", pattern="^nsb", definition={"ha-mode": "all"}, apply_to="all", priority=5)


def snapshot(
    *policies: Policy, applied: str | None = None, arguments: Mapping[str, Any] | None = None, caught_by: str = ""
) -> BrokerSnapshot:
    delivery = ExchangeState(name=DELIVERY, type="topic", durable=True, policy=applied, arguments=arguments or {})
    bindings = frozenset({Binding(caught_by, "somewhere", DestinationKind.QUEUE)} if caught_by else ())
    return BrokerSnapshot({DELIVERY: delivery}, {}, bindings, policies)


def test_the_policy_fits_the_delivery_exchange_alone() -> None:
    assert OURS.name == f"delaystore undeliverable for {DELIVERY}"
    assert OURS.apply_to == "exchanges"
    assert OURS.definition == {"alternate-exchange": UNDELIVERABLE}
    assert re.search(OURS.pattern, DELIVERY)
    for other in ("nsb-v2-delay-delivery", DELIVERY + "2", "x" + DELIVERY, UNDELIVERABLE):
        assert not re.search(OURS.pattern, other)


def test_cascades_with_a_place_of_their_own_need_none() -> None:
    for topology in (SKIPPING, custom("mine"), custom("gist", skipping=True, addresses=False)):
        assert policy_for(topology) is None
        assert complete_layout(topology) == topology.layout()
        assert check_policy(topology, BrokerSnapshot(), "/") == []
    assert undeliverable_name(SKIPPING) == "delaystore.skipping.undeliverable"
    assert undeliverable_name(custom("gist", skipping=True, addresses=False)) is None


def test_the_shared_exchange_itself_is_declared_as_others_declare_it() -> None:
    layout = complete_layout(celery())
    delivery = next(one for one in layout.exchanges if one.name == "celery_delayed_delivery")
    assert delivery.arguments == {}
    assert layout.queues[0].name == "celery_delayed_delivery.undeliverable"
    assert layout.queues[0].type == "quorum"


def test_the_command_survives_a_shell() -> None:
    policy = policy_for(celery(prefix="it's $HOME"))
    assert policy is not None
    words = shlex.split(command_for(policy, "a b"))
    assert words[:4] == ["rabbitmqctl", "set_policy", "--vhost", "a b"]
    assert words[-3:-1] == [policy.name, policy.pattern]
    assert json.loads(words[-1]) == {"alternate-exchange": "it's $HOME_celery_delayed_delivery.undeliverable"}


def test_an_exchange_without_a_policy_is_a_finding_with_the_command() -> None:
    (finding,) = check_policy(NSERVICEBUS_V2, snapshot(), "/")
    assert finding.kind is FindingKind.UNDELIVERABLE
    assert command_for(OURS, "/") in finding.text
    assert not finding.blocks


def test_our_policy_is_good_where_it_leads_somewhere() -> None:
    assert check_policy(NSERVICEBUS_V2, snapshot(OURS, applied=OURS.name, caught_by=UNDELIVERABLE), "/") == []
    (finding,) = check_policy(NSERVICEBUS_V2, snapshot(OURS, applied=OURS.name), "/")
    assert "leads nowhere" in finding.text


def test_another_policy_or_an_argument_may_catch_as_well() -> None:
    theirs = Policy(name="theirs", pattern=".*", definition={"alternate-exchange": "lost"})
    assert check_policy(NSERVICEBUS_V2, snapshot(theirs, applied="theirs", caught_by="lost"), "/") == []
    by_argument = snapshot(MIRRORED, applied="mirrored", arguments={"alternate-exchange": "lost"}, caught_by="lost")
    assert check_policy(NSERVICEBUS_V2, by_argument, "/") == []


def test_a_policy_that_keeps_ours_from_applying_is_named() -> None:
    (finding,) = check_policy(NSERVICEBUS_V2, snapshot(OURS, MIRRORED, applied="mirrored"), "/")
    assert "'mirrored' (priority 5)" in finding.text
    assert "rabbitmqctl" not in finding.text


def test_before_the_exchange_is_there_policies_that_would_apply_compete() -> None:
    queues_only = Policy(name="queues", pattern=".*", definition={"max-length": 5}, apply_to="queues", priority=9)
    elsewhere = Policy(name="else", pattern="^celery", definition={}, priority=9)
    assert competitor(NSERVICEBUS_V2, BrokerSnapshot(policies=(queues_only, elsewhere))) is None
    assert competitor(NSERVICEBUS_V2, BrokerSnapshot(policies=(queues_only, MIRRORED, elsewhere))) == MIRRORED
    weaker = Policy(name="weaker", pattern=".*", definition={}, priority=1)
    assert competitor(NSERVICEBUS_V2, BrokerSnapshot(policies=(weaker, MIRRORED))) == MIRRORED
    assert competitor(NSERVICEBUS_V2, BrokerSnapshot(policies=(MIRRORED, weaker))) == MIRRORED
    assert competitor(NSERVICEBUS_V2, snapshot(OURS, applied=OURS.name)) is None
