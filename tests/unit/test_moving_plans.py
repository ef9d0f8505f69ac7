"""What is moved of a cascade, and where to, without a broker."""

import struct
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import data, spec

from delaystore.cascades.moving._forwarding import BatchResult, Result, ResultKind
from delaystore.cascades.moving._planning import (
    POISON_PROPERTIES,
    POISON_REASON,
    LevelMessage,
    PlannedCopy,
    Planner,
    UnmovableError,
    poisoned,
)
from delaystore.cascades.moving.mover import MoveSettings
from delaystore.cascades.moving.report import MoveReport
from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.consuming import Acknowledgement, Acknowledgements
from delaystore.transports.rabbitmq.delay_headers import DELAY_IN_SECONDS, TIME_SENT, due_time, time_sent_text
from delaystore.transports.rabbitmq.raw import (
    MalformedPropertiesError,
    MalformedTableError,
    RawProperties,
    TableEntry,
    integer_of,
    integer_value,
    join_table,
    split_table,
    text_of,
    text_value,
)
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V1, NSERVICEBUS_V2, CascadeTopology, celery, custom
from delaystore.transports.rabbitmq.topology.cascades import MILLISECOND, DueFrom

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
V1 = NSERVICEBUS_V1


def waiting(
    units: int, headers: dict[str, Any] | None, *, level: int | None = None, key: str | None = None, **properties: Any
) -> LevelMessage:
    """A message in a level queue of v1; by default in the highest that its key has."""
    level = max(units.bit_length() - 1, 0) if level is None else level
    encoded = b"".join(spec.BasicProperties(headers=headers, **properties).encode())
    routing_key = V1.key(units, "sales") if key is None else key
    return LevelMessage(1, level, V1.level(level), routing_key, RawProperties(encoded), b"body", redelivered=False)


def planned(
    message: LevelMessage,
    *,
    target: CascadeTopology = NSERVICEBUS_V2,
    due_from: DueFrom = DueFrom.HEADERS,
    destination: str | None = None,
    user: str | None = None,
) -> PlannedCopy:
    return Planner(V1, target, due_from, lambda _: destination, lambda _: user).plan(message, NOW)


def decoded(plan: PlannedCopy) -> dict[str, Any]:
    headers = spec.BasicProperties().decode(plan.copy.properties.encoded).headers
    return dict(headers or {})


def sent(seconds_ago: float, delay: int) -> dict[str, Any]:
    return {TIME_SENT: time_sent_text(NOW - timedelta(seconds=seconds_ago)), DELAY_IN_SECONDS: delay}


@given(st.integers(0, 2**27), st.floats(0, 2**28))
def test_a_copy_is_never_early_and_less_than_a_unit_late(delay: int, ago: float) -> None:
    message = waiting(delay, headers := sent(ago, delay))
    plan = planned(message)
    due = due_time(headers)
    assert due is not None
    assert timedelta(0) <= NOW + plan.delay - max(due, NOW) < timedelta(seconds=1)
    key = NSERVICEBUS_V2.read_key(plan.copy.address.routing_key)
    assert key == (plan.delay.total_seconds(), "sales")
    assert plan.copy.properties is message.properties


def test_a_cascade_of_milliseconds_is_met_to_the_millisecond() -> None:
    plan = planned(waiting(10, sent(0.7504, 10)), target=custom("own", unit=MILLISECOND))
    assert plan.delay == timedelta(milliseconds=9250)


@given(st.integers(1, 2**28 - 1), st.data())
def test_by_its_key_a_message_is_never_early_and_late_by_its_present_level_at_most(
    units: int, draws: st.DataObject
) -> None:
    levels = [level for level in range(28) if units >> level & 1]
    level = draws.draw(st.sampled_from(levels))
    waited_here = draws.draw(st.integers(0, 2**level))
    truly_left = sum(2**one for one in levels if one <= level) - waited_here
    plan = planned(waiting(units, None, level=level), due_from=DueFrom.EITHER)
    assert 0 <= plan.delay.total_seconds() - truly_left <= 2**level


def test_what_goes_by_its_key_gets_headers_that_say_so() -> None:
    plan = planned(waiting(5, {"n": 1}), due_from=DueFrom.EITHER)
    assert decoded(plan) == {"n": 1, **sent(0, 5)}
    assert due_time(decoded(plan)) == NOW + plan.delay
    later = planned(waiting(5, sent(100, 1)), due_from=DueFrom.ROUTING_KEY)
    assert due_time(decoded(later)) == NOW + later.delay == NOW + timedelta(seconds=5)
    assert decoded(later)[TIME_SENT] == sent(100, 0)[TIME_SENT]


def test_a_time_that_another_program_writes_its_own_way_is_not_written_over() -> None:
    plan = planned(waiting(5, {TIME_SENT: "yesterday"}), due_from=DueFrom.ROUTING_KEY)
    assert decoded(plan) == {TIME_SENT: "yesterday"}


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {TIME_SENT: time_sent_text(NOW)},
        {DELAY_IN_SECONDS: 5},
        {TIME_SENT: "yesterday", DELAY_IN_SECONDS: 5},
        {TIME_SENT: time_sent_text(NOW), DELAY_IN_SECONDS: "5"},
        {TIME_SENT: time_sent_text(NOW), DELAY_IN_SECONDS: 2**62},
        {"eta": NOW.isoformat()},
        {"task": "t", "eta": None},
        {"task": "t", "eta": "2026-05-01T12:00:00"},
    ],
)
def test_headers_that_do_not_say_when_are_no_ground_to_guess(headers: dict[str, Any] | None) -> None:
    with pytest.raises(UnmovableError, match="do not say when"):
        planned(waiting(5, headers))


def test_a_celery_task_says_when_by_its_eta() -> None:
    headers = {"task": "t", "eta": (NOW + timedelta(seconds=61.5)).isoformat()}
    plan = planned(waiting(62, headers), target=celery())
    assert plan.delay == timedelta(seconds=62)
    assert decoded(plan) == headers


def test_what_the_levels_left_is_taken_off_and_the_rest_stays_in_order() -> None:
    headers = {"x-death": [{"count": 1}], "b": 1, "x-first-death-queue": "q", **sent(0, 5), "x-last-death-reason": "r"}
    assert list(decoded(planned(waiting(5, headers)))) == ["b", TIME_SENT, DELAY_IN_SECONDS]


def test_an_expiration_waits_in_a_header_but_for_what_is_due() -> None:
    plan = planned(waiting(5, sent(0, 5), expiration="100"))
    assert decoded(plan)["delaystore.expiration"] == "100"
    assert plan.copy.properties.text("expiration") is None
    overdue = planned(waiting(5, sent(9, 5), expiration="100"))
    assert overdue.copy.properties.text("expiration") == "100"


def test_headers_that_come_long_before_the_key_are_told() -> None:
    assert planned(waiting(2**12 + 500, sent(9000, 10), level=12)).disagreeing
    assert not planned(waiting(2**12 + 500, sent(0, 2**12 + 500), level=12)).disagreeing


@pytest.mark.parametrize("key", ["sales", "0.1.sales", "", V1.key(5, "x")[:-1]])
def test_a_key_of_no_cascade_is_unmovable(key: str) -> None:
    with pytest.raises(UnmovableError, match="routing key"):
        planned(waiting(5, sent(0, 5), key=key))


def test_what_stands_in_the_way_is_told() -> None:
    with pytest.raises(UnmovableError, match="no queue"):
        planned(waiting(5, sent(0, 5)), destination="no queue")
    with pytest.raises(UnmovableError, match="another's"):
        planned(waiting(5, sent(0, 5), user_id="bob"), user="another's")
    with pytest.raises(UnmovableError, match="beyond the maximum"):
        planned(waiting(5, sent(0, 500)), target=custom("own", levels=8))
    with pytest.raises(UnmovableError, match="'BCC'"):
        planned(waiting(5, {**sent(0, 5), "BCC": ["x"]}))


def test_properties_that_cannot_be_read_go_to_the_poison_queue_as_they_are() -> None:
    message = LevelMessage(1, 0, V1.level(0), b"\xff", RawProperties(b"\x20\x00\x00"), b"body", redelivered=False)
    with pytest.raises(UnmovableError, match="cannot be read"):
        planned(message)
    copy = poisoned(message, "why", "bin")
    headers = spec.BasicProperties().decode(copy.properties.encoded).headers
    assert headers is not None
    assert headers[POISON_REASON] == "why"
    assert headers[POISON_PROPERTIES] == b"\x20\x00\x00"
    assert copy.address == ("", "bin")
    assert copy.body == b"body"


def test_a_poisoned_message_has_nothing_left_that_the_broker_would_act_upon() -> None:
    message = waiting(5, {"CC": ["a"], "BCC": ["b"], "n": 1}, user_id="bob", expiration="1", app_id="app")
    properties = spec.BasicProperties().decode(poisoned(message, "why", "bin").properties.encoded)
    assert (properties.user_id, properties.expiration, properties.app_id) == (None, None, "app")
    assert properties.headers is not None
    assert {"CC", "BCC"}.isdisjoint(properties.headers)
    assert properties.headers["delaystore.cc"] == ["a"]
    assert properties.headers["delaystore.user-id"] == "bob"
    assert properties.headers["n"] == 1


@given(st.lists(st.lists(st.integers(1, 40), unique=True), max_size=10), st.integers(0, 10))
def test_what_is_done_is_acknowledged_at_once_and_nothing_else(batches: list[list[int]], kept_at: int) -> None:
    acknowledgements = Acknowledgements()
    done: set[int] = set()
    acknowledged: Counter[int] = Counter()
    fresh = [[tag for tag in batch if tag not in set().union(*batches[:at])] for at, batch in enumerate(batches)]
    for at, batch in enumerate(fresh):
        if at == kept_at:
            acknowledgements.acknowledge_singly()
        done.update(batch)
        _note(acknowledgements.done(batch), acknowledged)
        assert acknowledged.keys() == done
    assert set(acknowledged.values()) <= {1}


def _note(said: list[Acknowledgement], acknowledged: Counter[int]) -> None:
    for tag, multiple in said:
        assert tag not in acknowledged  # the broker would take it for a mistake
        tags = [one for one in range(1, tag + 1) if one not in acknowledged] if multiple else [tag]
        acknowledged.update(tags)


def test_batches_done_in_order_take_one_acknowledgement_each() -> None:
    acknowledgements = Acknowledgements()
    assert acknowledgements.done([1, 2]) == [(2, True)]
    assert acknowledgements.done([5, 4]) == [(4, False), (5, False)]
    assert acknowledgements.done([3]) == [(3, True)]
    assert acknowledgements.done([6, 8]) == [(6, True), (8, False)]
    acknowledgements.acknowledge_singly()
    assert acknowledgements.done([7, 9]) == [(7, False), (9, False)]


def report_of(*results: Result | None, redelivered: bool = False) -> MoveReport:
    report = MoveReport("a", "b")
    message = LevelMessage(1, 0, "q", "k", RawProperties(b"\0\0"), b"", redelivered)
    report.add(BatchResult([message] * len(results), results, repeated=0, trouble=None))
    return report


TODAY = datetime(2026, 5, 1, tzinfo=UTC)
MOVED = Result(ResultKind.MOVED, destination="sales", until=TODAY + timedelta(hours=1))


def test_a_report_adds_up_if_all_that_was_read_is_somewhere() -> None:
    report = report_of(MOVED, Result(ResultKind.POISONED, "why"), None, redelivered=True)
    report.source_before, report.source_after, report.target_after = 10, 1, 1
    assert report.findings(TODAY) == []
    assert (report.read, report.settled, report.returned, report.redelivered) == (3, 2, 1, 3)
    assert report.delivered_meanwhile == 6
    report.read += 1
    assert "accounted for" in report.findings(TODAY)[0]


def test_what_stays_behind_is_a_finding() -> None:
    report = report_of(MOVED)
    report.target_after = report.source_total = 1
    assert "still in the source" in report.findings(TODAY)[0]
    report.interrupted = True
    assert report.findings(TODAY) == []
    assert "stayed in the source" in report_of(Result(ResultKind.LEFT, "full")).findings(TODAY)[0]


def test_copies_that_are_gone_before_their_time_are_a_finding() -> None:
    report = report_of(MOVED, MOVED)
    report.target_after = 1
    assert "not due yet" in report.findings(TODAY)[0]
    assert report.findings(TODAY + timedelta(hours=1)) == []


def test_settings_that_cannot_work_are_refused() -> None:
    for rate in (0, -1, float("nan")):
        with pytest.raises(ConfigurationError, match="above 0"):
            MoveSettings(max_rate=rate)
    with pytest.raises(ConfigurationError, match="name"):
        MoveSettings(poison_queue="")


VALUES = st.recursive(
    st.text(max_size=20) | st.binary(max_size=20) | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
)
TABLES = st.dictionaries(st.text(max_size=20), VALUES, max_size=5)
SHORT = st.none() | st.text(max_size=30)
PROPERTIES = st.builds(
    spec.BasicProperties,
    content_type=SHORT,
    content_encoding=SHORT,
    headers=st.none() | TABLES,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=SHORT,
    reply_to=SHORT,
    expiration=SHORT,
    message_id=SHORT,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=SHORT,
    user_id=SHORT,
    app_id=SHORT,
    cluster_id=SHORT,
)


def encoded_table(table: dict[str, object]) -> bytes:
    pieces: list[bytes] = []
    data.encode_table(pieces, table)
    return b"".join(pieces)


@given(TABLES)
def test_a_table_taken_apart_and_put_together_is_the_same(table: dict[str, object]) -> None:
    encoded = encoded_table(table)
    entries = split_table(encoded[4:])
    assert join_table(entries) == encoded
    assert [entry.name.decode() for entry in entries] == list(table)


@given(TABLES, st.data())
def test_a_table_cut_short_is_refused(table: dict[str, object], draws: st.DataObject) -> None:
    encoded = encoded_table(table)[4:]
    cut = encoded[: draws.draw(st.integers(0, len(encoded)))]
    try:
        entries = split_table(cut)
    except MalformedTableError:
        return
    assert join_table(entries)[4:] == cut


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(MalformedTableError, match="unknown type"):
        split_table(b"\x01a?")


def test_values_are_read_whatever_their_width() -> None:
    for number in (0, -5, 100):
        for kind, code in zip("bsIlL", "bhiqq", strict=True):
            assert integer_of(struct.pack(f">c{code}", kind.encode(), number)) == number
    assert integer_of(integer_value(2**40)) == 2**40
    assert integer_of(text_value("5")) is None
    assert integer_of(None) is None
    assert text_of(text_value("Grüße")) == "Grüße"
    assert text_of(integer_value(5)) is None
    assert text_of(b"S\x00\x00\x00\x01\xff") is None


@given(PROPERTIES)
def test_properties_are_found_in_their_bytes(properties: spec.BasicProperties) -> None:
    raw = RawProperties(b"".join(properties.encode()))
    for name in ("message_id", "expiration", "user_id", "cluster_id", "content_type"):
        assert raw.text(name) == getattr(properties, name)
    assert [entry.name.decode() for entry in raw.headers] == list(properties.headers or {})


@given(PROPERTIES, st.binary(max_size=20))
def test_a_changed_header_changes_nothing_else(properties: spec.BasicProperties, text: bytes) -> None:
    raw = RawProperties(b"".join(properties.encode()))
    value = b"x" + struct.pack(">I", len(text)) + text
    changed = spec.BasicProperties().decode(raw.changed([TableEntry(b"new", value)], without=["expiration"]).encoded)
    properties.headers, properties.expiration = {"new": text}, None
    assert changed == properties


@given(PROPERTIES)
def test_properties_without_headers_have_no_empty_table(properties: spec.BasicProperties) -> None:
    changed = RawProperties(b"".join(properties.encode())).changed([])
    properties.headers = None
    assert changed.encoded == b"".join(properties.encode())


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\x80\x00", b"\x00\x01", b"\x80\x00\x05ab", b"\x20\x00\x00\x00"])
def test_bytes_that_are_no_properties_are_refused_and_have_no_id(encoded: bytes) -> None:
    with pytest.raises(MalformedPropertiesError):
        _ = RawProperties(encoded).headers
    assert RawProperties(encoded).message_id is None
