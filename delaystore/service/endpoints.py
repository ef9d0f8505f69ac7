"""All endpoints of a service, and the way from one configuration of them to the next."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from delaystore.errors import ConfigurationError, DelaystoreError
from delaystore.service.configuration.tree import EndpointConfiguration
from delaystore.service.endpoint import Endpoint
from delaystore.service.metrics import Metrics
from delaystore.service.part import Rank
from delaystore.service.runner import Runner

Configurations = Mapping[str, EndpointConfiguration]


@dataclass(frozen=True, slots=True)
class Transition:
    """A way to other endpoints that can be gone. `opened`: what is new, or takes the place of another."""

    wanted: Configurations
    opened: Mapping[str, Endpoint]


class Endpoints:
    """The endpoints that run, by name. Raises what Endpoint raises, naming it; then nothing is left open."""

    def __init__(self, configurations: Configurations) -> None:
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
        """Open what `wanted` has anew; changes nothing of what runs. Raises ConfigurationError, naming the endpoint."""
        opened: dict[str, Endpoint] = {}
        own = _own_names(wanted)
        with ExitStack() as stack:
            for name, configuration in wanted.items():
                try:
                    running = self._running.get(name)
                    if running is not None and running.takes(configuration):
                        continue
                    opened[name] = Endpoint(name, configuration, own)
                    stack.callback(opened[name].opened.close)
                except DelaystoreError as error:
                    raise ConfigurationError(f"the endpoint {name!r}: {error}") from None
            stack.pop_all()
        return Transition(wanted, opened)

    def leave(self, transition: Transition) -> Sequence[Sequence[Runner]]:
        """Take out what is removed, replaced or changed: its parts, in the turns in which the caller drains them."""
        gone = [name for name in self._running if name not in transition.wanted or name in transition.opened]
        left = [self._running.pop(name) for name in gone]
        self._left = [*(each for each in self._left if not each.closed(0)), *left]
        own = _own_names(transition.wanted)
        for name, endpoint in self._running.items():
            endpoint.leave(transition.wanted[name], own)
        return [
            [part for each in left for part in each.runners(rank)]
            + [part for each in self._running.values() for part in each.former(rank)]
            for rank in sorted(Rank)
        ]

    def close_left(self) -> None:
        """Close what `leave` has taken out, once its parts have ended; returns at once."""
        for endpoint in self._left:
            endpoint.close()

    def enter(self, transition: Transition) -> None:
        """Run what is new or has changed, in place of what `leave` took out."""
        for endpoint in self._running.values():
            endpoint.enter()
        self._run(transition.opened)

    def all(self) -> Sequence[Endpoint]:
        """Those that run, and those that a reload took out and that have not finished yet."""
        return [*self, *self._left]

    def turns(self) -> Iterator[Sequence[Runner]]:
        """The parts of all endpoints, in the turns in which they end; also those that a reload took out."""
        return turns_of(self.all())

    def _run(self, opened: Mapping[str, Endpoint]) -> None:
        for name, endpoint in opened.items():
            self._running[name] = endpoint
            endpoint.start(self._metrics)


def _own_names(configurations: Configurations) -> frozenset[str]:
    return frozenset().union(*(each.own_names(name) for name, each in configurations.items()))


def turns_of(endpoints: Sequence[Endpoint]) -> Iterator[Sequence[Runner]]:
    """The parts of `endpoints`, in the turns in which they end."""
    return ([runner for each in endpoints for runner in each.runners(rank)] for rank in sorted(Rank))
