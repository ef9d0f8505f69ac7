"""The endpoints of a service: their components, started, changed by a reload, and ended."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from delaystore.calls import in_background
from delaystore.errors import ConfigurationError, DelaystoreError
from delaystore.ingress.ingress import Ingress
from delaystore.server.components import Metrics, ServedEndpoint, control_of, dispatcher_of, ingress_of
from delaystore.server.configuration.ingress import IngressConfiguration
from delaystore.server.configuration.tree import EndpointConfiguration
from delaystore.server.runner import Component, ComponentPlan, Rank, Runner

_EVERY: Final = 2.0
"""Seconds between two looks at how the components are."""
_STALE: Final = 15.0
"""Seconds after which the last look says nothing any more."""
Problems = Mapping[str, Sequence[str]]
"""Why components are not ready, by their names; ready ones are left out."""


class Endpoint:
    """One endpoint, opened; `start` runs its components. `own`: queues and exchanges of the service's other endpoints.

    `tell`: called with remarks for people, a line each.
    Raises ConfigurationError, UnsupportedModeError, MissingDependencyError: then nothing is left open.
    """

    def __init__(
        self,
        name: str,
        configuration: EndpointConfiguration,
        tell: Callable[[str], object],
        own: frozenset[str] = frozenset(),
    ) -> None:
        self.name: Final = name
        self._own = own
        self.configuration = configuration
        self._metrics: Metrics | None = None
        self.opened: Final = ServedEndpoint(name, configuration, tell)
        self._runners: dict[ComponentPlan, Runner] = {}
        self._former: list[tuple[ComponentPlan, Runner]] = []
        self._ending = threading.Event()
        self._closed = threading.Event()
        self.closed: Final = self._closed.wait
        """Wait for the end of `close`, for a number of seconds at most; returns whether it has come."""
        self._looked = time.monotonic()
        self._problems: Problems = {}
        self._watch = threading.Thread(target=self._look_again, name=f"delaystore-service-look-{name}", daemon=True)

    def start(self, metrics: Metrics | None = None) -> None:
        """Run all components; returns at once, also while servers are down. `metrics` None: nothing is measured."""
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
        """Remove the components that `configuration` changes or lacks; the caller drains them, see `former`."""
        self.configuration, self._own = configuration, own
        plans = self._plans()
        removed = [plan for plan in self._runners if plan not in plans]
        self._former = [(plan, runner) for plan, runner in self._former if runner.is_alive]
        self._former += [(plan, self._runners.pop(plan)) for plan in removed]

    def enter(self) -> None:
        """Start the components that are new or have changed."""
        self._begin(plan for plan in self._plans() if plan not in self._runners)

    def former(self, rank: Rank) -> Sequence[Runner]:
        """The components that were taken out, and may be finishing yet, of that turn."""
        return [runner for plan, runner in self._former if plan.rank is rank]

    def runners(self, rank: Rank) -> Sequence[Runner]:
        """The components that end in that turn, also removed ones."""
        return [*(runner for plan, runner in self._runners.items() if plan.rank is rank), *self.former(rank)]

    @property
    def components(self) -> Sequence[str]:
        """The names of the components that run, or wait for their servers."""
        return [plan.name for plan in list(self._runners)]

    def problems(self) -> Problems:
        """Why components are not ready, as of a few seconds ago."""
        if time.monotonic() - self._looked > _STALE:
            return {self.name: ["nothing is known of it: its servers do not answer"]}
        return self._problems

    @property
    def is_alive(self) -> bool:
        """Whether all components run, or will be started again."""
        return all(runner.is_alive for runner in list(self._runners.values()))

    def close(self) -> None:
        """Close store and transport once the components have ended; returns at once. May be called again."""
        if self._ending.is_set():
            return
        self._ending.set()
        in_background(f"delaystore-service-close-{self.name}", self._close)

    def _close(self) -> None:
        for rank in Rank:
            for runner in self.runners(rank):
                while not runner.ended(_EVERY):
                    pass
        if self._watch.ident is not None:
            self._watch.join()
        self.opened.close()
        self._closed.set()

    def _plans(self) -> Sequence[ComponentPlan]:
        configuration = self.configuration

        def dispatcher() -> Component:
            observer = None if self._metrics is None else self._metrics.observer(self.opened, configuration)
            return dispatcher_of(self.opened, configuration, observer)

        own = (configuration.dispatcher, configuration.schedules)
        plans = [ComponentPlan(f"{self.name} dispatcher", Rank.FORWARDING, own, dispatcher)]
        plans += (self._ingress_plan(name, each) for name, each in configuration.ingress.items())
        if configuration.control.enabled:
            make = partial(control_of, self.opened, configuration.control)
            plans.append(ComponentPlan(f"{self.name} control queue", Rank.INTAKE, configuration.control, make))
        return plans

    def _ingress_plan(self, name: str, own: IngressConfiguration) -> ComponentPlan:
        configuration = self.configuration
        names = self._own | configuration.own_names(self.name) if own.lets_publishers_name(name) else frozenset()
        make = partial(ingress_of, self.opened, configuration, name, names, self._watched)
        of = (own, names, configuration.dispatcher)
        return ComponentPlan(f"{self.name} ingress {name}", Rank.INTAKE, of, make)

    def _watched(self, ingress: Ingress) -> object:
        return None if self._metrics is None else self._metrics.watch_ingress(self.name, ingress)

    def _begin(self, plans: Iterable[ComponentPlan]) -> None:
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
    """The addresses and settings with which the store and the transport are opened."""
    return (
        configuration.store,
        configuration.transport,
        configuration.schema,
        configuration.table,
        configuration.error_queue,
        configuration.dispatcher.exactly_once,
    )


Configurations = Mapping[str, EndpointConfiguration]


@dataclass(frozen=True, slots=True)
class Transition:
    """A change to other endpoints that can be made. `opened`: endpoints that are new, or take the place of another."""

    wanted: Configurations
    opened: Mapping[str, Endpoint]


class Endpoints:
    """The endpoints that run, by name. Raises what Endpoint raises, naming it; then nothing is left open.

    `tell`: called with remarks for people, a line each.
    """

    def __init__(self, configurations: Configurations, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._running: dict[str, Endpoint] = {}
        self._left: list[Endpoint] = []
        self._metrics: Metrics | None = None
        self._opened = dict(self.transition_to(configurations).opened)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter([*self._running.values(), *self._opened.values()])

    def start(self, metrics: Metrics | None) -> None:
        """Run them all. `metrics` None: nothing is measured."""
        self._metrics = metrics
        self._run(self._opened)
        self._opened = {}

    def transition_to(self, wanted: Configurations) -> Transition:
        """Open new and changed endpoints; running ones stay. Raises ConfigurationError, naming the endpoint."""
        opened: dict[str, Endpoint] = {}
        own = _own_names(wanted)
        with ExitStack() as stack:
            for name, configuration in wanted.items():
                try:
                    running = self._running.get(name)
                    if running is not None and running.takes(configuration):
                        continue
                    opened[name] = Endpoint(name, configuration, self._tell, own)
                    stack.callback(opened[name].opened.close)
                except DelaystoreError as error:
                    raise ConfigurationError(f"the endpoint {name!r}: {error}") from None
            stack.pop_all()
        return Transition(wanted, opened)

    def leave(self, transition: Transition) -> Sequence[Sequence[Runner]]:
        """Remove changed endpoints, and return their components in the turns in which the caller drains them."""
        removed = [name for name in self._running if name not in transition.wanted or name in transition.opened]
        left = [self._running.pop(name) for name in removed]
        self._left = [*(each for each in self._left if not each.closed(0)), *left]
        own = _own_names(transition.wanted)
        for name, endpoint in self._running.items():
            endpoint.leave(transition.wanted[name], own)
        return [
            [component for each in left for component in each.runners(rank)]
            + [component for each in self._running.values() for component in each.former(rank)]
            for rank in sorted(Rank)
        ]

    def close_left(self) -> None:
        """Close endpoints that `leave` has taken out, once their components have ended; returns at once."""
        for endpoint in self._left:
            endpoint.close()

    def enter(self, transition: Transition) -> None:
        """Run new and changed endpoints, in place of the ones that `leave` took out."""
        for endpoint in self._running.values():
            endpoint.enter()
        self._run(transition.opened)

    def all(self) -> Sequence[Endpoint]:
        """Running endpoints, and endpoints that a reload took out and that have not finished yet."""
        return [*self, *self._left]

    def turns(self) -> Iterator[Sequence[Runner]]:
        """The components of all endpoints, in the turns in which they end; also components that a reload took out."""
        return turns_of(self.all())

    def _run(self, opened: Mapping[str, Endpoint]) -> None:
        for name, endpoint in opened.items():
            self._running[name] = endpoint
            endpoint.start(self._metrics)


def _own_names(configurations: Configurations) -> frozenset[str]:
    return frozenset().union(*(each.own_names(name) for name, each in configurations.items()))


def turns_of(endpoints: Sequence[Endpoint]) -> Iterator[Sequence[Runner]]:
    """The components of `endpoints`, in the turns in which they end."""
    return ([runner for each in endpoints for runner in each.runners(rank)] for rank in sorted(Rank))
