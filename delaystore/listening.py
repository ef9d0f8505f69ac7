"""Listening sockets whose connections leave descriptors to the database and the broker."""

import errno
import logging
import resource
import socket
import time
from typing import Any, Final

from typing_extensions import override

logger = logging.getLogger(__name__)

FEW: Final = 32
"""Connections of a server for probes or metrics."""
_MANY: Final = 1_000
_KEPT: Final = 200 + 2 * FEW + 56
"""Descriptors that a page's connections leave: 200 for database and broker, others for small servers and files."""
_BACKLOG: Final = 128
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
    """Listens at `host` and `port`, and closes each connection beyond the first `most` at once.

    `accept`, which the servers of asyncio and of socketserver call, never raises for a lack of descriptors: they would
    log that, or try again, without a pause.

    Args:
        host: A name or an address.
        port: 0: any that is free.
        most: Maximum number of open connections.
        lifetime: Seconds that a connection may last when all `most` are in use. None: no limit.

    Raises:
        socket.gaierror, UnicodeError: The host has no address.
        OSError: The address cannot be used.

    """

    def __init__(self, host: str, port: int, *, most: int = FEW, lifetime: float | None = None) -> None:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        super().__init__(family, kind, protocol)
        self._most = most
        self._lifetime = lifetime
        self._open: list[tuple[float, socket.socket]] = []
        self._closed_at_once = 0
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
        now = time.monotonic()
        self._open = [each for each in self._open if each[1].fileno() >= 0]
        if len(self._open) >= self._most:
            connection.close()
            self._end_outlived(now)
            self._closed_at_once += 1
            self._report(f"has {self._most} open connections, its limit: closed {self._closed_at_once} more at once")
            raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections")
        self._open.append((now, connection))
        return connection, address

    def _end_outlived(self, now: float) -> None:
        for since, connection in self._open:
            if self._lifetime is not None and now - since > self._lifetime:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # it has just ended
                    continue

    def _report(self, trouble: str) -> None:
        """Log `trouble`, once a minute at most."""
        now = time.monotonic()
        if now >= self._next_line:
            host, port = self.getsockname()[:2]
            logger.warning("The server at %s port %d %s. The rest of the process is not affected.", host, port, trouble)
            self._next_line = now + _SELDOM
            self._closed_at_once = 0
