"""The main loop of a service: requests to stop and to reload, and the word that it lives."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from delaystore.errors import DelaystoreError
from delaystore.service.configuration.tree import ServiceConfiguration
from delaystore.service.notify import Notifier
from delaystore.service.requests import Request, Requests
from delaystore.service.service import Reloaded, Service

logger = logging.getLogger("delaystore.service")

_TURN: Final = 1.0
"""Seconds of a turn of the loop."""


class Running:
    """Runs a service in the calling thread, until `requests` asks it to stop.

    `load`: reads the configuration again; None: there is no file. `tell`: called with remarks for people.
    """

    def __init__(
        self,
        service: Service,
        requests: Requests,
        load: Callable[[], ServiceConfiguration] | None,
        notifier: Notifier,
        tell: Callable[[str], object],
    ) -> None:
        self._service = service
        self._requests = requests
        self._load = load
        self._notifier = notifier
        self._tell = tell

    def run(self) -> Sequence[str]:
        """Run until a request to stop, and drain. Returns what did not end in time. ConfigurationError: see Service."""
        self._service.start()
        self._notifier.ready()
        while self._next() is not Request.STOP:
            pass
        self._notifier.stopping()
        self._notifier.status("ending: finishing what is in flight")
        return self._service.stop(self._goes_on_draining)

    def _next(self) -> Request | None:
        """Wait for a request, for a turn at most, and reload if it is one for that; None: there was none."""
        request = self._requests.next(min(_TURN, (self._notifier.watchdog or _TURN) / 3))
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

    def _goes_on_draining(self) -> bool:
        self._beat()
        return True

    def _goes_on_reloading(self) -> bool:
        self._beat()
        return not self._requests.stopping

    def _reload(self) -> None:
        self._notifier.reloading()
        self._notifier.status("reloading")
        try:
            self._go_over()
        except DelaystoreError as error:
            self._tell(f"not reloaded, all is as it was: {' '.join(str(error).split())}")
        except Exception as error:
            logger.exception("unforeseen, while the configuration was read again")
            self._tell(f"not reloaded, all is as it was: {_line(error)}")
        finally:
            self._notifier.ready()

    def _go_over(self) -> None:
        if self._load is None:
            self._tell("not reloaded: there is no configuration file; restart to change options")
            return
        done = self._service.reload(self._load(), self._goes_on_reloading)
        if done.failure is not None:
            logger.error("unforeseen, while going over to another configuration", exc_info=done.failure)
            self._tell(f"reloaded in part: {_line(done.failure)}; send SIGHUP again, or restart")
            return
        self._tell_of(done)

    def _tell_of(self, done: Reloaded) -> None:
        made = ", ".join(map(str, done.made))
        self._tell(f"reloaded: {made or 'nothing has changed'}")
        if done.waiting:
            self._tell(f"restart for: {', '.join(map(str, done.waiting))}")
        for name in done.unfinished:
            self._tell(f"{name} is still finishing, beside what has taken its place")


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
