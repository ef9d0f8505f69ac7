"""What a message must be, and what the refusals say."""

import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.errors import DuplicateMessageError, InvalidMessageError
from delaystore.message import PARKED, DelayedMessage, FailedAttempt, due_after, new_message_id

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)


def make(**fields: Any) -> DelayedMessage:
    values: dict[str, Any] = {"message_id": "1", "destination": "billing", "due_time": NOON, "body": b"", **fields}
    return DelayedMessage(**values)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"message_id": ""}, "message_id is empty"),
        ({"message_id": 7}, "message_id must be a str, not int"),
        ({"message_id": "é" * 128}, "has 256 bytes; at most 255 are allowed"),
        ({"message_id": "a\0"}, "contains a NUL character"),
        ({"message_id": "\ud800"}, "cannot be written as UTF-8"),
        ({"destination": ""}, "destination is empty"),
        ({"destination": "q" * 256}, "has 256 bytes; at most 255 are allowed"),
        ({"destination": "a\nb"}, "destination 'a\\nb' contains the control character '\\n'"),
        ({"destination": "bill\x9fing"}, "contains the control character '\\x9f'"),
        ({"destination": "/exchanges/" + "x" * 1600}, "at most 1600 are allowed"),
        ({"due_time": datetime(2027, 1, 1)}, "due_time 2027-01-01T00:00:00 has no time zone; use an aware datetime"),  # noqa: DTZ001 - that is what is refused
        ({"due_time": "soon"}, "due_time must be a datetime, not str"),
        ({"due_time": datetime.max.replace(tzinfo=UTC)}, "is out of range; the latest is 9999-12-30"),
        ({"due_time": datetime.min.replace(tzinfo=timezone(timedelta(hours=2)))}, "is out of range"),
        ({"body": "text"}, "body must be bytes, not str; encode it first"),
        ({"failure_count": -1}, "failure_count must be a whole number from 0"),
        ({"headers": [("a", 1)]}, "headers must be a mapping, not list"),
        ({"headers": {1: "a"}}, "header names must be str, not int"),
        ({"headers": {"a": {"b": object()}}}, "header 'a'['b'] is a object, which no message header can hold"),
        ({"headers": {"a": [{1: 2}]}}, "header 'a': names must be str, not int"),
        ({"headers": {"a": datetime(2027, 1, 1)}}, "header 'a' 2027-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
        ({"properties": {"colour": "red"}}, "unknown property 'colour'; known are content_type"),
        ({"properties": {"priority": "high"}}, "property priority must be int, not str"),
        ({"properties": {"priority": True}}, "property priority must be int, not bool"),
        ({"properties": {"priority": 999}}, "property priority must be from 0 to 255, not 999"),
        ({"headers": {"a": ["\ud800"]}}, "header 'a' holds half a surrogate pair"),
        ({"headers": {"\ud800": 1}}, "a header's name holds half a surrogate pair"),
        ({"headers": {"a": {"\ud800": 1}}}, "a name in header 'a' holds half a surrogate pair"),
        ({"properties": {"app_id": "\ud800"}}, "property app_id holds half a surrogate pair"),
        ({"properties": {"delivery_mode": 0}}, "property delivery_mode must be from 1 to 2, not 0"),
        ({"properties": [1]}, "properties must be a mapping, not list"),
    ],
)
def test_what_cannot_be_carried_is_named(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        make(**fields)
    assert complaint in str(caught.value)


def test_headers_nested_without_end_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidMessageError, match="nested deeper than"):
        make(headers={"a": endless})


def test_everything_a_header_can_hold_is_taken() -> None:
    values = [None, True, 2**80, 0.5, Decimal("1.5"), "é", b"\xff", NOON, [1, ["a"]], {"a": {"b": None}}]
    assert make(headers={str(i): value for i, value in enumerate(values)}).headers["9"] == {"a": {"b": None}}


def test_times_are_kept_in_utc() -> None:
    message = make(due_time=NOON.astimezone(timezone(timedelta(hours=5, minutes=30))), next_attempt=NOON)
    assert message.due_time.tzinfo is UTC
    assert message.due_time == NOON


def test_the_next_attempt_is_at_the_due_time_unless_given() -> None:
    assert make().next_attempt == NOON
    assert make(next_attempt=NOON + timedelta(hours=1)).next_attempt == NOON + timedelta(hours=1)


@pytest.mark.parametrize("delay", [0, 90, 0.5, timedelta(days=3)])
def test_a_delay_counts_from_now(delay: timedelta | float) -> None:
    seconds = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
    assert due_after(NOON, delay) == NOON + seconds


@pytest.mark.parametrize(
    ("delay", "complaint"),
    [
        (-1, "delay -1 is negative; use 0 for a message that is due at once"),
        (timedelta(microseconds=-1), "is negative"),
        (float("nan"), "must be a timedelta or a number of seconds"),
        (float("inf"), "is out of range"),
        (timedelta.max, "is out of range"),
        (True, "must be a timedelta or a number of seconds, not True"),
        ("3d", "must be a timedelta or a number of seconds, not '3d'"),
    ],
)
def test_a_delay_that_means_nothing_is_refused(delay: Any, complaint: str) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        due_after(NOON, delay)
    assert complaint in str(caught.value)


def test_fresh_ids_are_different_and_in_the_order_of_time() -> None:
    ids = [new_message_id() for _ in range(1000)]
    assert sorted(set(ids)) == ids


@given(st.text(min_size=1, max_size=60).filter(lambda text: "\0" not in text))
def test_any_short_text_is_an_id_or_cannot_be_written(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(InvalidMessageError):
            make(message_id=text)
    else:
        assert make(message_id=text).message_id == text


def test_an_error_with_ids_survives_a_process_pool() -> None:
    error = pickle.loads(pickle.dumps(DuplicateMessageError(["a", "b"])))
    assert error.message_ids == ("a", "b")
    assert "'a', 'b'" in str(error)


def test_what_no_session_time_zone_could_show_is_refused() -> None:
    first = datetime(1, 1, 2, tzinfo=UTC)
    assert DelayedMessage(message_id="a", destination="billing", due_time=first, body=b"").due_time == first
    for early in (first - timedelta(microseconds=1), datetime.min.replace(tzinfo=UTC)):
        with pytest.raises(InvalidMessageError, match="out of range; the earliest is 0001-01-02"):
            DelayedMessage(message_id="a", destination="billing", due_time=early, body=b"")


@pytest.mark.parametrize(
    ("fields", "parked"),
    [
        ({}, False),
        ({"next_attempt": PARKED}, True),
        ({"next_attempt": PARKED - timedelta.resolution}, False),
        ({"failure_count": 1, "next_attempt": NOON + timedelta(days=9)}, False),
        ({"due_time": PARKED}, False),
        ({"due_time": PARKED - timedelta.resolution}, False),
        ({"due_time": PARKED - timedelta.resolution, "next_attempt": PARKED}, True),
        ({"due_time": PARKED, "next_attempt": PARKED}, False),
        ({"due_time": PARKED, "next_attempt": NOON}, False),
    ],
    ids=str,
)
def test_a_message_is_parked_where_only_its_destination_keeps_it(fields: dict[str, Any], parked: bool) -> None:
    assert make(**fields).is_parked is parked


def test_failures_make_no_difference_when_messages_are_compared() -> None:
    failed = make(failures=(FailedAttempt(NOON, "Refused", "no"),))
    assert failed == make()
    assert failed.failures != make().failures
