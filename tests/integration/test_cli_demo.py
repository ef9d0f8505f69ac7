"""`delaystore demo`, without and with servers."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from delaystore.transports import InMemoryTransport
from tests.integration.cli import CommandLine

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


def test_what_arrives_twice_is_duplicated(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    send = InMemoryTransport.send
    monkeypatch.setattr(InMemoryTransport, "send", lambda self, *given: send(self, *given) and send(self, *given))
    result = run("demo", "--messages", "10", "--seconds", "0", "--store", "memory://", "--json")
    assert result.code == 1
    assert result.document["duplicated"] == 10
