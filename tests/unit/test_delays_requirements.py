"""What a cascade asks of a broker, without a broker."""

import pytest

from delaystore.cascades.checking import (
    BrokerPermission,
    accesses,
    check_broker,
    check_default_type,
    check_permissions,
    flags_needed,
)
from delaystore.cascades.findings import FindingKind
from delaystore.cascades.snapshot import NO_PERMISSIONS, Permissions
from delaystore.transports.rabbitmq.topology import (
    NSERVICEBUS_V1,
    NSERVICEBUS_V2,
    CascadeTopology,
    Exchange,
    Layout,
    celery,
    custom,
)

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
