"""The main loop of a service: requests to stop and to reload, and the word that it lives."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import Final

from delaystore.errors import DelaystoreError
from delaystore.service.configuration.tree import ServiceConfiguration
from delaystore.service.notify import Notifier
from delaystore.service.service import Service

_TURN: Final = 1.0
"""Seconds of a turn of the loop."""


class Request(Enum):
    """What a service is asked to do. A signal handler may put it into the queue."""

    STOP = auto()
    RELOAD = auto()


class Running:
    """Runs a service in the calling thread, until it is asked to stop.

    `load`: reads the configuration again; None: there is no file. `tell`: called with remarks for people.
    """

    def __init__(
        self,
        service: Service,
        load: Callable[[], ServiceConfiguration] | None,
        notifier: Notifier,
        tell: Callable[[str], object],
    ) -> None:
        self._service = service
        self._load = load
        self._notifier = notifier
        self._tell = tell
        self.requests: Final[SimpleQueue[Request]] = SimpleQueue()

    def run(self) -> Sequence[str]:
        """Run until a request to stop, and drain. Returns what did not end in time. ConfigurationError: see Service."""
        self._service.start()
        self._notifier.ready()
        while self._next() is not Request.STOP:
            pass
        self._notifier.stopping()
        self._notifier.status("ending: finishing what is in flight")
        return self._service.stop(self._beat)

    def _next(self) -> Request | None:
        """Wait for a request, for a turn at most, and reload if it is one for that; None: there was none."""
        try:
            request = self.requests.get(timeout=min(_TURN, (self._notifier.watchdog or _TURN) / 3))
        except Empty:
            request = None
        if request is Request.RELOAD:
            self._reload()
        if request is not Request.STOP:
            self._beat()
            self._notifier.status(str(self._service.state()))
        return request

    def _beat(self) -> None:
        self._service.turn()
        if self._service.state().live:
            self._notifier.alive()

    def _reload(self) -> None:
        self._notifier.reloading()
        self._notifier.status("reloading")
        try:
            self._go_over()
        except DelaystoreError as error:
            self._tell(f"not reloaded, all is as it was: {' '.join(str(error).split())}")
        finally:
            self._notifier.ready()

    def _go_over(self) -> None:
        if self._load is None:
            self._tell("not reloaded: there is no configuration file; restart to change options")
            return
        done = self._service.reload(self._load(), self._beat)
        made = ", ".join(map(str, done.made))
        self._tell(f"reloaded: {made or 'nothing has changed'}")
        if done.waiting:
            self._tell(f"restart for: {', '.join(map(str, done.waiting))}")
        for name in done.unfinished:
            self._tell(f"{name} is still finishing, beside what has taken its place")
