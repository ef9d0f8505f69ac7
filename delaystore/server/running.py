"""The main loop of a service: requests to stop and to reload, the watchdog, and each failure logged once."""

import logging
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from delaystore.errors import DelaystoreError


class ServiceRequest(Enum):
    """One thing that a service is asked to do."""

    STOP = auto()
    RELOAD = auto()


class Requests:
    """What signal handlers ask of a service. They may come at any time, also before there is one.

    `stopping`: whether it is to stop.
    """

    def __init__(self) -> None:
        self.stopping = False
        self._made: SimpleQueue[ServiceRequest] = SimpleQueue()
        self.reload: Final = partial(self._made.put, ServiceRequest.RELOAD)
        """Ask it to read its configuration again."""

    def stop(self) -> None:
        """Ask it to stop."""
        self.stopping = True
        self._made.put(ServiceRequest.STOP)

    def next(self, seconds: float) -> ServiceRequest | None:
        """Wait for one, for so long at most; None: there was none. Many that came since the last call are one."""
        try:
            found = [self._made.get(timeout=seconds)]
        except Empty:
            return None
        while not self._made.empty():
            found.append(self._made.get())
        return ServiceRequest.STOP if ServiceRequest.STOP in found else ServiceRequest.RELOAD


_QUIET: Final = 60.0
"""Seconds within which the same reason is not critical again."""


class CriticalOnce(logging.Filter):
    """Drops a critical record with the reason, the last argument, of another critical record shortly before.

    The log has each component's fault already, as a warning.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._reported: dict[str, float] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged."""
        if record.levelno < logging.CRITICAL or not isinstance(record.args, tuple) or not record.args:
            return True
        now, reason = self._monotonic(), str(record.args[-1])
        before = self._reported.get(reason)
        self._reported = {each: at for each, at in self._reported.items() if now - at < _QUIET} | {reason: now}
        return before is None or now - before >= _QUIET


if TYPE_CHECKING:  # imported at run time these would make each command of the command line start slowly
    from delaystore.server.configuration.tree import ServiceConfiguration
    from delaystore.server.service import Reloaded, Service
    from delaystore.server.systemd import Notifier

logger = logging.getLogger("delaystore.server")

_TURN: Final = 1.0
"""Seconds of a turn of the loop."""


class Running:
    """Runs a service in the calling thread, until `requests` asks it to stop.

    `load`: reads the configuration again; None: there is no file. `tell`: called with remarks for people.
    """

    def __init__(
        self,
        service: "Service",
        requests: Requests,
        load: Callable[[], "ServiceConfiguration"] | None,
        notifier: "Notifier",
        tell: Callable[[str], object],
    ) -> None:
        self._service = service
        self._requests = requests
        self._load = load
        self._notifier = notifier
        self._tell = tell

    def run(self) -> Sequence[str]:
        """Run until a request to stop, and drain. Returns the components that did not end in time.
        ConfigurationError: see Service.
        """
        self._service.start()
        self._notifier.ready()
        while self._next() is not ServiceRequest.STOP:
            pass
        self._notifier.stopping()
        self._notifier.status("ending: finishing what is in flight")
        return self._service.stop(self._goes_on_draining)

    def _next(self) -> ServiceRequest | None:
        """Wait for a request, for a turn at most, and reload if it is one for that; None: there was none."""
        request = self._requests.next(min(_TURN, (self._notifier.watchdog or _TURN) / 3))
        if request is ServiceRequest.RELOAD:
            self._reload()
        if request is not ServiceRequest.STOP:
            self._keep_alive()
            self._notifier.status(str(self._service.state()))
        return request

    def _keep_alive(self) -> None:
        self._service.turn()
        if self._service.state().live:
            self._notifier.alive()

    def _goes_on_draining(self) -> bool:
        self._keep_alive()
        return True

    def _goes_on_reloading(self) -> bool:
        self._keep_alive()
        return not self._requests.stopping

    def _reload(self) -> None:
        self._notifier.reloading()
        self._notifier.status("reloading")
        try:
            self._go_over()
        except DelaystoreError as error:
            self._tell(f"not reloaded, all is as it was: {' '.join(str(error).split())}")
        except Exception as error:
            logger.exception(
                "internal error while reading the configuration again; the service continues with the old one"
            )
            self._tell(f"not reloaded, all is as it was: {_line(error)}")
        finally:
            self._notifier.ready()

    def _go_over(self) -> None:
        if self._load is None:
            self._tell("not reloaded: there is no configuration file; restart to change options")
            return
        done = self._service.reload(self._load(), self._goes_on_reloading)
        if done.failure is not None:
            logger.error("internal error while applying the new configuration", exc_info=done.failure)
            self._tell(f"reloaded in part: {_line(done.failure)}; send SIGHUP again, or restart")
            return
        self._tell_of(done)

    def _tell_of(self, done: "Reloaded") -> None:
        made = ", ".join(map(str, done.made))
        self._tell(f"reloaded: {made or 'nothing has changed'}")
        if done.waiting:
            self._tell(f"restart for: {', '.join(map(str, done.waiting))}")
        for name in done.unfinished:
            self._tell(f"{name} is still finishing, beside what has taken its place")


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
