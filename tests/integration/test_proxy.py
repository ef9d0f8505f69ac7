"""The proxy of the tests does to connections what it is told."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.faults.patience import PATIENCE
from tests.servers import Proxy


class Echo:
    """A server that answers each piece with `name` and the piece."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listener.accept()[:1], daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with suppress(OSError), peer:
            while piece := peer.recv(65536):
                peer.sendall(self._name + piece)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo(b"1:")
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with connect(proxy) as client:
        yield client


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE)


def ask(client: socket.socket, text: bytes = b"hello") -> bytes:
    client.sendall(text)
    return client.recv(65536)


def is_silent(client: socket.socket) -> bool:
    client.settimeout(0.5)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENCE)
    return False


def test_it_carries_both_ways(client: socket.socket) -> None:
    assert ask(client) == b"1:hello"
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""


def test_it_names_itself_in_place_of_the_server(proxy: Proxy) -> None:
    assert proxy.url_of("amqp://me:secret@127.0.0.1:5672/a%2Fb") == f"amqp://me:secret@127.0.0.1:{proxy.port}/a%2Fb"


def test_it_switches_new_connections_and_keeps_old_ones(proxy: Proxy, client: socket.socket) -> None:
    assert ask(client) == b"1:hello"
    with ExitStack() as stack:
        other = Echo(b"2:")
        stack.callback(other.close)
        proxy.switch(other.port)
        assert ask(client) == b"1:hello"
        assert ask(stack.enter_context(connect(proxy))) == b"2:hello"


def test_it_cuts_by_reset(proxy: Proxy, client: socket.socket) -> None:
    assert ask(client)
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with connect(proxy) as another:
        assert ask(another) == b"1:hello"


def test_it_cuts_by_an_end(proxy: Proxy, client: socket.socket) -> None:
    assert ask(client)
    proxy.cut(reset=False)
    assert client.recv(1) == b""


def test_it_holds_what_is_sent_and_passes_it_on_later(proxy: Proxy, client: socket.socket) -> None:
    assert ask(client)
    proxy.hold()
    client.sendall(b"later")
    with connect(proxy) as another:
        another.sendall(b"new")
        assert is_silent(client)
        assert is_silent(another)
        proxy.pass_on()
        assert client.recv(100) == b"1:later"
        assert another.recv(100) == b"1:new"


def test_it_swallows_what_is_sent_for_good(proxy: Proxy, client: socket.socket) -> None:
    assert ask(client)
    proxy.swallow()
    client.sendall(b"lost")
    assert is_silent(client)
    proxy.pass_on()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_it_delays_answers_alone(proxy: Proxy, client: socket.socket) -> None:
    proxy.delay(answers=0.5)
    began = time.monotonic()
    assert ask(client) == b"1:hello"
    assert time.monotonic() - began >= 0.5


def test_it_limits_the_bytes_of_a_second(proxy: Proxy, client: socket.socket) -> None:
    proxy.limit(requests=10_000)
    client.sendall(b"-")  # until something comes, the proxy waits for as much as there is
    while not client.recv(65536).endswith(b"-"):
        pass
    began = time.monotonic()
    client.sendall(b"x" * 10_000)
    received = 0
    while received < 9_000:
        received += client.recv(65536).count(b"x")
    assert time.monotonic() - began >= 0.5


def test_a_server_that_is_not_there_ends_the_connection(proxy: Proxy, echo: Echo) -> None:
    proxy.switch(1)
    with connect(proxy) as client:
        assert client.recv(1) == b""
