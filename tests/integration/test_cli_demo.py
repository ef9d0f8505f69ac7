"""`delaystore demo`, without and with servers."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from delaystore.cli import _demo as demo_run
from delaystore.cli._demo import Arrivals, Receiver
from delaystore.clock import SystemClock
from delaystore.message import DelayedMessage
from delaystore.transports import InMemoryTransport, SqlQueueTransport
from delaystore.transports.abc import DELIVERED
from tests.dispatching import wait_until
from tests.integration.cli import PATIENCE, CommandLine

QUICK = ("demo", "--messages", "200", "--seconds", "1")


def test_the_demo_needs_no_server_and_leaves_nothing_behind(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run(*QUICK, "--json")
    assert result.code == 0
    done = result.document
    assert (done["sent"], done["delivered"], done["lost"], done["duplicated"], done["early"]) == (200, 200, 0, 0, 0)
    assert done["exactly_once"] is True
    assert 0 <= done["lateness_ms"]["p50"] <= done["lateness_ms"]["p99"] <= done["lateness_ms"]["max"]
    assert list(tmp_path.iterdir()) == []


def test_people_get_a_table(run: CommandLine) -> None:
    result = run(*QUICK)
    assert result.code == 0
    for word in ("sent", "delivered", "lost", "duplicated", "early", "lateness p50", "lateness p99", "lateness max"):
        assert word in result.out
    assert "exactly once" in result.err


@pytest.mark.long_runs("mariadb")
@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_on_a_server_the_demo_cleans_up_after_itself(
    run: CommandLine, database: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    result = run(*QUICK, "--store", url, "--json")
    assert (result.code, result.document["delivered"]) == (0, 200)
    engine = create_engine(url)
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_the_demo_runs_from_postgresql_to_rabbitmq(run: CommandLine, postgresql_url: str, rabbitmq_url: str) -> None:
    result = run(*QUICK, "--store", postgresql_url, "--transport", rabbitmq_url, "--json")
    assert result.code == 0
    assert (result.document["delivered"], result.document["exactly_once"]) == (200, False)


def test_the_demo_runs_in_memory(run: CommandLine) -> None:
    assert run(*QUICK, "--store", "memory://").code == 0


def test_what_does_not_arrive_is_lost(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "GRACE", 0.5)
    monkeypatch.setattr(InMemoryTransport, "send", lambda _self, messages, *_: [DELIVERED] * len(messages))
    result = run("demo", "--messages", "10", "--seconds", "0", "--store", "memory://", "--json")
    assert result.code == 1
    assert (result.document["sent"], result.document["lost"]) == (10, 10)


def test_what_arrives_twice_is_duplicated(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    send = InMemoryTransport.send
    monkeypatch.setattr(InMemoryTransport, "send", lambda self, *given: send(self, *given) and send(self, *given))
    result = run("demo", "--messages", "10", "--seconds", "0", "--store", "memory://", "--json")
    assert result.code == 1
    assert result.document["duplicated"] == 10


def test_each_arrival_is_compared_with_its_due_time() -> None:
    arrivals, now = Arrivals(), datetime(2027, 1, 1, tzinfo=UTC)
    arrivals.expect("a", now + timedelta(seconds=1))
    arrivals.expect("b", now - timedelta(seconds=1))
    arrivals.note(["a", "b", "a"], now)
    assert arrivals.lateness == [timedelta(seconds=-1), timedelta(seconds=1)]
    assert (arrivals.delivered, arrivals.duplicated) == (2, 1)


def test_the_receiver_outlives_an_outage(sqlite_url: str) -> None:
    transport, clock, arrivals = SqlQueueTransport(sqlite_url), SystemClock(), Arrivals()
    receiver = Receiver(transport, "billing", arrivals, clock)
    receiver.start()
    arrivals.expect("a", clock.now())
    wait_until(lambda: receiver.error is not None)
    transport.declare("billing")
    transport.send([DelayedMessage(message_id="a", destination="billing", due_time=clock.now(), body=b"")], None, 10)
    wait_until(lambda: arrivals.delivered == 1)
    receiver.stop(timeout=PATIENCE)
    transport.close()
