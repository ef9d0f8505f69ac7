"""Delay layouts as values, by a model of topic matching that knows nothing of ours."""

import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from delaystore.errors import ConfigurationError, InvalidMessageError, UnsupportedMessageError
from delaystore.transports.rabbitmq.topology import (
    NSERVICEBUS_V1,
    NSERVICEBUS_V2,
    SKIPPING,
    CascadeTopology,
    DestinationKind,
    Layout,
    Routing,
    WalkingCascade,
    celery,
    custom,
    matches,
    topology_named,
)

MILLISECOND = timedelta(milliseconds=1)
TOPOLOGIES = {
    "nservicebus-v2": NSERVICEBUS_V2,
    "nservicebus-v1": NSERVICEBUS_V1,
    "celery": celery(),
    "celery:classic:emea": celery("classic", "emea"),
    "skipping": SKIPPING,
    "skipping:tiny:3": custom("tiny", levels=3, skipping=True),
    "custom:mine": custom("mine"),
    "custom:mine:1": custom("mine", levels=1),
    "custom:mine:20:ms": custom("mine", levels=20, unit=MILLISECOND),
    "without addresses": custom("gist", skipping=True, addresses=False),
}
topologies = st.sampled_from(list(TOPOLOGIES.values()))
words = st.text("ab01 é-_*#", max_size=4).filter(lambda word: word not in ("*", "#"))
addresses = st.lists(words, min_size=1, max_size=4).map(".".join).filter(bool)


def as_regular_expression(pattern: str) -> re.Pattern[str]:
    """Each word with a dot behind it, as the keys below are written."""
    parts = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    return re.compile("".join(parts.get(word) or re.escape(word + ".") for word in pattern.split(".")))


def delivered(layout: Layout, exchange: str, key: str) -> Iterator[str]:
    """The queues that get it, more than once where they do."""
    types = {one.name: one for one in layout.exchanges}
    hits = [
        binding
        for binding in layout.bindings
        if binding.source == exchange
        and (types[exchange].type == "fanout" or as_regular_expression(binding.routing_key).fullmatch(key + "."))
    ]
    for hit in hits:
        if hit.kind is DestinationKind.QUEUE:
            yield hit.destination
        else:
            yield from delivered(layout, hit.destination, key)
    if not hits and "alternate-exchange" in types[exchange].arguments:
        yield from delivered(layout, types[exchange].arguments["alternate-exchange"], key)


def journey(layout: Layout, exchange: str, key: str) -> Iterator[str]:
    """The queues that a message passes, each the only one at its step."""
    arguments: Mapping[str, Mapping[str, Any]] = {queue.name: queue.arguments for queue in layout.queues}
    for _ in range(100):
        (queue,) = delivered(layout, exchange, key)
        yield queue
        if "x-dead-letter-exchange" not in arguments.get(queue, {}):
            return
        exchange = arguments[queue]["x-dead-letter-exchange"]
    raise AssertionError("a circle")


def queues_passed(topology: CascadeTopology, delay: timedelta | float) -> list[str]:
    """The level queues that a message with this delay waits in, in their order."""
    units = topology.units(delay)
    return [topology.level(number) for number in reversed(range(topology.levels)) if units >> number & 1]


def with_destinations(topology: CascadeTopology, *names: str) -> Layout:
    bindings = tuple(one for name in names for one in topology.destination_bindings(name))
    return topology.layout() + Layout(bindings=tuple(dict.fromkeys(bindings)))


@settings(deadline=None)  # the machine is noisy
@given(topology=topologies, address=addresses, data=st.data())
def test_every_delay_passes_one_queue_at_a_time_and_adds_up(
    topology: CascadeTopology, address: str, data: st.DataObject
) -> None:
    if topology is TOPOLOGIES["without addresses"]:
        address = topology.delivery
    units = data.draw(st.integers(0, 2**topology.levels - 1) | st.integers(0, 3), "units")
    assume(units < 2**topology.levels)
    exchange, key = topology.route(units * topology.unit, address)
    layout = with_destinations(topology, address)
    *passed, end = journey(layout, exchange, key)
    ttls = {queue.name: queue.arguments.get("x-message-ttl") for queue in layout.queues}
    assert sum(ttls[name] for name in passed) * MILLISECOND == units * topology.unit
    assert end == address
    assert passed == queues_passed(topology, units * topology.unit)
    assert layout.queues_for(exchange, key) == ((passed or [end])[0],)
    assert len(key.encode()) <= 255


@given(topology=topologies.filter(lambda one: one.undeliverable is not None), mine=addresses, other=addresses)
def test_a_message_reaches_its_own_destination_alone(topology: CascadeTopology, mine: str, other: str) -> None:
    exchange, key = topology.route(0, mine)
    assert set(delivered(with_destinations(topology, other, mine), exchange, key)) == {mine}
    assume(mine != other)
    assert set(delivered(with_destinations(topology, other), exchange, key)) == {topology.undeliverable}


@given(seconds=st.floats(-10, 1e6), topology=topologies.filter(lambda one: one.levels == 28))
@example(seconds=0.0000001, topology=NSERVICEBUS_V2)
def test_delays_round_up_and_are_never_early(seconds: float, topology: CascadeTopology) -> None:
    units = topology.units(seconds)
    assert units == max(0, math.ceil(timedelta(seconds=seconds) / topology.unit))
    assert units * topology.unit >= timedelta(seconds=seconds)


@given(
    pattern=st.lists(st.sampled_from(["a", "b", "*", "#", ""]), min_size=1, max_size=6), key=st.text("ab.", max_size=8)
)
def test_patterns_match_as_regular_expressions_would(pattern: list[str], key: str) -> None:
    assume(key and any(pattern))
    expected = as_regular_expression(".".join(pattern)).fullmatch(key + ".") is not None
    assert matches(".".join(pattern), key) is expected


@pytest.mark.parametrize("pattern", ["#", ""])
def test_an_empty_key_has_no_words(pattern: str) -> None:
    assert matches(pattern, "")
    assert not matches("*", "")


def test_nservicebus_v2_is_what_nservicebus_declares() -> None:
    layout = NSERVICEBUS_V2.layout()
    assert [exchange.name for exchange in layout.exchanges] == [
        "nsb.v2.delay-delivery",
        *(f"nsb.v2.delay-level-{number:02}" for number in range(28)),
    ]
    assert all(exchange.type == "topic" and not exchange.arguments for exchange in layout.exchanges)
    queues = {queue.name: queue.arguments for queue in layout.queues}
    assert queues["nsb.v2.delay-level-27"] == {
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-message-ttl": 134_217_728_000,
        "x-dead-letter-exchange": "nsb.v2.delay-level-26",
    }
    assert queues["nsb.v2.delay-level-00"]["x-dead-letter-exchange"] == "nsb.v2.delay-delivery"
    assert queues["nsb.v2.delay-level-00"]["x-message-ttl"] == 1000
    bindings = {(one.source, one.destination, one.kind.value, one.routing_key) for one in layout.bindings}
    assert len(bindings) == len(layout.bindings) == 56
    level = "nsb.v2.delay-level-{:02}".format
    assert (level(27), level(27), "queue", "1.#") in bindings
    assert (level(27), level(26), "exchange", "0.#") in bindings
    assert (level(1), level(1), "queue", "*." * 26 + "1.#") in bindings
    assert (level(0), "nsb.v2.delay-delivery", "exchange", "*." * 27 + "0.#") in bindings
    assert NSERVICEBUS_V2.maximum == timedelta(seconds=268_435_455)


def test_nservicebus_v1_has_lazy_classic_queues() -> None:
    queue = NSERVICEBUS_V1.layout().queues[3]
    assert queue.name == "nsb.delay-level-03"
    assert queue.arguments == {
        "x-queue-mode": "lazy",
        "x-message-ttl": 8000,
        "x-dead-letter-exchange": "nsb.delay-level-02",
    }


def test_ten_seconds_take_the_route_of_the_documentation() -> None:
    exchange, key = NSERVICEBUS_V2.route(10, "destination")
    assert exchange == "nsb.v2.delay-level-03"
    assert key == "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.1.0.destination"
    assert queues_passed(NSERVICEBUS_V2, 10) == ["nsb.v2.delay-level-03", "nsb.v2.delay-level-01"]
    assert NSERVICEBUS_V2.route(0, "destination").exchange == "nsb.v2.delay-level-00"
    assert NSERVICEBUS_V2.route(-3, "destination") == NSERVICEBUS_V2.route(0, "destination")


def test_the_skipping_cascade_without_addresses_has_the_keys_of_the_gist() -> None:
    gist = custom("gist", levels=4, skipping=True, addresses=False)
    bindings = [(one.source, one.destination, one.routing_key) for one in gist.layout().bindings]
    assert bindings[-5:] == [
        ("gist.ingest", "gist.delay-03", "#.1.*.*.*"),
        ("gist.ingest", "gist.delay-02", "#.0.1.*.*"),
        ("gist.ingest", "gist.delay-01", "#.0.0.1.*"),
        ("gist.ingest", "gist.delay-00", "#.0.0.0.1"),
        ("gist.ingest", "gist.done", "#.0.0.0.0"),
    ]
    assert ("gist.delay-03.done", "gist.done", "#.0.0.0") in bindings
    assert ("gist.delay-00.done", "gist.done", "#") in bindings
    assert gist.route(5, "") == ("gist.ingest", "0.1.0.1")
    with pytest.raises(UnsupportedMessageError, match=r"one destination, 'gist\.done', not 'billing'"):
        gist.route(5, "billing")


def test_celery_binds_the_queue_behind_its_exchange_too() -> None:
    assert celery().level(3) == "celery_delayed_3"
    assert celery("classic", "emea").delivery == "emea_celery_delayed_delivery"
    pattern = "*." * 28 + "tasks"
    bindings = celery().destination_bindings("tasks", Routing.CONVENTIONAL)
    assert [(one.source, one.destination, one.kind.value, one.routing_key) for one in bindings] == [
        ("celery_delayed_delivery", "tasks", "exchange", pattern),
        ("tasks", "tasks", "queue", pattern),
    ]
    (binding,) = NSERVICEBUS_V2.destination_bindings("tasks", Routing.CONVENTIONAL)
    assert binding.kind is DestinationKind.EXCHANGE


@given(units=st.integers(0, 2**28 - 1), address=addresses)
def test_a_key_can_be_read_back(units: int, address: str) -> None:
    assert NSERVICEBUS_V2.read_key(NSERVICEBUS_V2.key(units, address)) == (units, address)


@pytest.mark.parametrize("key", ["", "billing", "1.0.billing", "2." * 28 + "billing", "1." * 27 + "billing"])
def test_another_programs_key_is_none_of_ours(key: str) -> None:
    assert NSERVICEBUS_V2.read_key(key) is None


@pytest.mark.parametrize(
    ("delay", "problem"),
    [
        (2**28, "a delay of 3106 days, 21:24:16 is beyond the maximum of this cascade, 3106 days, 21:24:15"),
        (timedelta.max, "beyond the maximum"),
        (268_435_455.000001, "beyond the maximum"),
        (math.nan, "a timedelta or a number of seconds, not nan"),
        (math.inf, "a timedelta or a number of seconds, not inf"),
        ("3d", "a timedelta or a number of seconds, not '3d'"),
    ],
)
def test_delays_that_cannot_be_are_errors_and_never_cut(delay: Any, problem: str) -> None:
    with pytest.raises(InvalidMessageError, match=problem):
        NSERVICEBUS_V2.route(delay, "billing")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("", "1 to 199 bytes here, not 0"),
        ("é" * 100, "1 to 199 bytes here, not 200"),
        ("a.*.b", "a word \\* or #"),
        ("#", "a word \\* or #"),
        ("\udcff", r"the name '\\udcff' is not UTF-8 text"),
    ],
)
def test_addresses_that_break_a_key_or_a_binding_are_errors(address: str, problem: str) -> None:
    for use in (lambda: NSERVICEBUS_V2.route(1, address), lambda: NSERVICEBUS_V2.destination_bindings(address)):
        with pytest.raises(UnsupportedMessageError, match=problem):
            use()


@pytest.mark.parametrize("name", [name for name in TOPOLOGIES if name != "without addresses"])
def test_presets_are_found_by_name(name: str) -> None:
    assert topology_named(name) == TOPOLOGIES[name]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nsb", "no cascade is called 'nsb'; there are nservicebus-v2"),
        ("custom", "no cascade is called 'custom'"),
        ("nservicebus-v2:mine", "no cascade is called"),
        ("custom:", "needs a prefix"),
        ("custom:mine:many", "the number of levels, and s or ms"),
        ("custom:mine:0", "from 1 to 40, not 0"),
        ("custom:mine:41", "from 1 to 40, not 41"),
        ("custom:mine:4:h", "the number of levels, and s or ms"),
        ("celery:stream", "quorum or classic, not 'stream'"),
        ("custom:" + "x" * 250, "have 1 to 255 bytes"),
        ("custom:\udcff:3", r"the name '\\udcff\.delay-level-02' is not UTF-8 text"),
        ("skipping:\udcff:3", "is not UTF-8 text"),
        ("custom:a\nb:3", r"'a\\nb\.[^']*' contains a control character"),
        ("custom:amq.:3", r"refuses names that begin with 'amq\.'"),
        ("skipping:amq.mine", r"refuses names that begin with 'amq\.'"),
        ("celery:quorum:amq.", r"refuses names that begin with 'amq\.'"),
        ("celery:quorum:", "the prefix in 'celery:quorum:' is empty"),
    ],
)
def test_names_of_no_preset_are_errors(name: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        topology_named(name)


def test_levels_need_names_of_their_own() -> None:
    with pytest.raises(ConfigurationError, match=r"must hold \{level\}"):
        WalkingCascade(level_name="same", delivery="end")


def test_a_topology_needs_no_pika() -> None:
    code = "import sys, delaystore.transports.rabbitmq.topology; sys.exit('pika' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
