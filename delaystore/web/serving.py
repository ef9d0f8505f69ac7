"""Serving the page by itself: one process, until it is asked to end."""

import socket
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette
from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.web.origin import is_loopback

PORT: Final = 8765
HOST: Final = "127.0.0.1"
_BACKLOG: Final = 128
_GRACE: Final = 5
"""Seconds that answers in progress get at the end."""


def listening(host: str, port: int, *, protected: bool) -> socket.socket:
    """A socket that listens there. `protected`: whether somebody has to log in, as anybody may try then.

    Raises ConfigurationError for a host that is not this machine's own where nobody has to log in, for one that has no
    address here, and for a port that is taken.
    """
    if not protected and not is_loopback(host):
        raise ConfigurationError(
            f"--host {host} lets other machines in, and no user is configured; set DELAYSTORE_WEB_USERS, as in "
            "ada:operate:PASSWORD, or leave --host out"
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"--host {host} leads nowhere: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"{host}:{port} cannot be listened to: {error.strerror}; choose another --port"
        ) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(app: Starlette, listener: socket.socket, ready: Callable[[], object]) -> None:
    """Serve `app` until SIGINT or SIGTERM; `ready` is called once it answers. The second SIGINT ends it at once."""
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
        ws="none",
    )
    _Server(config, app, ready).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Ends streams of events as soon as it is asked to end, which would otherwise keep it."""

    def __init__(self, config: uvicorn.Config, app: Starlette, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.state.site.stop()
        super().handle_exit(sig, frame)
