"""Serving the page by itself: one process, until it is asked to end."""

import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.web.origin import is_loopback

PORT: Final = 8765
HOST: Final = "127.0.0.1"
_BACKLOG: Final = 128
_GRACE: Final = 5
"""Seconds that answers in progress get at the end."""


def listening(host: str, port: int, *, protected: bool, option: str = "--host") -> socket.socket:
    """A socket that listens there. `protected`: whether somebody has to log in, as anybody may try then.
    `option`: what errors call the host.

    Raises ConfigurationError for a host that is not this machine's own where nobody has to log in, for one that has no
    address here, and for a port that is taken.
    """
    if not protected and not is_loopback(host):
        raise ConfigurationError(
            f"{option} {host} lets other machines in, and no user is configured; set DELAYSTORE_WEB_USERS, as in "
            f"ada:operate:PASSWORD, or leave {option} out"
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"{option} {host} leads nowhere: {error.strerror or error}") from None
    except UnicodeError:  # of a name that DNS cannot have, such as one of 300 characters
        raise ConfigurationError(f"{option} {host} leads nowhere: no such name can be") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"{host}:{port} cannot be listened to: {error.strerror}; choose another port, or end what has this one"
        ) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class PageServer(uvicorn.Server):
    """Serves `app` at `listener`, in this process. Whoever runs it takes signals.

    `ready` is called once it answers; `ending`, as it is stopped: it ends streams of events, which would go on
    otherwise.
    """

    def __init__(
        self, app: ASGIApp, listener: socket.socket, ready: Callable[[], object], ending: Callable[[], object]
    ) -> None:
        config = uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            ws="none",
        )
        super().__init__(config)
        self._ending = ending
        self._listener = listener
        self._ready = ready

    def serve_until_stopped(self) -> None:
        """Return once `stop` was called, and answers in progress were given."""
        self.run(sockets=[self._listener])

    def stop(self) -> None:
        """End streams of events, and then the server. Signal handlers may call it."""
        self._ending()
        self.should_exit = True

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone: uvicorn would raise them again at the end, and SIGTERM would end the process."""
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()
