"""What a cascade asks of a broker: its policy, its requirements, its deletion; without a broker."""

import json
import pickle
import re
import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from delaystore.cascades import CASCADE, TopologyInUseError, Uses
from delaystore.cascades.checking import (
    BrokerPermission,
    accesses,
    check_broker,
    check_default_type,
    check_permissions,
    flags_needed,
)
from delaystore.cascades.findings import FindingKind
from delaystore.cascades.policies import (
    check_policy,
    command_for,
    competitor,
    complete_layout,
    policy_for,
    undeliverable_name,
)
from delaystore.cascades.snapshot import NO_PERMISSIONS, BrokerSnapshot, ExchangeState, Permissions, Policy
from delaystore.transports.rabbitmq.topology import (
    NSERVICEBUS_V1,
    NSERVICEBUS_V2,
    SKIPPING,
    Binding,
    CascadeTopology,
    DestinationKind,
    Exchange,
    Layout,
    celery,
    custom,
)

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


def test_the_error_says_the_same_in_another_process() -> None:
    uses = Uses(counts={"level": 2, "other": None})
    error = TopologyInUseError(uses, CASCADE, " (just now)")
    assert str(error) == (
        "the cascade is not deleted: 2 messages are in 'level', and would be lost (just now); let them arrive, or pass "
        "--force"
    )
    copied = pickle.loads(pickle.dumps(error))
    assert str(copied) == str(error)
    assert copied.uses == uses


FLAGS = {"quorum_queue": True, "stream_queue": True}


@pytest.mark.parametrize(
    ("topology", "version", "finds"),
    [
        (NSERVICEBUS_V2, "3.7.28", ["too old for quorum queues", "too old for at-least-once"]),
        (NSERVICEBUS_V2, "3.9.29", ["too old for at-least-once"]),
        (NSERVICEBUS_V2, "3.10.0", []),
        (NSERVICEBUS_V2, "4.3.0", []),
        (NSERVICEBUS_V2, "10.0.1", []),
        (NSERVICEBUS_V2, "4.0.0-rc.1", []),
        (NSERVICEBUS_V1, "3.7.28", []),
        (NSERVICEBUS_V1, "4.2.9", []),
        (NSERVICEBUS_V1, "4.3.6", []),
        (celery("classic"), "3.7.0", []),
        (celery("classic"), "4.3.0", []),
    ],
)
def test_the_version_must_know_what_the_layout_uses(topology: CascadeTopology, version: str, finds: list[str]) -> None:
    findings = check_broker(version, FLAGS, topology.layout())
    assert len(findings) == len(finds)
    for finding, text in zip(findings, finds, strict=True):
        assert text in finding.text
        assert version in finding.subject
        assert finding.kind is FindingKind.VERSION
        assert finding.blocks


def test_queues_without_a_type_must_not_become_quorum_queues() -> None:
    (finding,) = check_default_type("quorum", "sales", NSERVICEBUS_V1.layout())
    assert finding.blocks
    assert "rabbitmqctl update_vhost_metadata sales --default-queue-type classic" in finding.text
    assert check_default_type("quorum", "sales", NSERVICEBUS_V2.layout()) == []
    for default in (None, "undefined", "classic"):
        assert check_default_type(default, "sales", NSERVICEBUS_V1.layout()) == []


def test_at_least_once_dead_lettering_needs_its_feature_flag() -> None:
    (finding,) = check_broker("3.10.8", {**FLAGS, "stream_queue": False}, NSERVICEBUS_V2.layout())
    assert finding.kind is FindingKind.FEATURE_FLAG
    assert "rabbitmqctl enable_feature_flag stream_queue" in finding.text
    assert check_broker("3.10.8", {"stream_queue": False}, celery("classic").layout()) == []


def test_flags_that_a_newer_broker_no_longer_lists_are_part_of_it() -> None:
    assert check_broker("4.2.0", {}, NSERVICEBUS_V2.layout()) == []
    assert flags_needed(NSERVICEBUS_V2.layout()) == ["quorum_queue", "stream_queue"]
    assert flags_needed(NSERVICEBUS_V1.layout()) == []


def test_every_access_that_declaring_takes_is_asked_for() -> None:
    needed = accesses(custom("mine", levels=1).layout())
    assert set(needed) == {
        BrokerPermission("configure", "mine.undeliverable"),
        BrokerPermission("configure", "mine.delay-delivery"),
        BrokerPermission("configure", "mine.delay-level-00"),
        BrokerPermission("read", "mine.undeliverable"),
        BrokerPermission("read", "mine.delay-delivery"),
        BrokerPermission("read", "mine.delay-level-00"),
        BrokerPermission("write", "mine.undeliverable"),
        BrokerPermission("write", "mine.delay-delivery"),
        BrokerPermission("write", "mine.delay-level-00"),
    }


def test_an_alternate_exchange_is_read_from_and_written_to() -> None:
    layout = Layout(exchanges=(Exchange("end", arguments={"alternate-exchange": "lost"}),))
    assert accesses(layout) == [
        BrokerPermission("configure", "end"),
        BrokerPermission("read", "end"),
        BrokerPermission("write", "lost"),
    ]


def test_permissions_are_regular_expressions_over_names() -> None:
    layout = custom("mine", levels=2).layout()
    assert check_permissions(Permissions(".*", ".*", ".*"), layout) == []
    assert check_permissions(Permissions(r"^mine\.", r"^mine\.", r"^mine\."), layout) == []
    (finding,) = check_permissions(Permissions("^mine.delay-level", ".*", ".*"), layout)
    assert finding.subject == "permission configure"
    assert "'mine.undeliverable', 'mine.delay-delivery';" in finding.text


def test_a_user_without_permissions_gets_one_finding_for_each_kind_of_access() -> None:
    findings = check_permissions(NO_PERMISSIONS, NSERVICEBUS_V2.layout())
    assert [finding.subject for finding in findings] == ["permission configure", "permission read", "permission write"]
    assert "and 26 more" in findings[0].text
    assert len(NSERVICEBUS_V2.names()) == 29


def test_an_expression_of_another_dialect_is_left_to_the_broker() -> None:
    assert Permissions("(?<n>.*)(", ".*", ".*").allow("configure", "anything")
