"""What is told of a cascade, from snapshots of a broker."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import pytest

from delaystore.cascades.snapshot import BrokerSnapshot, ExchangeState, Policy, QueueState
from delaystore.cascades.status import FOREIGN, Level, blocked_destinations, reason_by_snapshot, watch_levels
from delaystore.transports.rabbitmq.topology import Binding, DestinationKind, Routing, topology_named

TOPOLOGY = topology_named("custom:mine:2")
QUEUE, EXCHANGE = DestinationKind.QUEUE, DestinationKind.EXCHANGE
LEVEL = "mine.delay-level-00"
REJECTING = {"x-overflow": "reject-publish"}


def queue(name: str = "q", kind: str = "classic", **more: Any) -> QueueState:
    return QueueState(name=name, type=kind, durable=True, **more)


def exchange(name: str, **more: Any) -> ExchangeState:
    return ExchangeState(name=name, type="fanout", durable=True, **more)


def blocked(*queues: QueueState) -> list[tuple[str, str]]:
    bindings = frozenset(Binding("delivery", one.name, QUEUE) for one in queues)
    snapshot = BrokerSnapshot(queues={one.name: one for one in queues}, bindings=bindings)
    return [(one.name, one.why) for one in blocked_destinations("delivery", snapshot)]


class Broker:
    """A level that is as a test says, one snapshot after another: dead-lettering messages, and more; no time passes."""

    def __init__(self, *dead_lettering: int | None, ready: Sequence[int] = (), published: Sequence[int] = ()) -> None:
        self._counts = zip_longest(dead_lettering, ready, published, fillvalue=0)
        self.slept: list[float] = []

    def snapshot(self) -> BrokerSnapshot:
        dead_lettering, ready, published = next(self._counts)
        messages = (dead_lettering or 0) + (ready or 0)
        level = queue(LEVEL, messages=messages, dead_lettering=dead_lettering, published=published or 0)
        return BrokerSnapshot(queues={LEVEL: level})

    def watch(self, seconds: float) -> Level:
        levels, _ = watch_levels(TOPOLOGY, self.snapshot, seconds, self.slept.append)
        return next(level for level in levels if level.queue == LEVEL)


@pytest.mark.parametrize(
    ("counts", "stuck"),
    [((5, 5, 5), True), ((5, 9, 9), True), ((5, 9, 8), False), ((5, 4, 6), False), ((5, 5, 0), False)],
)
def test_stuck_is_what_never_becomes_fewer(counts: tuple[int, ...], stuck: bool) -> None:
    assert Broker(*counts).watch(12).stuck is stuck


def test_a_level_flows_if_what_it_had_should_have_expired_and_is_not_dead_lettering() -> None:
    assert not Broker(5, 6, 7, ready=(500, 510, 520)).watch(12).stuck
    assert Broker(5, 300, 505, ready=(500, 300, 200)).watch(12).stuck


def test_a_level_flows_if_it_grows_by_less_than_is_published_to_it() -> None:
    assert not Broker(5, 6, 7, published=(0, 500, 1000)).watch(12).stuck
    assert Broker(5, 500, 1000, published=(0, 500, 1000)).watch(12).stuck


@pytest.mark.parametrize("count", [0, None])
def test_nobody_waits_where_nothing_is_dead_lettering(count: int | None) -> None:
    broker = Broker(count)
    assert not broker.watch(12).stuck
    assert broker.slept == []


def test_what_is_gone_is_not_waited_for() -> None:
    broker = Broker(5, 0)
    assert not broker.watch(60).stuck
    assert broker.slept == [6.0]


def test_one_snapshot_tells_nothing() -> None:
    level = Broker(5).watch(0)
    assert (level.dead_lettering, level.stuck) == (5, False)


def test_a_queue_is_full_at_its_maximum_length_and_only_if_it_rejects() -> None:
    limit = {"x-max-length": 10}
    assert blocked(queue(arguments={**limit, **REJECTING}, ready=10, messages=12)) != []
    assert blocked(queue(arguments={**limit, **REJECTING}, ready=9, messages=12)) == []
    assert blocked(queue(arguments=limit, ready=10, messages=10)) == []
    assert blocked(queue(arguments=REJECTING, ready=10, messages=10)) == []
    assert blocked(queue(arguments={**limit, **REJECTING})) == []


def test_a_quorum_queue_counts_what_is_unacknowledged_as_well() -> None:
    arguments = {"x-max-length": 10, **REJECTING}
    assert blocked(queue(kind="quorum", arguments=arguments, ready=1, messages=10)) != []


def test_a_queue_is_full_by_bytes_too() -> None:
    arguments = {"x-max-length-bytes": 1000, **REJECTING}
    assert blocked(queue(arguments=arguments, ready_bytes=1000)) == [
        ("q", "is full and rejects: 1,000 bytes, max-length-bytes 1,000")
    ]


def test_of_an_argument_and_a_policy_the_smaller_length_applies() -> None:
    policy = {"max-length": 5, "overflow": "reject-publish"}
    assert blocked(queue(arguments={"x-max-length": 10}, policy_definition=policy, ready=5)) != []
    assert blocked(queue(arguments={"x-max-length": 3}, policy_definition=policy, ready=3)) != []


@pytest.mark.parametrize(("state", "names"), [("running", []), (None, []), ("down", ["q"]), ("minority", ["q"])])
def test_a_queue_that_is_not_available_is_blocked(state: str | None, names: list[str]) -> None:
    assert [name for name, _ in blocked(queue(state=state))] == names


def test_destinations_behind_other_exchanges_are_found_though_they_go_in_circles() -> None:
    bindings = {
        Binding("delivery", "a", EXCHANGE),
        Binding("a", "b", EXCHANGE),
        Binding("b", "a", EXCHANGE),
        Binding("b", "q", QUEUE),
    }
    snapshot = BrokerSnapshot(queues={"q": queue(state="down")}, bindings=frozenset(bindings))
    assert [one.name for one in blocked_destinations("delivery", snapshot)] == ["q"]


def test_an_exchange_that_leads_nowhere_is_blocked_unless_it_has_an_alternate() -> None:
    names = ("nowhere", "by argument", "by policy")
    snapshot = BrokerSnapshot(
        exchanges={
            "nowhere": exchange("nowhere"),
            "by argument": exchange("by argument", arguments={"alternate-exchange": "x"}),
            "by policy": exchange("by policy", policy="p"),
        },
        bindings=frozenset(Binding("delivery", name, EXCHANGE) for name in names),
        policies=(Policy(name="p", pattern="", definition={"alternate-exchange": "x"}),),
    )
    assert [(one.kind, one.name) for one in blocked_destinations("delivery", snapshot)] == [(EXCHANGE, "nowhere")]


@pytest.mark.parametrize("delay", [0, 3])
def test_the_reason_is_found_from_the_key_whatever_the_delay(delay: float) -> None:
    _, key = TOPOLOGY.route(delay, "a.b")
    delivery = exchange(TOPOLOGY.delivery, arguments={"alternate-exchange": "mine.undeliverable"})
    topic = ExchangeState(name=delivery.name, type="topic", durable=True, arguments=delivery.arguments)
    caught = Binding("mine.undeliverable", "mine.undeliverable", QUEUE)
    other = TOPOLOGY.destination_bindings("b")

    def reason(*bindings: Binding, exchanges: tuple[str, ...] = (), queues: tuple[str, ...] = ()) -> str:
        known = {topic.name: topic, **{name: exchange(name) for name in (*exchanges, "mine.undeliverable")}}
        snapshot = BrokerSnapshot(known, {name: queue(name) for name in queues}, frozenset({caught, *other, *bindings}))
        return reason_by_snapshot(TOPOLOGY, snapshot, key)

    assert reason(queues=("b",)) == "no queue or exchange has this name"
    assert reason(queues=("a.b",)) == "the queue is not bound; run delaystore cascade bind a.b --routing direct"
    assert reason(exchanges=("a.b",)).startswith("the exchange is not bound")
    conventional = TOPOLOGY.destination_bindings("a.b", Routing.CONVENTIONAL)
    assert reason(*conventional, exchanges=("a.b",)) == "exchange 'a.b' is bound, and leads to no queue"
    direct = TOPOLOGY.destination_bindings("a.b")
    assert reason(*direct, queues=("a.b",)).startswith("bound since: queue 'a.b'")


def test_a_key_of_another_kind_is_told_apart() -> None:
    assert reason_by_snapshot(TOPOLOGY, BrokerSnapshot(), "a.b") == FOREIGN
