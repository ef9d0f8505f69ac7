from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import spec

from delaystore.cascades.moving._planning import (
    POISON_PROPERTIES,
    POISON_REASON,
    LevelMessage,
    PlannedCopy,
    Planner,
    UnmovableError,
    poisoned,
)
from delaystore.transports.rabbitmq.delay_headers import DELAY_IN_SECONDS, TIME_SENT, due_time, time_sent_text
from delaystore.transports.rabbitmq.raw import RawProperties
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V1, NSERVICEBUS_V2, CascadeTopology, celery, custom
from delaystore.transports.rabbitmq.topology.cascades import MILLISECOND, DueBy

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
    due_by: DueBy = DueBy.HEADERS,
    destination: str | None = None,
    user: str | None = None,
) -> PlannedCopy:
    return Planner(V1, target, due_by, lambda _: destination, lambda _: user).plan(message, NOW)


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
    plan = planned(waiting(units, None, level=level), due_by=DueBy.EITHER)
    assert 0 <= plan.delay.total_seconds() - truly_left <= 2**level


def test_what_goes_by_its_key_gets_headers_that_say_so() -> None:
    plan = planned(waiting(5, {"n": 1}), due_by=DueBy.EITHER)
    assert decoded(plan) == {"n": 1, **sent(0, 5)}
    assert due_time(decoded(plan)) == NOW + plan.delay
    later = planned(waiting(5, sent(100, 1)), due_by=DueBy.KEY)
    assert due_time(decoded(later)) == NOW + later.delay == NOW + timedelta(seconds=5)
    assert decoded(later)[TIME_SENT] == sent(100, 0)[TIME_SENT]


def test_a_time_that_another_program_writes_its_own_way_is_not_written_over() -> None:
    plan = planned(waiting(5, {TIME_SENT: "yesterday"}), due_by=DueBy.KEY)
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
