"""Listening sockets whose connections leave descriptors to the database and the broker."""

import errno
import logging
import resource
import socket
import time
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Any, Final

from typing_extensions import override

logger = logging.getLogger(__name__)

FEW: Final = 32
"""Connections of a server for probes or metrics."""
_MANY: Final = 1_000
_KEPT: Final = 200 + 2 * FEW + 56
"""Descriptors that a page's connections leave: 200 for database and broker, others for small servers and files."""
_BACKLOG: Final = 128
_ENDING: Final = 8
"""Connections beyond a server's limit that are accepted while older ones end."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE: Final = 0.1
"""Seconds between two attempts to accept a connection for which there is no descriptor."""
_SELDOM: Final = 60.0
"""Seconds between two log lines."""


def most_connections() -> int:
    """The most connections of a page, by the limit on this process's file descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY if soft == resource.RLIM_INFINITY else max(FEW, min(_MANY, soft - _KEPT))


class Listener(socket.socket):
    """Listens at `host` and `port`; each connection beyond `most` ends the oldest one that `busy` does not name.

    If there is none, the new connection is closed at once.
    `accept`, which the servers of asyncio and of socketserver call, never raises for a lack of descriptors: they would
    log that, or try again, without a pause.

    Args:
        host: A name or an address.
        port: 0: any that is free.
        most: Maximum number of open connections.

    Raises:
        socket.gaierror, UnicodeError: The host has no address.
        OSError: The address cannot be used.

    """

    def __init__(self, host: str, port: int, *, most: int = FEW) -> None:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        super().__init__(family, kind, protocol)
        self._most = most
        self.busy: Callable[[], Container[int]] = tuple
        """Returns the descriptors of connections that are in a request."""
        self._open: list[socket.socket] = []
        self._ending: list[socket.socket] = []
        self._ended = 0
        self._next_line = 0.0
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address)
            self.listen(_BACKLOG)
        except BaseException:
            self.close()
            raise

    @override
    def accept(self) -> tuple[socket.socket, Any]:
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._report(f"cannot accept connections: {error.strerror}")
            time.sleep(_PAUSE)  # the connection still waits, and its server asks again at once
            raise ConnectionAbortedError(errno.ECONNABORTED, error.strerror) from None
        self._open = [each for each in self._open if each.fileno() >= 0]
        self._ending = [each for each in self._ending if each.fileno() >= 0]
        if len(self._open) >= self._most:
            self._ended += 1
            self._report(f"has {self._most} open connections, its limit: ended {self._ended} connections")
            if not self._end_oldest():
                connection.close()
                raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections")
        self._open.append(connection)
        return connection, address

    def _end_oldest(self) -> bool:
        """End the connection that has been open for longest without a request. False: there is none, or no room."""
        busy = self.busy()
        idle = next((each for each in self._open if each.fileno() not in busy), None)
        if idle is None or len(self._ending) >= _ENDING:
            return False
        with suppress(OSError):  # it has just ended
            idle.shutdown(socket.SHUT_RDWR)  # its server closes it
        self._open.remove(idle)
        self._ending.append(idle)
        return True

    def _report(self, trouble: str) -> None:
        """Log `trouble`, once a minute at most."""
        now = time.monotonic()
        if now >= self._next_line:
            host, port = self.getsockname()[:2]
            logger.warning("The server at %s port %d %s. The rest of the process is not affected.", host, port, trouble)
            self._next_line = now + _SELDOM
            self._ended = 0
