"""Binding destinations to a cascade's delivery exchange, each on its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._collisions import collisions_of
from delaystore.cascades._findings import Finding
from delaystore.cascades._snapshot import ExchangeState, Snapshot
from delaystore.errors import InvalidMessageError, TransportError, TransportUnavailableError
from delaystore.transports.rabbitmq.declaring import DeclarationError, declare
from delaystore.transports.rabbitmq.queues import exists
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology, Routing
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingResult:
    """What became of one destination.

    `bindings`: those that it has, or would have. `failure`: why it is not bound, and what to do. None: it is bound.
    `collisions`: bindings of other programs that mix up its messages with others'. None: unknown.
    """

    destination: str
    bindings: Sequence[Binding] = ()
    failure: str | None = None
    collisions: Sequence[Finding] | None = None


def bind(
    broker: BrokerClient,
    topology: CascadeTopology,
    destinations: Iterable[str],
    routing: Routing = Routing.DIRECT,
    *,
    dry_run: bool = False,
) -> list[BindingResult]:
    """Bind each destination, so that it gets its messages and no others. A failure is reported, and the rest are bound.

    Destinations that are bound already stay so. Returns one result for each different destination, in their order.
    Raises TransportUnavailableError if the broker cannot be reached, and TransportError if the management API, where
    there is one, does not answer.
    """
    broker.check_same_cluster()
    exchanges = {} if broker.management is None else broker.management.exchanges()
    binder = _Binder(broker, topology, routing, exchanges, dry_run)
    results = [binder.bind(name) for name in dict.fromkeys(destinations)]
    if broker.management is None:
        return results
    existing, known = broker.management.bindings(), Snapshot(exchanges).routing()
    return [
        replace(result, collisions=collisions_of(topology, {*existing, *result.bindings}, result.destination, known))
        for result in results
    ]


@dataclass(frozen=True, slots=True)
class _Binder:
    """What all destinations of one call share. `exchanges`: as the management API shows them; empty without it."""

    broker: BrokerClient
    topology: CascadeTopology
    routing: Routing
    exchanges: Mapping[str, ExchangeState]
    dry_run: bool

    def bind(self, destination: str) -> BindingResult:
        """Bind one. Raises TransportUnavailableError."""
        try:
            bindings = self.topology.destination_bindings(destination, self.routing)
            failure = self._obstacle(bindings, destination)
            if failure is not None:
                return BindingResult(destination=destination, failure=failure)
            if not self.dry_run:
                declare(self.broker.connections, Layout(bindings=bindings))
        except DeclarationError as error:
            advice = "grant this user write on the destination and read on the exchange"
            return BindingResult(destination=destination, failure=f"{error.reason}; {advice}")
        except TransportUnavailableError:
            raise
        except (InvalidMessageError, TransportError) as error:
            return BindingResult(destination=destination, failure=str(error))
        return BindingResult(destination=destination, bindings=bindings)

    def _obstacle(self, bindings: Sequence[Binding], destination: str) -> str | None:
        """What is missing, or cannot work. None: nothing."""
        connections = self.broker.connections
        if not bindings:  # the cascade leads to this one destination anyway
            return None if exists(connections, Queue(destination)) else _missing_cascade(Queue(destination))
        delivery = Exchange(self.topology.delivery)
        if not exists(connections, delivery):
            return _missing_cascade(delivery)
        for binding in bindings:
            is_queue = binding.kind is DestinationKind.QUEUE
            part = Queue(binding.destination) if is_queue else Exchange(binding.destination)
            if not exists(connections, part):
                advice = "start the endpoint once, declare it, or choose the other --routing"
                return f"{part} does not exist; {advice}"
            state = self.exchanges.get(binding.destination)
            if not is_queue and state is not None and state.type == "direct":
                return f"{part} is a direct exchange, which never takes a delay's key; choose --routing direct"
        return None


def _missing_cascade(part: Exchange | Queue) -> str:
    return f"{part}, the cascade's end, does not exist; run delaystore delays create"
