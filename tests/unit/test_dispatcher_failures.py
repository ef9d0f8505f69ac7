"""Why messages are not there yet: kept with them, and told in the log once for all that fail alike."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from delaystore.dispatcher import Dispatcher
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.testing import SettableClock
from delaystore.transports.abc import Outcome, OutcomeKind
from tests.dispatching import (
    NOON,
    REFUSED,
    UNCONFIRMED,
    UNROUTABLE,
    CountingStore,
    FiveMethodStore,
    ScriptedTransport,
    message,
    settings,
)

UNAVAILABLE = Outcome(OutcomeKind.UNAVAILABLE, "its leader is gone")


def last_failure(store: InMemoryDelayedMessageStore, message_id: str = "bad") -> tuple[str, str]:
    found = store.get(message_id)
    assert isinstance(found, DelayedMessage)
    assert len(found.failures) == found.failure_count
    last = found.failures[-1]
    assert last.at == NOON
    return last.kind, last.reason


@pytest.mark.parametrize(
    ("outcomes", "failure"),
    [
        ({"there": REFUSED}, ("Refused", "the queue is full")),
        ({"there": UNAVAILABLE}, ("Unavailable", "its leader is gone")),
        ({"there": UNCONFIRMED}, ("Unconfirmed", "no answer in time")),
        (
            {"there": UNROUTABLE, "error": REFUSED},
            ("Unroutable", "no such queue; the error queue: refused: the queue is full"),
        ),
        (
            {"there": UNROUTABLE, "error": UNAVAILABLE},
            ("Unroutable", "no such queue; the error queue: its leader is gone"),
        ),
    ],
)
def test_the_reason_is_kept_with_the_message(
    store: CountingStore, transport: ScriptedTransport, outcomes: dict[str, Any], failure: tuple[str, str]
) -> None:
    transport.outcomes.update(outcomes)
    store.store_many([message("bad", "there"), message("good")])
    Dispatcher(store, transport, settings()).dispatch_due()
    assert last_failure(store) == failure
    assert store.count_failing(10) == 1


def test_where_nothing_fails_nothing_is_asked_or_written_for_it(
    store: CountingStore, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.store_many(message(f"{number}") for number in range(10))
    with store.transaction() as block:
        transaction = type(block)
    store.asked.clear()
    for asked in ("count_failures", "park", "unpark", "park_claimed", "postpone", "allowance"):
        monkeypatch.setattr(transaction, asked, None, raising=False)
        monkeypatch.setattr(store, asked, None)
    Dispatcher(store, transport, settings(max_body_bytes=1000)).dispatch_due()
    assert store.asked == {"transaction": 2}


def test_a_store_that_keeps_no_reasons_counts_as_before(transport: ScriptedTransport) -> None:
    store = FiveMethodStore()
    transport.outcomes["full"] = REFUSED
    store.store(message("bad", "full", store.now()))
    assert Dispatcher(store, transport, settings()).dispatch_due().failed == 1


def test_the_log_tells_a_reason_once_for_all_that_fail_alike(
    store: CountingStore, transport: ScriptedTransport, caplog: pytest.LogCaptureFixture
) -> None:
    transport.outcomes.update(full=REFUSED, long=Outcome(OutcomeKind.REFUSED, "too long"))
    store.store_many([message(f"bad{number:04}", "full") for number in range(1000)] + [message("other", "long")])
    dispatcher = Dispatcher(store, transport, settings(max_body_bytes=1000))
    dispatcher.dispatch_due()
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert sorted(told) == [
        "1 message to 'long' failed and will be tried again: Refused: too long; 'other'",
        "64 messages to 'full' failed and will be tried again: Refused: the queue is full; 'bad0000', ...",
    ]


def test_deferred_messages_are_logged_at_debug(
    store: CountingStore, transport: ScriptedTransport, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    transport.outcomes["there"] = UNAVAILABLE
    store.store_many([message("a", "there"), message("b", "there")])
    Dispatcher(store, transport, settings()).dispatch_due()
    assert "2 messages to 'there' deferred: Unavailable: its leader is gone; 'a', 'b'" in caplog.text


def test_what_goes_to_the_error_queue_is_told_by_destination_and_reason(
    store: CountingStore, transport: ScriptedTransport, caplog: pytest.LogCaptureFixture
) -> None:
    transport.outcomes.update(here=UNROUTABLE, there=UNROUTABLE)
    store.store_many(message(f"{number}{place}", place) for number in range(2) for place in ("here", "there"))
    Dispatcher(store, transport, settings()).dispatch_due()
    assert [record.getMessage() for record in caplog.records] == [
        "moved 2 messages to the error queue 'error'; first '0here' to 'here': no such queue",
        "moved 2 messages to the error queue 'error'; first '0there' to 'there': no such queue",
    ]


def test_after_the_clock_stepped_back_no_attempt_comes_before_the_due_time(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    """A search from a due time on begins at that next attempt."""

    def refuse(_: DelayedMessage) -> Outcome:
        clock.advance(timedelta(hours=-2))
        return REFUSED

    transport.outcomes["there"] = refuse
    store.store(message("bad", "there"))
    Dispatcher(store, transport, settings()).dispatch_due()
    assert store.now() == NOON - timedelta(hours=2)
    (found,) = store.search(MessageFilter(since=NOON)).messages
    assert found.failure_count == 1
    assert timedelta(0) <= found.next_attempt - NOON < timedelta(seconds=1)
