"""Whether a service lives, and is ready: what the probes answer."""

import asyncio
import io
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp

from delaystore.breakers import report_critical_error
from delaystore.errors import StoreUnavailableError
from delaystore.server.configuration.tree import configuration_in
from delaystore.server.endpoints import Endpoint, turns_of
from delaystore.server.runner import drained
from delaystore.server.running import CriticalOnce, Requests, ServiceRequest
from delaystore.server.service import Service
from delaystore.server.site import ServiceState, probe_application
from tests.dispatching import wait_until


@contextmanager
def service(folder: Path) -> Iterator[Service]:
    """A service that runs here."""
    file = folder / "delaystore.toml"
    database = f"sqlite:///{folder / 'app.db'}"
    file.write_text(
        f'[web]\nlisten = "127.0.0.1:0"\n[endpoint.sales]\nstore = "{database}"\ntransport = "{database}"\n'
    )
    running = Service(configuration_in(file), lambda _line: None)
    running.start()
    try:
        yield running
    finally:
        assert not running.stop(lambda: True)


def get(application: ASGIApp, path: str) -> httpx.Response:
    """What an application answers."""

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://here") as client:
            return await client.get(path)

    return asyncio.run(ask())


def test_a_service_lives_as_long_as_its_main_loop_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(tmp_path) as running:
        wait_until(lambda: running.state().ready, running.state)
        application = probe_application(running.state)
        assert get(application, "/livez").status_code == 200
        monkeypatch.setattr("delaystore.server.service._HUNG", 0.0)
        assert get(application, "/livez").status_code == 503
        assert get(application, "/livez").json()["live"] is False
        monkeypatch.undo()
        running.turn()
        assert get(application, "/livez").status_code == 200


def test_a_service_that_ends_is_not_ready(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        wait_until(lambda: running.state().ready, running.state)
    assert running.state().problems["the service"] == ["it is ending"]


def test_a_part_whose_thread_is_gone_is_no_life(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        wait_until(lambda: running.state().ready, running.state)
        (dispatcher,) = (runner for turn in running._endpoints.turns() for runner in turn)
        dispatcher.stop()
        assert dispatcher.ended(20)
        assert not running.state().live


def test_only_those_who_may_know_are_told_why() -> None:
    state = ServiceState(live=True, problems={"sales dispatcher": ["no answer from db.internal"]})
    answer = get(probe_application(lambda: state), "/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == {"sales dispatcher": ["no answer from db.internal"]}
    assert "db.internal" not in str(state.as_dict(reasons=False))
    assert str(state) == "not ready: sales dispatcher: no answer from db.internal"


def test_what_takes_messages_in_ends_before_what_sends_them_on(tmp_path: Path) -> None:
    file = tmp_path / "delaystore.toml"
    file.write_text(
        f'[endpoint.sales]\nstore = "sqlite:///{tmp_path / "app.db"}"\ntransport = "amqp://127.0.0.1:1"\n'
        "[endpoint.sales.control]\nenabled = true\n[endpoint.sales.ingress.orders]\n"
    )
    endpoint = Endpoint("sales", configuration_in(file).endpoint["sales"], print)
    endpoint.start()
    turns = list(turns_of([endpoint]))
    assert [[each.name for each in turn] for turn in turns] == [
        ["sales ingress orders", "sales control queue"],
        ["sales dispatcher"],
    ]
    assert drained(turns, time.monotonic() + 30, lambda: True) == []
    endpoint.close()
    assert endpoint.closed(10)


def test_many_requests_are_one_and_to_stop_is_ahead_of_all() -> None:
    requests = Requests()
    assert requests.next(0) is None
    for _ in range(50):
        requests.reload()
    assert requests.next(0) is ServiceRequest.RELOAD
    assert requests.next(0) is None
    requests.reload()
    requests.stop()
    requests.reload()
    assert requests.stopping
    assert requests.next(0) is ServiceRequest.STOP


@pytest.fixture
def log() -> Iterator[tuple[io.StringIO, list[float]]]:
    """What is logged, and the time, to be set."""
    written, now = io.StringIO(), [0.0]
    handler = logging.StreamHandler(written)
    handler.addFilter(CriticalOnce(lambda: now[0]))
    logger = logging.getLogger("delaystore.dispatcher")
    logger.addHandler(handler)
    yield written, now
    logger.removeHandler(handler)


def test_each_part_tells_of_one_failure_and_it_is_logged_once(log: tuple[io.StringIO, list[float]]) -> None:
    written, now = log
    refused = StoreUnavailableError("the database refuses the login")
    for part in ("fetching due messages", "storing what is published", "answering requests"):
        report_critical_error(None, f"{part} has failed for 30 s", refused)
        logging.getLogger("delaystore.dispatcher").warning("%s fails: %s", part, refused)
    report_critical_error(None, "forwarding has failed for 30 s", StoreUnavailableError("no such host"))
    lines = written.getvalue().splitlines()
    assert [line for line in lines if "has failed" in line] == [
        "fetching due messages has failed for 30 s: the database refuses the login",
        "forwarding has failed for 30 s: no such host",
    ]
    assert sum(" fails: " in line for line in lines) == 3
    now[0] = 61.0
    report_critical_error(None, "storing has failed for 30 s", refused)
    assert written.getvalue().endswith("storing has failed for 30 s: the database refuses the login\n")
