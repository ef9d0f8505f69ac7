"""Idle connections to the servers of a process: they use up no descriptors, and end."""

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.transports import open_transport
from tests.dispatching import wait_until
from tests.service.serving import Serving, serving
from tests.web.served import served

DESCRIPTORS = 420
KEPT = 200


@contextmanager
def descriptors(number: int) -> Iterator[None]:
    """Processes that begin within the block may open `number` files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def service(sqlite_url: str) -> Iterator[Serving]:
    """A service with all its servers, and few descriptors."""
    environment = {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_TRANSPORT": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}
    servers = ("--web", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--health", "127.0.0.1:0")
    with closing(open_transport(sqlite_url)) as transport:
        transport.declare("billing")
    with ExitStack() as opened:
        with descriptors(DESCRIPTORS):
            service = opened.enter_context(serving(*servers, environment=environment))
        service.wait_until_ready()
        yield service


def connections(stack: ExitStack, url: str, number: int) -> list[socket.socket]:
    """Connections to `url` on which nothing is sent."""
    found = urlsplit(url)
    address = (str(found.hostname), int(found.port or 0))
    return [stack.enter_context(socket.create_connection(address, 5)) for _ in range(number)]


def in_use(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def ended(connection: socket.socket) -> bool:
    """Whether the server has closed it."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def test_more_connections_than_there_is_room_for_are_closed_and_all_else_goes_on(
    service: Serving, sqlite_url: str
) -> None:
    metrics = service.says(r"^serving metrics at (\S+)").group(1)
    health = service.says(r"^serving health at (\S+)/").group(1)
    with ExitStack() as stack:
        many = connections(stack, service.url, 300)
        wait_until(lambda: ended(many[0]), "an end at once")
        assert httpx.get(f"{health}/livez").status_code == 200  # on a port of its own
        assert httpx.get(metrics).status_code == 200
        others = connections(stack, health, 60) + connections(stack, metrics, 60)
        wait_until(lambda: ended(others[0]) and ended(others[60]), "an end at once")
        assert httpx.get(f"{health}/livez").status_code == 200
        assert httpx.get(metrics).status_code == 200
        assert in_use(service.process.pid) <= DESCRIPTORS - KEPT
        with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as delivery:
            delivery.send("billing", b"pay me", delay=0)
            wait_until(lambda: delivery.count() == 0, "the message on its way")
    assert service.stop() == 0
    assert sum("open connections" in line for line in service.lines) == 3, service.lines
    assert len(service.lines) < 12


@pytest.mark.long
def test_connections_that_are_kept_alive_lock_out_no_probe_and_end_no_request(service: Serving) -> None:
    metrics = service.says(r"^serving metrics at (\S+)").group(1)
    health = service.says(r"^serving health at (\S+)/").group(1)
    with ExitStack() as stack:
        events = stack.enter_context(httpx.stream("GET", f"{service.url}/sales/events", timeout=30))
        lines = events.iter_lines()
        assert next(lines).startswith("retry: ")
        for url, number in ((health, 32), (service.url, DESCRIPTORS - KEPT - 120 - 1)):
            for each in connections(stack, url, number):
                each.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert each.recv(65536).startswith(b"HTTP/1.1 200 ")
        connections(stack, metrics, 32)
        for _ in range(3):
            for url in (f"{health}/livez", f"{health}/readyz", f"{service.url}/livez", metrics):
                assert httpx.get(url).status_code == 200
        assert any(line.startswith("data: ") for line in lines)


@pytest.mark.long
def test_a_client_that_is_silent_is_left(service: Serving) -> None:
    metrics = service.says(r"^serving metrics at (\S+)").group(1)
    health = service.says(r"^serving health at (\S+)/").group(1)
    with ExitStack() as stack:
        silent = [connections(stack, url, 1)[0] for url in (service.url, health, metrics)]
        dripping, deaf = connections(stack, service.url, 2)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                deaf.send(b"GET /static/delaystore.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        began = time.monotonic()
        while not ended(dripping):
            assert time.monotonic() - began < 30
            dripping.send(b"G")
            time.sleep(0.3)
        for each in silent:
            wait_until(lambda each=each: ended(each), "an end")  # type: ignore[misc]
        wait_until(lambda: ended(deaf), "an end")


@pytest.mark.long
def test_connections_that_cannot_be_accepted_are_no_flood_of_log_lines(sqlite_url: str, tmp_path: Path) -> None:
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as delivery:
        delivery.send("billing", b"x", delay=60)
    environment = {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}
    with served(environment=environment) as page:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.prlimit(page.process.pid, resource.RLIMIT_NOFILE, (28, most))  # fewer than a page takes connections
        with ExitStack() as stack:
            connections(stack, page.url, 60)
            wait_until(lambda: in_use(page.process.pid) >= 28, "all descriptors")
            time.sleep(1)
        assert httpx.get(f"{page.url}/messages", timeout=30).status_code == 200
        code, said = page.stop()
    assert code == 0
    (line,) = said.splitlines()[:-1]
    assert "cannot accept connections: Too many open files" in line
