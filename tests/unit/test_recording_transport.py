from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from delaystore.message import DelayedMessage
from delaystore.testing import RecordingTransport
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind

NO_QUEUE = Outcome(OutcomeKind.UNROUTABLE, "no such queue")
REFUSED = Outcome(OutcomeKind.REFUSED, "full")


def message(message_id: str, destination: str = "billing") -> DelayedMessage:
    due_time = datetime(2027, 1, 1, tzinfo=UTC)
    return DelayedMessage(message_id=message_id, destination=destination, due_time=due_time, body=b"")


def test_it_answers_as_told_by_destination_and_records() -> None:
    transport = RecordingTransport(
        {"nowhere": NO_QUEUE, "picky": lambda one: DELIVERED if one.message_id == "c" else REFUSED}
    )
    batch = [message("a"), message("b", "nowhere"), message("c", "picky"), message("d", "picky")]
    assert transport.send(batch, None, 5) == [DELIVERED, NO_QUEUE, DELIVERED, REFUSED]
    assert transport.sent == [batch[0], batch[2]]
    assert transport.attempts == list(zip(batch, [DELIVERED, NO_QUEUE, DELIVERED, REFUSED], strict=True))


def test_its_answers_may_change() -> None:
    transport = RecordingTransport({"billing": REFUSED})
    assert transport.send([message("a")], None, 5) == [REFUSED]
    del transport.outcomes["billing"]
    assert transport.send([message("a")], None, 5) == [DELIVERED]


def test_a_pretended_outage_leaves_everything_unconfirmed() -> None:
    transport = RecordingTransport(unavailable_reason="the broker is down")
    assert transport.unavailable() == "the broker is down"
    assert transport.send([message("a")], None, 5) == [Outcome(OutcomeKind.UNCONFIRMED, "the broker is down")]
    transport.unavailable_reason = None
    assert transport.unavailable() is None
    assert transport.send([message("a")], None, 5) == [DELIVERED]


def test_it_waits_for_what_another_thread_sends() -> None:
    transport = RecordingTransport()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.wait_for_sent, 2)
        transport.send([message("a")], None, 5)
        transport.send([message("b")], None, 5)
        assert [one.message_id for one in waiting.result(60)] == ["a", "b"]
    with pytest.raises(TimeoutError, match="2 messages were sent within 0 s, not 3"):
        transport.wait_for_sent(3, timeout=0)


def test_it_notes_what_was_declared() -> None:
    transport = RecordingTransport()
    transport.declare("billing")
    transport.declare("error")
    assert transport.declared == {"billing", "error"}
