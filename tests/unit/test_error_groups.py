"""Failed messages by filter and in groups."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore.errors import InvalidMessageError
from delaystore.operations import ErrorFilter, FailedMessage
from delaystore.operations.failed_message import Grouping, grouped_reason

AT = datetime(2026, 11, 24, 5, 50, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MESSAGE = FailedMessage(
    message_id="a",
    destination="billing",
    kind="Refused",
    reason="the queue 'billing' is full with 1000 messages",
    failed_at=AT,
    due_time=None,
    failures=2,
    headers={},
    properties={},
    body=b"",
    size=0,
)


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ("full with 1,000 messages", "full with 7 messages"),
        ("took 12.5 s at 10:20:30", "took 3 s at 11:00"),
        ("no order 7f3c9a52-1111-4222-8333-944445555666", "no order 00000000-0000-0000-0000-000000000000"),
        ("no node deadbeef0123", "no node 0123456789abcdef"),
        ("spaces  and\nlines", "spaces and lines"),
        ("x" * 299 + " is cut at a space", "x" * 299 + " and another end"),
    ],
)
def test_reasons_that_differ_by_ids_and_numbers_are_one(one: str, another: str) -> None:
    assert grouped_reason(one) == grouped_reason(another)
    assert grouped_reason(grouped_reason(one)) == grouped_reason(one)


def test_the_message_s_own_id_makes_no_difference() -> None:
    assert grouped_reason("invoice-a failed", "invoice-a") == grouped_reason("invoice-b failed", "invoice-b")
    assert grouped_reason("no message 'a'", "a") == grouped_reason("no message 'b'", "b")
    assert grouped_reason("a message is late", "a") == "a message is late"


def test_other_words_make_another_reason() -> None:
    assert grouped_reason("no such queue") != grouped_reason("no such exchange")
    assert grouped_reason("no queue facade") == "no queue facade"


def test_groups_count_and_know_the_first_and_the_last() -> None:
    grouping = Grouping()
    for number in range(3):
        reason = f"the queue 'billing' is full with {number} messages"
        grouping.add(replace(MESSAGE, reason=reason, failed_at=AT + number * SECOND))
    grouping.add(replace(MESSAGE, destination="sales"))
    grouping.add(replace(MESSAGE, destination=None, failed_at=None, obstacle="it is damaged"))
    first, *others = grouping.result()
    assert (first.destination, first.kind, first.count) == ("billing", "Refused", 3)
    assert (first.first, first.last) == (AT, AT + 2 * SECOND)
    assert first.example == "the queue 'billing' is full with 0 messages"
    assert [(group.destination, group.count, group.stuck) for group in others] == [(None, 1, 1), ("sales", 1, 0)]


def test_a_group_s_filter_is_met_by_its_messages_alone() -> None:
    others = [
        replace(MESSAGE, destination="sales"),
        replace(MESSAGE, kind="Unroutable"),
        replace(MESSAGE, reason="gone"),
        replace(MESSAGE, destination=None),
    ]
    for message in (MESSAGE, *others):
        grouping = Grouping()
        grouping.add(message)
        (group,) = grouping.result()
        assert [each for each in (MESSAGE, *others) if group.wanted.matches(each)] == [message]


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (ErrorFilter(), True),
        (ErrorFilter(destination="billing", kind="Refused", message_id="a"), True),
        (ErrorFilter(destination="bill"), False),
        (ErrorFilter(kind="refused"), False),
        (ErrorFilter(message_id="b"), False),
        (ErrorFilter(reason="the queue 'billing' is full with 5 messages"), True),
        (ErrorFilter(reason="the queue"), False),
        (ErrorFilter(since=AT, until=AT + SECOND), True),
        (ErrorFilter(until=AT), False),
        (ErrorFilter(since=AT + SECOND), False),
    ],
)
def test_a_filter(wanted: ErrorFilter, matches: bool) -> None:
    assert wanted.matches(MESSAGE) is matches
    assert bool(wanted) is (wanted != ErrorFilter())
    assert ErrorFilter.from_dict(wanted.as_dict()) == wanted


def test_what_has_no_time_of_failure_is_in_no_span() -> None:
    assert not ErrorFilter(since=AT).matches(replace(MESSAGE, failed_at=None))


@pytest.mark.parametrize(
    "document",
    [{"where": "x"}, {"kind": 1}, {"since": "yesterday"}, {"since": "2026-01-01"}, {}, None, {"kind": None},
     {"all": True, "kind": "x"}],
)  # fmt: skip
def test_a_filter_refuses_what_it_does_not_know(document: Any) -> None:
    with pytest.raises(InvalidMessageError):
        ErrorFilter.from_dict(document)
