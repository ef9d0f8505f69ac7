"""Binding destinations to a cascade's end, each on its own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from delaystore.errors import InvalidMessageError, TransportError, TransportUnavailableError
from delaystore.transports.rabbitmq.administration.broker import Administered
from delaystore.transports.rabbitmq.administration.collisions import collisions_of
from delaystore.transports.rabbitmq.administration.declaring import DeclarationError, declare, exists, named
from delaystore.transports.rabbitmq.administration.findings import Finding
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
    results = [_bind_one(broker, topology, name, routing, dry_run) for name in dict.fromkeys(destinations)]
    if broker.management is None:
        return results
    held = broker.management.bindings(topology.delivery)
    return [_with_collisions(topology, held, result) for result in results]


def _bind_one(
    broker: Administered, topology: CascadeTopology, destination: str, routing: Routing, dry_run: bool
) -> BindingResult:
    try:
        bindings = topology.destination_bindings(destination, routing)
        absent = _absent(broker, topology, bindings, destination)
        if absent is not None:
            return BindingResult(destination=destination, failure=absent)
        if not dry_run:
            declare(broker.connections, Layout(bindings=bindings))
    except DeclarationError as error:
        advice = "grant this user write on the destination and read on the exchange"
        return BindingResult(destination=destination, failure=f"{error.reason}; {advice}")
    except TransportUnavailableError:
        raise
    except (InvalidMessageError, TransportError) as error:
        return BindingResult(destination=destination, failure=str(error))
    return BindingResult(destination=destination, bindings=bindings)


def _absent(
    broker: Administered, topology: CascadeTopology, bindings: Sequence[Binding], destination: str
) -> str | None:
    """What is missing to bind; None: nothing."""
    if not bindings:  # the cascade has this one destination, and leads to it anyway
        return None if exists(broker.connections, Queue(destination)) else _missing_cascade(Queue(destination))
    delivery = Exchange(topology.delivery)
    if not exists(broker.connections, delivery):
        return _missing_cascade(delivery)
    for binding in bindings:
        part = Queue(binding.destination) if binding.kind is DestinationKind.QUEUE else Exchange(binding.destination)
        if not exists(broker.connections, part):
            return f"{named(part)} does not exist; start the endpoint once, declare it, or choose the other --routing"
    return None


def _missing_cascade(part: Exchange | Queue) -> str:
    return f"{named(part)}, the cascade's end, does not exist; run delaystore delays create"


def _with_collisions(topology: CascadeTopology, held: Sequence[Binding], result: BindingResult) -> BindingResult:
    found = collisions_of(topology, {*held, *result.bindings}, result.destination)
    return BindingResult(
        destination=result.destination, bindings=result.bindings, failure=result.failure, collisions=found
    )
