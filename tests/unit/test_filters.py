"""Filters: what they match, as documents, and what they refuse."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaystore.errors import InvalidMessageError
from delaystore.filters import EVERYTHING, MessageFilter, header_text
from delaystore.message import PARKED, DelayedMessage
from delaystore.testing._kit._base import header_values
from delaystore.testing._kit.search import filters

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
TICK = timedelta.resolution
HOUR = timedelta(hours=1)


def make(**fields: Any) -> DelayedMessage:
    defaults: dict[str, Any] = {"message_id": "order-1", "destination": "billing", "due_time": NOON, "body": b""}
    return DelayedMessage(**(defaults | fields))


@pytest.mark.parametrize(
    ("wanted", "matching", "other"),
    [
        ({"destination": "billing"}, {}, {"destination": "Billing"}),
        ({"since": NOON}, {}, {"due_time": NOON - TICK}),
        ({"until": NOON}, {"due_time": NOON - TICK}, {}),
        ({"since": NOON}, {}, {"due_time": NOON - TICK, "next_attempt": NOON + HOUR}),
        ({"until": NOON + TICK}, {"next_attempt": NOON + HOUR}, {"due_time": NOON + TICK}),
        ({"id_prefix": "order-"}, {}, {"message_id": "Order-1"}),
        ({"id_prefix": "order-1"}, {}, {"message_id": "order-"}),
        ({"failing": True}, {"failure_count": 1}, {}),
        ({"failing": False}, {}, {"failure_count": 1}),
        ({"paused": True}, {"next_attempt": PARKED}, {}),
        ({"paused": False}, {}, {"next_attempt": PARKED}),
        ({"headers": {"kind": "x"}}, {"headers": {"kind": "x", "n": 1}}, {"headers": {"kind": "X"}}),
        ({"headers": {"kind": "x"}}, {"headers": {"kind": b"x"}}, {"headers": {"Kind": "x"}}),
        ({"headers": {"a": "1", "b": "2"}}, {"headers": {"a": 1, "b": "2"}}, {"headers": {"a": 1}}),
        ({"headers": {"a": "null"}}, {"headers": {"a": None}}, {"headers": {}}),
    ],
    ids=str,
)
def test_what_is_given_must_be_met(wanted: dict[str, Any], matching: dict[str, Any], other: dict[str, Any]) -> None:
    assert MessageFilter(**wanted).matches(make(**matching))
    assert not MessageFilter(**wanted).matches(make(**other))
    assert MessageFilter(**(wanted | {"destination": "billing"})).matches(make(**matching))
    assert not MessageFilter(**(wanted | {"destination": "shipping"})).matches(make(**matching))


def test_nothing_given_is_everything() -> None:
    assert not EVERYTHING
    assert MessageFilter(headers={}) == EVERYTHING
    assert EVERYTHING.matches(make(headers={"a": 1}, failure_count=3))
    assert str(EVERYTHING) == "all messages"
    assert EVERYTHING.as_dict() == {"all": True}
    for given_one in ({"failing": False}, {"paused": False}, {"headers": {"a": ""}}, {"since": NOON}):
        assert MessageFilter(**given_one), given_one  # type: ignore[arg-type]


def test_a_filter_keeps_its_own_headers_and_may_be_a_key() -> None:
    headers = {"a": "1"}
    wanted = MessageFilter(headers=headers)
    headers["b"] = "2"
    assert wanted == MessageFilter(headers=MappingProxyType({"a": "1"}))
    assert {wanted: 1}[MessageFilter(headers={"a": "1"})] == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        ("", ""),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (7, "7"),
        (-7, "-7"),
        (2**64, "18446744073709551616"),
        (7.0, "7.0"),
        (1e22, "1e+22"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Decimal("7.10"), "7.10"),
        (Decimal("1E+2"), "1E+2"),
        (b"caf\xc3\xa9", "café"),
        (b"\xff", "\ufffd"),
        (NOON, "2031-01-01T12:00:00+00:00"),
        (NOON.astimezone(timezone(HOUR)), "2031-01-01T13:00:00+01:00"),
        ([], "[]"),
        (["a", 1, True, None, 2.5, b"x", Decimal("1.0")], '["a", 1, true, null, 2.5, "x", "1.0"]'),
        ({"ü": MappingProxyType({"n": [NOON]})}, '{"ü": {"n": ["2031-01-01T12:00:00+00:00"]}}'),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_header_is_compared_as_text(value: Any, text: str) -> None:
    assert header_text(value) == text
    assert MessageFilter(headers={"a": text}).matches_headers({"a": value})


def test_a_number_with_more_digits_than_python_writes_has_a_text() -> None:
    digits = "0x1" + "0" * 5000
    assert header_text(16**5000) == digits
    assert header_text([16**5000]) == f'["{digits}"]'


@settings(deadline=None)
@given(header_values())
def test_every_header_has_a_text_of_its_own(value: Any) -> None:
    message = make(headers={"a": value})
    assert MessageFilter(headers={"a": header_text(value)}).matches(message)
    assert not MessageFilter(headers={"a": header_text(value) + "x"}).matches(message)


@settings(deadline=None)
@given(filters())
def test_a_filter_comes_back_from_its_document(wanted: MessageFilter) -> None:
    document = json.loads(json.dumps(wanted.as_dict()))
    assert MessageFilter.from_dict(document) == wanted
    assert (document == {"all": True}) is not bool(wanted)
    for name in MessageFilter.__slots__:
        with pytest.raises(InvalidMessageError, match="is empty"):
            MessageFilter.from_dict(document | {name: None})


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"destinaton": "x"}, "unknown filter 'destinaton'; known are all, destination, failing"),
        ({1: "x"}, "unknown filter 1"),
        ({None: "x"}, "unknown filter None"),
        ([], "a filter must be an object"),
        (None, "a filter must be an object"),
        ("destination", "a filter must be an object"),
        ({}, 'the filter is empty; name a property of the messages, or write {"all": true} for all messages'),
        ({"all": False}, '{"all": true} stands alone'),
        ({"all": True, "failing": True}, '{"all": true} stands alone'),
        ({"destination": None}, "the filter's field destination is empty"),
        ({"headers": {}}, "the filter's field headers is empty"),
        ({"headers": {"a": None}}, "'a' must be a str, not None"),
        ({"destination": 7}, "destination must be a str"),
        ({"destination": ""}, "destination is empty"),
        ({"destination": ["x"]}, "destination must be a str"),
        ({"since": "2031-01-01"}, "since 2031-01-01T00:00:00 has no time zone"),
        ({"until": "2031-01-01T12:00:00"}, "has no time zone"),
        ({"since": "tomorrow"}, "since must be a time in ISO 8601 with its offset, not 'tomorrow'"),
        ({"since": "20301130100000"}, "since must be a time"),
        ({"since": "1795101512345"}, "since must be a time"),
        ({"since": 1_900_000_000}, "since must be a time"),
        ({"since": True}, "since must be a time"),
        ({"since": {"a": 1}}, "since must be a time"),
        ({"since": "0001-01-01T00:00:00+14:00"}, "out of range"),
        ({"until": "9999-12-31T00:00:00+00:00"}, "out of range"),
        ({"since": "2031-01-02T00:00:00Z", "until": "2031-01-02T00:00:00Z"}, "nothing is due from"),
        ({"id_prefix": ""}, "at least one character"),
        ({"id_prefix": 7}, "at least one character"),
        ({"id_prefix": "x" * 256}, "longer than any message_id"),
        ({"id_prefix": "a\0"}, "NUL"),
        ({"id_prefix": "\ud800"}, "UTF-8"),
        ({"failing": 1}, "failing must be true or false, not 1"),
        ({"paused": "no"}, "paused must be true or false, not 'no'"),
        ({"headers": ["a"]}, "headers must be a mapping"),
        ({"headers": "a=1"}, "headers must be a mapping"),
        ({"headers": {"a": 1}}, "'a' must be a str, not 1"),
        ({"headers": {"a": {"b": []}}}, "'a' must be a str"),
        ({"headers": {1: "a"}}, "compares headers as text"),
        ({"headers": {"a": "\ud800"}}, "cannot be written as UTF-8"),
        ({"headers": {"\ud800": "a"}}, "cannot be written as UTF-8"),
        ({"headers": {str(n): "" for n in range(17)}}, "16 headers at most, not 17"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_is_no_filter_is_refused_in_one_line(document: Any, said: str) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        MessageFilter.from_dict(document)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*MessageFilter.__slots__, "x"]), JSON) | JSON)
def test_any_document_is_a_filter_or_is_refused(document: Any) -> None:
    try:
        wanted = MessageFilter.from_dict(document)
    except InvalidMessageError:
        return
    assert MessageFilter.from_dict(wanted.as_dict()) == wanted


@pytest.mark.parametrize(
    "wanted", [{"since": NOON.replace(tzinfo=None)}, {"until": "2031-01-01"}, {"since": 7}], ids=str
)
def test_a_naive_time_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageError):
        MessageFilter(**wanted)


def test_a_time_is_kept_in_utc() -> None:
    there = MessageFilter(since=NOON.astimezone(timezone(-HOUR)))
    assert there == MessageFilter(since=NOON)
    assert there.since is not None
    assert there.since.tzinfo is UTC


def test_a_filter_is_told_to_people() -> None:
    wanted = MessageFilter(
        destination="billing",
        since=NOON,
        until=NOON + HOUR,
        id_prefix="order-",
        headers={"kind": "reminder"},
        failing=True,
        paused=False,
    )
    assert str(wanted) == (
        "destination billing, due from 2031-01-01 12:00:00Z, due before 2031-01-01 13:00:00Z, id prefix order-, "
        "failing, not paused, header kind=reminder"
    )
