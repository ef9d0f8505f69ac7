"""A TCP proxy in this process: leads to one server or another, or swallows what is said, without a word."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Forwarder:
    """Forwards connections to `port` to the port `target` of this computer, which may be changed at any time."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._silent = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, name="forwarder", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def fall_silent(self) -> None:
        """Forward nothing more of any connection; all stay open, as of hosts that have vanished."""
        self._silent.set()

    def close(self) -> None:
        """End all connections; may be called twice."""
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                self._open += [client, server]
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(one, other), name="forwarder", daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if not self._silent.is_set():
                    other.sendall(data)
            if not self._silent.is_set():
                other.shutdown(socket.SHUT_WR)
