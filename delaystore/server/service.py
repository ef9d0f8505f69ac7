"""The service: endpoints, the web page, metrics and probes, in one process; how it is doing, and reloads."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from starlette.types import ASGIApp

from delaystore.errors import ConfigurationError
from delaystore.processes import FEW, Listener
from delaystore.server.components import Metrics
from delaystore.server.configuration.shown import KeyChange, changes, with_fixed_of
from delaystore.server.configuration.tree import ServiceConfiguration
from delaystore.server.configuration.values import ListenAddress
from delaystore.server.endpoints import Endpoints, Transition
from delaystore.server.runner import Runner, drained, within
from delaystore.server.site import ServerComponent, ServiceSite, ServiceState, listener_at, probe_application, probes

_HUNG: Final = 30.0
"""Seconds without a turn of the main loop after which the process does not live."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The result of a reload. `made`: changes that hold now. `waiting`: changes that take a restart of the process.

    `unfinished`: replaced components that have not finished. `failure`: an unexpected error in the middle of it.
    """

    made: Sequence[KeyChange]
    waiting: Sequence[KeyChange]
    unfinished: Sequence[str] = ()
    failure: Exception | None = None


class Service:
    """One service. `tell`: called with remarks for people, a line each.

    Settings that are known to fail without a connection fail at construction, which listens to nothing yet:
    ConfigurationError, MissingDependencyError; then nothing is left open.
    """

    def __init__(self, configuration: ServiceConfiguration, tell: Callable[[str], object]) -> None:
        self.configuration = configuration
        self._protected = configuration.web.is_protected
        self._tell = tell
        self._turned = time.monotonic()
        self._ending = False
        self._metrics: Metrics | None = None
        self._servers: list[Runner] = []
        self._site: Final = ServiceSite(probes(self.state, reasons=False), os.environ)
        self._endpoints: Final = Endpoints(configuration.endpoint, tell)
        with ExitStack() as opened:
            opened.callback(self.close)
            self._site.show(configuration.web, self._endpoints)
            opened.pop_all()

    def start(self) -> None:
        """Run everything; returns at once, also while servers are down.

        Raises ConfigurationError, before anything runs, where it cannot listen.
        """
        web, health, metrics = self.configuration.web, self.configuration.health, self.configuration.metrics
        with ExitStack() as opened:
            if metrics.listen is not None:
                self._metrics = Metrics(metrics)
                opened.callback(self._metrics.close)
                self._tell(f"serving metrics at {self._metrics.url}")
            if web.enabled:
                listener = opened.enter_context(listener_at(web.listen, "[web] listen"))
                self._serve("the web page", self._site, web.listen, listener, "serving {}", self._site.stop)
            if health.listen is not None:
                listener = opened.enter_context(listener_at(health.listen, "[health] listen", FEW))
                probe = probe_application(self.state)
                self._serve("the health page", probe, health.listen, listener, "serving health at {}", most=FEW)
            opened.pop_all()
        self._set_log_level()
        for server in self._servers:
            server.start()
        self._endpoints.start(self._metrics)
        self._tell(
            f"running: {', '.join(component for endpoint in self._endpoints for component in endpoint.components)}"
        )

    def turn(self) -> None:
        """Called by the main loop, again and again: it lives."""
        self._turned = time.monotonic()

    def state(self) -> ServiceState:
        """How it is, as of a few seconds ago. Asks no server; any thread may call it."""
        problems: dict[str, Sequence[str]] = {"the service": ["it is ending"]} if self._ending else {}
        for endpoint in self._endpoints:
            problems.update(endpoint.problems())
        problems.update({each.name: found for each in self._servers if (found := each.problems())})
        if self._metrics is not None and (found := self._metrics.problems()):
            problems["metrics"] = found
        return ServiceState(live=self._lives, problems=problems)

    def reload(self, configuration: ServiceConfiguration, keep_alive: Callable[[], bool]) -> Reloaded:
        """Go over to `configuration`, except for changes that take a restart of the process.

        Components whose configuration is the same go on as they are; others begin once those before have finished, or
        have used up `drain`. `keep_alive`: called while components finish; False: they are waited for no longer.
        An error has changed nothing: ConfigurationError where `configuration` cannot work.
        """
        if self._protected and not configuration.web.is_protected:
            raise ConfigurationError(
                "[web] users: the last user is removed, and without users the page accepts every request from this "
                "machine; name a user, or restart the service to run it without users"
            )
        found = list(changes(self.configuration, configuration))
        wanted = with_fixed_of(self.configuration, configuration)
        transition = self._endpoints.transition_to(wanted.endpoint)
        done = Reloaded([each for each in found if not each.fixed], [each for each in found if each.fixed])
        try:
            return replace(done, unfinished=self._go_over(wanted, transition, keep_alive))
        except Exception as error:
            return replace(done, failure=error)

    def _go_over(
        self, wanted: ServiceConfiguration, transition: Transition, keep_alive: Callable[[], bool]
    ) -> Sequence[str]:
        """The names of unfinished components."""
        deadline = time.monotonic() + wanted.drain.total_seconds()
        self.configuration = wanted
        self._protected = wanted.web.is_protected
        self._set_log_level()
        unfinished = drained(self._endpoints.leave(transition), deadline, keep_alive)
        self._endpoints.close_left()
        self._endpoints.enter(transition)
        self._site.show(wanted.web, self._endpoints)
        if self._metrics is not None:
            self._metrics.keep_only(wanted.endpoint)
        return unfinished

    def stop(self, keep_alive: Callable[[], bool]) -> Sequence[str]:
        """Finish the work in flight, and end: first components that take messages in, then components that send them
        on, and then the pages.

        Returns the components that did not end within `drain`. `keep_alive`: called meanwhile.
        """
        self._ending = True
        deadline = time.monotonic() + self.configuration.drain.total_seconds()
        unfinished = drained([*self._endpoints.turns(), self._servers], deadline, keep_alive)
        if self._metrics is not None:
            self._metrics.close()
        self.close()
        unfinished += [
            f"{each.name} connections"
            for each in self._endpoints.all()
            if not within(each.closed, deadline, keep_alive)
        ]
        return unfinished

    def close(self) -> None:
        """Close open parts; of a service that has been started call `stop`."""
        for endpoint in self._endpoints.all():
            endpoint.close()

    @property
    def _lives(self) -> bool:
        if time.monotonic() - self._turned > _HUNG:
            return False
        return self._ending or all(each.is_alive for each in (*self._endpoints, *self._servers))

    def _set_log_level(self) -> None:
        logging.getLogger("delaystore").setLevel(self.configuration.log_level.number)

    def _serve(
        self,
        name: str,
        application: ASGIApp,
        address: ListenAddress,
        listener: Listener,
        announcement: str,
        ending: Callable[[], object] = lambda: None,
        most: int | None = None,
    ) -> None:
        first = [listener]

        def ready(url: str) -> None:
            self._tell(announcement.format(url))

        def make() -> ServerComponent:
            own = first.pop() if first else listener_at(address, name, most)
            return ServerComponent(application, own, ending=ending, ready=ready)

        self._servers.append(Runner(name, make))
