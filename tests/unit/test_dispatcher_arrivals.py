"""What the dispatcher remembers of messages that arrived and could not be removed."""

import gc
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delaystore.dispatcher import _in_flight as arrivals
from delaystore.dispatcher._in_flight import DeliveredNotDeleted
from delaystore.message import DelayedMessage
from tests.dispatching import NOON, message

ONE = message("a", headers={"kind": "reminder"}, properties={"type": "x"})


def arrivals_of(one: DelayedMessage) -> DeliveredNotDeleted:
    """One message has arrived; its removal has failed."""
    arrived = DeliveredNotDeleted()
    taken = arrived.begin([one])
    arrived.keep([one])
    arrived.end(taken)
    return arrived


def test_what_is_being_sent_is_taken_by_no_other_worker() -> None:
    arrived = DeliveredNotDeleted()
    other = message("b")
    assert arrived.begin([ONE]) == [ONE]
    assert arrived.begin([ONE, other]) == [other]
    arrived.end([ONE])
    assert arrived.begin([ONE, other]) == [ONE]


def test_the_very_same_message_is_known_again() -> None:
    arrived = arrivals_of(ONE)
    assert arrived.among([message("b"), replace(ONE)]) == [ONE]
    arrived.forget(["a"])
    assert arrived.among([ONE]) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"body": b"other"},
        {"destination": "other"},
        {"headers": {}},
        {"properties": {}},
        {"failure_count": 1},
        {"due_time": NOON + timedelta(seconds=1)},
        {"next_attempt": NOON + timedelta(seconds=1)},
    ],
)
def test_another_message_under_the_same_id_is_not(change: dict[str, Any]) -> None:
    assert arrivals_of(ONE).among([replace(ONE, **change)]) == []


def test_kept_messages_are_looked_for_until_they_are_forgotten() -> None:
    arrived = arrivals_of(ONE)
    assert set(arrived.ids) == {"a"}
    assert arrived.among([ONE]) == [ONE]
    arrived.forget(["a"])
    assert not arrived.ids
    assert not arrived.among([ONE])


def test_no_bodies_are_kept_for_long() -> None:
    arrived = arrivals_of(ONE)
    assert not [thing for thing in gc.get_referents(arrived._known) if isinstance(thing, DelayedMessage)]


def test_the_oldest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MOST_REMEMBERED", 2)
    arrived = DeliveredNotDeleted()
    three = [message(f"{number}") for number in range(3)]
    arrived.keep(three)
    assert arrived.among(three) == three[1:]
