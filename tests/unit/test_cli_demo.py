"""How the demo counts what arrives."""

from datetime import UTC, datetime, timedelta

import pytest

from delaystore.cli import _demo as demo_run
from delaystore.cli._demo import DeliveryCounts, Receiver
from delaystore.clock import SystemClock
from delaystore.message import DelayedMessage
from delaystore.transports import InMemoryTransport, SqlQueueTransport
from delaystore.transports.abc import DELIVERED
from tests.dispatching import wait_until
from tests.integration.cli import PATIENCE, CommandLine


def test_what_does_not_arrive_is_lost(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "GRACE", 0.5)
    monkeypatch.setattr(InMemoryTransport, "send", lambda _self, messages, *_: [DELIVERED] * len(messages))
    result = CommandLine(capsys, {})("demo", "--messages", "10", "--seconds", "0", "--store", "memory://", "--json")
    assert result.code == 1
    assert (result.document["sent"], result.document["lost"]) == (10, 10)


def test_each_arrival_is_compared_with_its_due_time() -> None:
    arrivals, now = DeliveryCounts(), datetime(2027, 1, 1, tzinfo=UTC)
    arrivals.expect("a", now + timedelta(seconds=1))
    arrivals.expect("b", now - timedelta(seconds=1))
    arrivals.note(["a", "b", "a"], now)
    assert arrivals.lateness == [timedelta(seconds=-1), timedelta(seconds=1)]
    assert (arrivals.delivered, arrivals.duplicated) == (2, 1)


def test_the_receiver_outlives_an_outage(sqlite_url: str) -> None:
    transport, clock, arrivals = SqlQueueTransport(sqlite_url), SystemClock(), DeliveryCounts()
    receiver = Receiver(transport, "billing", arrivals, clock)
    receiver.start()
    arrivals.expect("a", clock.now())
    wait_until(lambda: receiver.error is not None)
    transport.declare("billing")
    transport.send([DelayedMessage(message_id="a", destination="billing", due_time=clock.now(), body=b"")], None, 10)
    wait_until(lambda: arrivals.delivered == 1)
    receiver.stop(timeout=PATIENCE)
    transport.close()
