"""A gate that tasks wait at: a port, which is open while somebody listens."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def opened(gate: int) -> Iterator[None]:
    """Listen at the port, and accept everybody."""
    with socket.create_server(("127.0.0.1", gate)) as server:
        server.settimeout(0.1)
        ended = threading.Event()
        thread = threading.Thread(target=_accept, args=(server, ended), name="gate")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def is_open(gate: int) -> bool:
    """Whether somebody listens."""
    try:
        socket.create_connection(("127.0.0.1", gate)).close()
    except OSError:
        return False
    return True


def _accept(server: socket.socket, ended: threading.Event) -> None:
    while not ended.is_set():
        try:
            server.accept()[0].close()
        except TimeoutError:
            continue
