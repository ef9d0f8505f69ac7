"""`delaystore web`, as a process: where it listens, whom it lets in, how it ends."""

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Thread

import httpx
import pytest

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.server.web.users import accounts_of, hashed
from tests.integration.cli import CommandLine, started
from tests.long import long
from tests.web.pages import TOKENS, USERS
from tests.web.served import served


@pytest.fixture
def environment(sqlite_url: str) -> dict[str, str]:
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as delivery:
        delivery.send("billing", b"x", delay=timedelta(hours=1), message_id="m1")
    return {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}


@pytest.mark.parametrize("number", [long(signal.SIGINT), signal.SIGTERM])
def test_it_serves_until_it_is_asked_to_end_and_ends_streams_then(
    environment: dict[str, str], number: signal.Signals
) -> None:
    with served(environment=environment) as page:
        assert page.line.startswith("serving http://127.0.0.1:")
        assert "m1" in httpx.get(f"{page.url}/messages").text
        events: list[str] = []

        def listen() -> None:
            with httpx.stream("GET", f"{page.url}/events", timeout=30) as stream:
                events.extend(stream.iter_lines())

        listener = Thread(target=listen)
        listener.start()
        while not any("event: overview" in line for line in events) and listener.is_alive():
            time.sleep(0.05)
            if events:
                break
        began = time.monotonic()
        code, said = page.stop(number)
        listener.join(10)
        assert not listener.is_alive()
        assert time.monotonic() - began < 10  # a stream would last 15 s
        assert code == 0
        assert said.splitlines() == ["stopped"]


def test_the_stream_tells_what_changes(environment: dict[str, str]) -> None:
    with served(environment=environment) as page, httpx.stream("GET", f"{page.url}/events", timeout=30) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        first = [next(lines) for _ in range(8)]
        assert first[0].startswith("retry: ")
        assert "event: overview" in first
        assert any(line.startswith("data: ") for line in first)
        with DelayedDelivery("sales", SqlDelayedMessageStore(environment["DELAYSTORE_STORE"])) as delivery:
            delivery.send("billing", b"x", delay=timedelta(hours=1))
        assert any("<dd>2</dd>" in line for line in lines)


def test_a_host_that_others_reach_takes_a_user(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        assert "no user is configured; set DELAYSTORE_WEB_USERS" in run.refused("web", "--host", host)
    monkeypatch.setenv("DELAYSTORE_WEB_USERS", "ada:boss:secret")
    line = run.refused("web", "--host", "0.0.0.0")
    assert "entry 1 is not of the form" in line
    assert "secret" not in line


@pytest.mark.long
def test_a_user_may_come_from_elsewhere(environment: dict[str, str]) -> None:
    more = {"DELAYSTORE_WEB_USERS": USERS, "DELAYSTORE_WEB_TOKENS": TOKENS}
    with served("--host", "0.0.0.0", environment={**environment, **more}) as page:
        url = page.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/").status_code == 401
        assert httpx.get(f"{url}/", auth=("ada", "lovelace")).status_code == 200
        bearer = {"Authorization": "Bearer 0123456789abcdef-read"}
        assert httpx.get(f"{url}/api/v1/messages/m1", headers=bearer).json()["destination"] == "billing"


def test_who_hangs_up_in_the_midst_of_a_form_is_not_logged(environment: dict[str, str]) -> None:
    with served(environment=environment) as page:
        port = int(page.url.rpartition(":")[2])
        for path, kind in (("/message/cancel", "x-www-form-urlencoded"), ("/api/v1/messages", "json")):
            with socket.create_connection(("127.0.0.1", port)) as client:
                head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/{kind}\r\n"
                client.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
                assert httpx.get(f"{page.url}/changes").status_code == 200  # by then it is read
        assert httpx.get(f"{page.url}/changes").status_code == 200
        assert page.stop()[1].splitlines() == ["stopped"]


@pytest.mark.long
def test_a_flood_of_logins_takes_neither_the_memory_nor_the_page(environment: dict[str, str]) -> None:
    user = {"DELAYSTORE_WEB_USERS": f"ada:operate:{hashed('lovelace')}"}
    with served(environment={**environment, **user}) as page, httpx.Client(base_url=page.url, timeout=60) as client:

        def wrong(number: int) -> httpx.Response:
            return httpx.get(page.url, auth=("ada", f"guess {number}"), timeout=60)

        assert client.get("/messages", auth=("ada", "lovelace")).status_code == 200
        before = resident(page.process.pid)
        with ThreadPoolExecutor(40) as attackers:
            answers = attackers.map(wrong, range(120))
            for _ in range(5):
                assert client.get("/messages", auth=("ada", "lovelace")).status_code == 200
            found = {answer.status_code: answer for answer in answers}
        assert found.keys() == {401, 429}
        assert found[429].headers["retry-after"] == "2"
        assert resident(page.process.pid) - before < 100


def resident(pid: int) -> int:
    """The most memory that a process has had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def test_a_port_that_is_taken_is_told_in_one_line(run: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = run.refused("web", "--port", str(port))
        assert f"127.0.0.1:{port} cannot be opened: Address already in use; choose another port" in line


def test_what_is_missing_or_misplaced_is_told(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "go with a --transport of amqp://" in run.refused("web", "--cascade", "nservicebus-v2")
    for name in ("nowhere.invalid", "a..b", "x" * 300):
        assert f"--host {name} cannot be resolved" in _with_user(run, monkeypatch, "--host", name)
    monkeypatch.delenv("DELAYSTORE_ENDPOINT")
    assert "no endpoint is given" in run.refused("web")


def _with_user(run: CommandLine, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setenv("DELAYSTORE_WEB_USERS", USERS)
    return run.refused("web", *arguments)


def test_a_password_is_hashed(environment: dict[str, str]) -> None:
    import subprocess

    process = started(["web", "--hash-password"], environment, stdin=subprocess.PIPE)
    hashed, _ = process.communicate("love lace\n", timeout=30)
    assert process.returncode == 0
    accounts = accounts_of(f"ada:read:{hashed.strip()}")
    assert accounts.log_in("ada", "love lace") is not None
    assert accounts.log_in("ada", "lovelace") is None
