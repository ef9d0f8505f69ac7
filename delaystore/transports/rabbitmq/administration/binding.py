"""Binding destinations to a cascade's end, each on its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from delaystore.errors import InvalidMessageError, TransportError, TransportUnavailableError
from delaystore.transports.rabbitmq.administration.broker import Administered
from delaystore.transports.rabbitmq.administration.collisions import collisions_of
from delaystore.transports.rabbitmq.administration.declaring import DeclarationError, declare, exists, named
from delaystore.transports.rabbitmq.administration.findings import Finding
from delaystore.transports.rabbitmq.held import ExchangeState
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology, Routing
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingResult:
    """What became of one destination.

    `bindings`: those that it has now, or would have. `failure`: why it is not bound, and what to do; None: it is.
    `collisions`: where the bindings of other programs mix up its messages with others'; None: not known.
    """

    destination: str
    bindings: Sequence[Binding] = ()
    failure: str | None = None
    collisions: Sequence[Finding] | None = None


def bind(
    broker: Administered,
    topology: CascadeTopology,
    destinations: Iterable[str],
    routing: Routing = Routing.DIRECT,
    *,
    dry_run: bool = False,
) -> list[BindingResult]:
    """Bind each destination so that it gets what is meant for it; one that fails keeps none of the others from it.

    Destinations that are bound already stay so. Raises TransportUnavailableError if the broker cannot be reached, and
    TransportError if the management API, where there is one, does not answer.
    """
    broker.check_same_cluster()
    exchanges = {} if broker.management is None else broker.management.exchanges()
    binder = _Binder(broker, topology, routing, exchanges, dry_run)
    results = [binder.bind(name) for name in dict.fromkeys(destinations)]
    if broker.management is None:
        return results
    held = broker.management.bindings(topology.delivery)
    return [_with_collisions(topology, held, result) for result in results]


@dataclass(frozen=True, slots=True)
class _Binder:
    """What all destinations of one call share. `exchanges`: those that the management API shows, if there is one."""

    broker: Administered
    topology: CascadeTopology
    routing: Routing
    exchanges: Mapping[str, ExchangeState]
    dry_run: bool

    def bind(self, destination: str) -> BindingResult:
        """Bind one; raises TransportUnavailableError."""
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
        """What is missing, or cannot work; None: nothing."""
        connections = self.broker.connections
        if not bindings:  # the cascade has this one destination, and leads to it anyway
            return None if exists(connections, Queue(destination)) else _missing_cascade(Queue(destination))
        delivery = Exchange(self.topology.delivery)
        if not exists(connections, delivery):
            return _missing_cascade(delivery)
        for binding in bindings:
            is_queue = binding.kind is DestinationKind.QUEUE
            part = Queue(binding.destination) if is_queue else Exchange(binding.destination)
            if not exists(connections, part):
                return (
                    f"{named(part)} does not exist; start the endpoint once, declare it, or choose the other --routing"
                )
            state = self.exchanges.get(binding.destination)
            if not is_queue and state is not None and state.type == "direct":
                return f"{named(part)} is a direct exchange, which never takes a delay's key; choose --routing direct"
        return None


def _missing_cascade(part: Exchange | Queue) -> str:
    return f"{named(part)}, the cascade's end, does not exist; run delaystore delays create"


def _with_collisions(topology: CascadeTopology, held: Sequence[Binding], result: BindingResult) -> BindingResult:
    found = collisions_of(topology, {*held, *result.bindings}, result.destination)
    return BindingResult(
        destination=result.destination, bindings=result.bindings, failure=result.failure, collisions=found
    )
