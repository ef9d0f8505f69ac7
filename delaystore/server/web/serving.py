"""Serving the page alone: one process, until it is asked to end."""

import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from delaystore.errors import ConfigurationError
from delaystore.processes import Listener, most_connections
from delaystore.server.web.http import is_loopback

PORT: Final = 8765
HOST: Final = "127.0.0.1"
_GRACE: Final = 5
"""Seconds that answers in progress get at the end."""
_SILENCE: Final = 10.0
"""Seconds that a client may take for a request's head, and for the next part of an answer."""
_SWEEP: Final = 10
"""Ticks of uvicorn between two looks for silent clients, of 0.1 s each."""


def listening(host: str, port: int, *, protected: bool, option: str = "--host", most: int | None = None) -> Listener:
    """A socket that listens there. `protected`: whether users have to log in, as any client may connect then.
    `option`: what errors call the host. `most`: the most connections; None: as many as a page has.

    Raises ConfigurationError for a host that is not this machine's own without a login, for one that has no
    address here, and for a port that is taken.
    """
    if not protected and not is_loopback(host):
        raise ConfigurationError(
            f"{option} {host} accepts requests from other machines, and no user is configured; set "
            f"DELAYSTORE_WEB_USERS, as in ada:operate:PASSWORD, or leave {option} out"
        )
    try:
        return Listener(host, port, most=most_connections() if most is None else most)
    except UnicodeError:  # of a name that DNS cannot have, such as one of 300 characters
        raise ConfigurationError(f"{option} {host} cannot be resolved: the name is invalid") from None
    except socket.gaierror as error:
        raise ConfigurationError(f"{option} {host} cannot be resolved: {error.strerror or error}") from None
    except OSError as error:
        raise ConfigurationError(
            f"{host}:{port} cannot be opened: {error.strerror}; choose another port, or end the program that uses it"
        ) from None


def address_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class PageServer(uvicorn.Server):
    """Serves `app` at `listener`, in this process. The caller handles signals.

    `ready` is called once it answers; `ending`, as it is stopped: it ends streams of events, which would go on
    otherwise.
    """

    def __init__(
        self, app: ASGIApp, listener: Listener, ready: Callable[[], object], ending: Callable[[], object]
    ) -> None:
        config = uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            lifespan="off",
            log_level="error",  # any client can cause warnings
            loop="asyncio",  # another one would not call Listener.accept
            http="h11",
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            ws="none",
        )
        super().__init__(config)
        self._ending = ending
        self._listener = listener
        listener.busy = self._in_requests
        self._ready = ready
        self._waiting: dict[H11Protocol, tuple[object, float]] = {}

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

    @override
    async def on_tick(self, counter: int) -> bool:
        if counter % _SWEEP == 0:
            self._end_silent()
        return await super().on_tick(counter)

    def _in_requests(self) -> set[int]:
        """The descriptors of connections whose request has no whole answer yet."""
        return {
            each.transport.get_extra_info("socket").fileno()
            for each in cast("set[H11Protocol]", self.server_state.connections)
            if each.cycle is not None and not each.cycle.response_complete
        }

    def _end_silent(self) -> None:
        """End connections that have waited too long for their client: for a request, or for it to read the answer.

        uvicorn's own limit begins with the end of the first answer. It does not count the seconds of a client that
        sends nothing, or a byte now and then.
        """
        now, before, self._waiting = time.monotonic(), self._waiting, {}
        for connection in cast("set[H11Protocol]", self.server_state.connections.copy()):
            request, unsent = connection.cycle, connection.transport.get_write_buffer_size()
            if request is not None and not request.response_complete and not unsent:
                continue  # it waits for the application
            awaited = (request, unsent)
            was_awaited, since = before.get(connection, (None, now))
            if was_awaited != awaited:
                since = now
            if now - since > _SILENCE:
                connection.transport.abort()
            else:
                self._waiting[connection] = awaited, since
