"""What the dispatcher remembers of messages that were sent and not deleted, and of deferred ones."""

import gc
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delaystore.dispatcher import _in_flight as module
from delaystore.dispatcher._in_flight import Ended, InFlightTracker
from delaystore.dispatcher.error_queue import Failure
from delaystore.message import DelayedMessage
from delaystore.stores.records import Ending
from delaystore.transports.abc import PendingConfirm
from tests.dispatching import NOON, message

ONE = message("a", headers={"kind": "reminder"}, properties={"type": "x"}, failure_count=2)
DELIVERED = Ended(Ending.DELIVERED, NOON)
OTHER_MESSAGES: list[dict[str, Any]] = [
    {"body": b"other"},
    {"destination": "other"},
    {"headers": {}},
    {"properties": {}},
    {"due_time": NOON + timedelta(seconds=1)},
    {"failure_count": 1},
]


class Late(PendingConfirm):
    def __init__(self, *answers: bool | None) -> None:
        self.answers = list(answers)
        """To one question after the other; None when there are no more."""

    @property
    def arrived(self) -> bool | None:
        return self.answers.pop(0) if self.answers else None


@pytest.fixture
def tracker() -> InFlightTracker:
    return InFlightTracker(lambda destination, sent_at: destination == "lost")


def send(
    tracker: InFlightTracker, one: DelayedMessage, late: PendingConfirm | None = None, failure: Failure | None = None
) -> None:
    """Note that it is in flight."""
    tracker.note_unconfirmed(one, late or Late(), "error" if failure else one.destination, 0.0, failure)


def deferrals(tracker: InFlightTracker, one: DelayedMessage) -> int:
    return one.failure_count - tracker.failures(one)


def test_a_message_is_taken_by_one_worker_at_a_time(tracker: InFlightTracker) -> None:
    other = message("b")
    assert tracker.take([ONE]) == [ONE]
    assert tracker.take([ONE, other]) == [other]
    tracker.release([ONE])
    assert tracker.take([ONE, other]) == [ONE]


@pytest.mark.parametrize("change", [{}, {"failure_count": 3}, {"next_attempt": NOON + timedelta(seconds=9)}])
def test_a_message_in_flight_is_known_again_after_it_was_deferred(
    tracker: InFlightTracker, change: dict[str, Any]
) -> None:
    send(tracker, ONE)
    fetched = [message("b"), replace(ONE, **change)]
    found = tracker.sort(fetched)
    assert (found.to_send, found.unconfirmed) == (fetched[:1], fetched[1:])


@pytest.mark.parametrize("change", OTHER_MESSAGES)
@pytest.mark.parametrize("state", ["in flight", "undeleted", "deferred"])
def test_another_message_under_the_same_id_is_sent(
    tracker: InFlightTracker, state: str, change: dict[str, Any]
) -> None:
    if state == "in flight":
        send(tracker, ONE, Late(True))
    elif state == "undeleted":
        tracker.note_undeleted([ONE], DELIVERED)
    else:
        tracker.note_deferred([ONE])
    other = replace(ONE, **change)
    assert deferrals(tracker, other) == 0
    assert tracker.sort([other]).to_send == [other]
    assert not tracker.ids_to_look_up()


def test_an_undeleted_message_is_deleted_until_it_is_forgotten(tracker: InFlightTracker) -> None:
    tracker.note_undeleted([ONE], DELIVERED)
    for _ in range(2):
        assert tracker.sort([message("b"), replace(ONE)]).undeleted == {DELIVERED: [ONE]}
    tracker.forget([ONE])
    assert tracker.sort([ONE]).to_send == [ONE]


def test_an_undeleted_message_keeps_its_first_ending_while_deleting_it_fails_again(tracker: InFlightTracker) -> None:
    tracker.note_undeleted([ONE], failed := Ended(Ending.FAILED, NOON))
    tracker.note_undeleted([ONE], Ended(Ending.DELIVERED, NOON + timedelta(seconds=9)))
    assert tracker.sort([ONE]).undeleted == {failed: [ONE]}


@pytest.mark.parametrize("failure", [None, Failure(ONE, "Refused", "nacked")])
def test_a_late_confirm_makes_it_delivered_or_moved(tracker: InFlightTracker, failure: Failure | None) -> None:
    send(tracker, ONE, Late(True), failure)
    found = tracker.sort([ONE])
    assert (found.delivered, found.copied) == (([ONE], []) if failure is None else ([], [failure]))
    assert found.to_send == []


def test_a_confirm_that_comes_between_two_questions_is_no_reason_to_send_again(tracker: InFlightTracker) -> None:
    send(tracker, ONE, Late(None, True))
    assert tracker.sort([ONE]).unconfirmed == [ONE]
    assert tracker.sort([ONE]).delivered == [ONE]


def test_a_message_that_will_not_arrive_is_sent_again(tracker: InFlightTracker) -> None:
    gone, lost = message("gone"), message("lost", "lost")
    send(tracker, gone, Late(False))
    send(tracker, lost)
    assert tracker.sort([gone, lost]).to_send == [gone, lost]
    assert not tracker.ids_to_look_up()


def test_a_copy_is_presumed_lost_after_those_for_the_error_queue_only(tracker: InFlightTracker) -> None:
    one = message("a", "lost")
    send(tracker, one, failure=Failure(one, "Refused", "nacked"))
    assert tracker.sort([one]).unconfirmed == [one]


def test_deferrals_are_counted_over_all_that_happens_to_a_message(tracker: InFlightTracker) -> None:
    tracker.note_deferred([ONE])
    again = replace(ONE, failure_count=3)
    send(tracker, again, Late(False))
    tracker.sort([again])
    tracker.note_deferred([again])
    assert deferrals(tracker, replace(ONE, failure_count=4)) == 2
    tracker.forget([again])
    assert deferrals(tracker, ONE) == 0


def test_the_store_is_asked_for_what_was_sent_at_once_and_then_every_few_seconds(
    tracker: InFlightTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("delaystore.dispatcher._in_flight.time.monotonic", lambda: now)
    tracker.note_deferred([message("deferred")])
    send(tracker, ONE)
    assert tracker.ids_to_look_up() == ["a"]
    assert not tracker.ids_to_look_up()
    tracker.note_undeleted([message("b")], DELIVERED)
    assert tracker.ids_to_look_up() == ["a", "b"]
    now += module.LOOK_UP_EVERY
    assert tracker.ids_to_look_up() == ["a", "b"]


@pytest.mark.parametrize("failure", [None, Failure(ONE, "Refused", "nacked")])
def test_no_bodies_are_kept(tracker: InFlightTracker, failure: Failure | None) -> None:
    send(tracker, ONE, failure=failure)
    tracker.note_undeleted([message("b")], DELIVERED)
    kept = gc.get_referents(*gc.get_referents(tracker._records))
    assert not [thing for thing in [*kept, *gc.get_referents(*kept)] if isinstance(thing, DelayedMessage)]


def test_the_oldest_are_forgotten_first(tracker: InFlightTracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REMEMBERED", 2)
    three = [message(f"{number}") for number in range(3)]
    tracker.note_undeleted(three[:2], DELIVERED)
    tracker.note_deferred(three[:1])
    send(tracker, three[2])
    found = tracker.sort(three)
    assert (found.to_send, found.undeleted, found.unconfirmed) == ([three[1]], {DELIVERED: [three[0]]}, [three[2]])
