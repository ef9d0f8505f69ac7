"""What the dispatcher remembers of messages that got no answer in time."""

import gc
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delaystore.dispatcher import _in_flight as module
from delaystore.dispatcher._in_flight import InFlightTracker
from delaystore.dispatcher.error_queue import Failure
from delaystore.message import DelayedMessage
from delaystore.transports.abc import PendingConfirm
from tests.dispatching import NOON, message

ONE = message("a", headers={"kind": "reminder"}, properties={"type": "x"})


class Late(PendingConfirm):
    @property
    def arrived(self) -> bool | None:
        return None


def under_way(*messages: DelayedMessage) -> InFlightTracker:
    on_their_way = InFlightTracker()
    for one in messages:
        on_their_way.note(one, Late(), 0)
    return on_their_way


@pytest.mark.parametrize("change", [{}, {"failure_count": 3}, {"next_attempt": NOON + timedelta(seconds=9)}])
def test_a_message_that_gave_way_is_known_again(change: dict[str, Any]) -> None:
    assert set(under_way(ONE).among([message("b"), replace(ONE, **change)])) == {"a"}


@pytest.mark.parametrize(
    "change",
    [{"body": b"other"}, {"destination": "other"}, {"headers": {}}, {"due_time": NOON + timedelta(seconds=1)}],
)
def test_another_message_under_the_same_id_is_not(change: dict[str, Any]) -> None:
    assert under_way(ONE).among([replace(ONE, **change)]) == {}


def test_what_is_forgotten_is_not_known() -> None:
    on_their_way = under_way(ONE)
    on_their_way.forget(["a"])
    assert on_their_way.among([ONE]) == {}


@pytest.mark.parametrize("failure", [None, Failure(ONE, "Refused", "nacked")])
def test_no_bodies_are_kept(failure: Failure | None) -> None:
    on_their_way = InFlightTracker()
    on_their_way.note(ONE, Late(), 0, failure)
    kept = gc.get_referents(on_their_way._known["a"])
    assert not [thing for thing in [*kept, *gc.get_referents(*kept)] if isinstance(thing, DelayedMessage)]


def test_the_oldest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REMEMBERED", 2)
    three = [message(f"{number}") for number in range(3)]
    assert set(under_way(*three).among(three)) == {"1", "2"}
