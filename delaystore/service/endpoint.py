"""One endpoint of a service: its parts, started, changed and ended."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from delaystore.calls import in_background
from delaystore.service.configuration.ingress import IngressConfiguration
from delaystore.service.configuration.tree import EndpointConfiguration
from delaystore.service.dispatching import DispatcherPart
from delaystore.service.metrics import Metrics
from delaystore.service.opened import OpenedEndpoint
from delaystore.service.part import Part, Plan, Rank
from delaystore.service.runner import Runner

if TYPE_CHECKING:
    from delaystore.ingress.ingress import Ingress

_EVERY: Final = 2.0
"""Seconds between two looks at how the parts are."""
_STALE: Final = 15.0
"""Seconds after which the last look says nothing any more."""
Problems = Mapping[str, Sequence[str]]
"""Why parts do not do their part, by their names; of those that do, nothing."""


class Endpoint:
    """One endpoint, opened; `start` runs its parts. `own`: queues and exchanges of the service's other endpoints.

    Raises ConfigurationError, UnsupportedModeError, MissingDependencyError: then nothing is left open.
    """

    def __init__(self, name: str, configuration: EndpointConfiguration, own: frozenset[str] = frozenset()) -> None:
        self.name: Final = name
        self._own = own
        self.configuration = configuration
        self._metrics: Metrics | None = None
        self.opened: Final = OpenedEndpoint(name, configuration)
        self._runners: dict[Plan, Runner] = {}
        self._former: list[tuple[Plan, Runner]] = []
        self._ending = threading.Event()
        self._closed = threading.Event()
        self._looked = time.monotonic()
        self._problems: Problems = {}
        self._watch = threading.Thread(target=self._look_again, name=f"delaystore-service-look-{name}", daemon=True)

    def start(self, metrics: Metrics | None = None) -> None:
        """Run all parts; returns at once, also while servers are down. `metrics` None: nothing is measured."""
        self._metrics = metrics
        self._begin(self._plans())
        self._problems = self._look()
        self._watch.start()

    def takes(self, configuration: EndpointConfiguration) -> bool:
        """Whether `update` can go over to `configuration`; False: it takes another endpoint in place of this one.

        Raises ConfigurationError where it could not work so.
        """
        if _identity(configuration) != _identity(self.configuration):
            return False
        self.opened.check(configuration)
        return True

    def leave(self, configuration: EndpointConfiguration, own: frozenset[str] = frozenset()) -> None:
        """Take out the parts that `configuration` does not have so; the caller drains them, as `former` has them."""
        self.configuration, self._own = configuration, own
        plans = self._plans()
        gone = [plan for plan in self._runners if plan not in plans]
        self._former = [(plan, runner) for plan, runner in self._former if runner.is_alive]
        self._former += [(plan, self._runners.pop(plan)) for plan in gone]

    def enter(self) -> None:
        """Start the parts that are new or have changed."""
        self._begin(plan for plan in self._plans() if plan not in self._runners)

    def former(self, rank: Rank) -> Sequence[Runner]:
        """The parts that were taken out, and may be finishing yet, of that turn."""
        return [runner for plan, runner in self._former if plan.rank is rank]

    def runners(self, rank: Rank) -> Sequence[Runner]:
        """The parts that end in that turn, also those that were taken out."""
        return [*(runner for plan, runner in self._runners.items() if plan.rank is rank), *self.former(rank)]

    @property
    def parts(self) -> Sequence[str]:
        """The names of the parts that run, or wait for their servers."""
        return [plan.name for plan in list(self._runners)]

    def problems(self) -> Problems:
        """Why parts do not do their part, as of a few seconds ago."""
        if time.monotonic() - self._looked > _STALE:
            return {self.name: ["nothing is known of it: its servers do not answer"]}
        return self._problems

    @property
    def is_alive(self) -> bool:
        """Whether all parts run, or will be started again."""
        return all(runner.is_alive for runner in list(self._runners.values()))

    def close(self) -> None:
        """Close store and transport once the parts have ended; returns at once. May be called again."""
        if self._ending.is_set():
            return
        self._ending.set()
        in_background(f"delaystore-service-close-{self.name}", self._close)

    def closed(self, seconds: float) -> bool:
        """Wait for the end of `close`, for so long at most; whether it has come."""
        return self._closed.wait(seconds)

    def _close(self) -> None:
        for rank in Rank:
            for runner in self.runners(rank):
                while not runner.ended(_EVERY):
                    pass
        if self._watch.ident is not None:
            self._watch.join()
        self.opened.close()
        self._closed.set()

    def _plans(self) -> Sequence[Plan]:
        configuration = self.configuration

        def dispatcher() -> DispatcherPart:
            observer = None if self._metrics is None else self._metrics.observer(self.opened, configuration)
            return DispatcherPart(self.opened, configuration, observer)

        return [
            Plan(f"{self.name} dispatcher", Rank.FORWARDING, configuration.dispatcher, dispatcher),
            *(self._ingress_plan(name, each) for name, each in configuration.ingress.items()),
            *([self._control_plan()] if configuration.control.enabled else []),
        ]

    def _control_plan(self) -> Plan:
        own = self.configuration.control

        def control() -> Part:
            from delaystore.service.controlling import ControlPart  # which needs the libraries of RabbitMQ

            return ControlPart(self.opened, own)

        return Plan(f"{self.name} control queue", Rank.INTAKE, own, control)

    def _watched(self, ingress: "Ingress") -> object:
        return None if self._metrics is None else self._metrics.watch_ingress(self.name, ingress)

    def _ingress_plan(self, name: str, own: IngressConfiguration) -> Plan:
        configuration = self.configuration
        names = self._own | configuration.own_names(self.name) if own.lets_publishers_name(name) else frozenset()

        def ingress() -> Part:
            from delaystore.service.ingesting import IngressPart  # which needs the libraries of RabbitMQ

            return IngressPart(self.opened, configuration, name, own, names, self._watched)

        return Plan(f"{self.name} ingress {name}", Rank.INTAKE, (own, names, configuration.dispatcher), ingress)

    def _begin(self, plans: Iterable[Plan]) -> None:
        for plan in plans:
            runner = self._runners[plan] = Runner(plan.name, plan.make)
            runner.start()

    def _look(self) -> Problems:
        found = {runner.name: runner.problems() for runner in list(self._runners.values())}
        return {name: problems for name, problems in found.items() if problems}

    def _look_again(self) -> None:
        while not self._ending.wait(_EVERY):
            self._problems = self._look()
            self._looked = time.monotonic()


def _identity(configuration: EndpointConfiguration) -> object:
    """What the store and the transport are opened with."""
    return (
        configuration.store,
        configuration.transport,
        configuration.schema,
        configuration.table,
        configuration.error_queue,
        configuration.dispatcher.mode,
    )
