"""Binding destinations to a cascade's delivery exchange, and destinations that get each other's messages."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from delaystore.cascades.findings import Finding, FindingKind
from delaystore.cascades.management import BrokerClient
from delaystore.cascades.snapshot import BrokerSnapshot, ExchangeState
from delaystore.errors import InvalidMessageError, TransportError, TransportUnavailableError
from delaystore.text import named
from delaystore.transports.rabbitmq.declaring import DeclarationError, declare
from delaystore.transports.rabbitmq.queues import exists
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology, Routing
from delaystore.transports.rabbitmq.topology.layout import (
    ANY_WORDS,
    WILDCARDS,
    Binding,
    DestinationKind,
    Exchange,
    Layout,
    Queue,
    matches,
)

_SHOWN: Final = 5
_ANYTHING_BEFORE: Final = f"{ANY_WORDS}."


class _ReadBinding(NamedTuple):
    """A binding as read. `address`: the one it is for; None: no single one. `exact`: it takes no other address."""

    binding: Binding
    address: str | None
    exact: bool


def collisions(
    topology: CascadeTopology, bindings: Collection[Binding], exchanges: Iterable[Exchange] = ()
) -> list[Finding]:
    """All collisions between the destinations that are bound to the delivery exchange.

    `exchanges`: of the virtual host; they and the other bindings tell which queues are behind a destination.
    """
    delivering = {one for one in bindings if one.source == topology.delivery}
    onward = Layout(exchanges=tuple(exchanges), bindings=tuple(one for one in bindings if one not in delivering))
    bound = [_read(topology, one) for one in sorted(delivering, key=str)]
    return [*_strangers(topology, bound), *_twice(topology, bound, onward)]


def collisions_of(
    topology: CascadeTopology, bindings: Collection[Binding], destination: str, exchanges: Iterable[Exchange] = ()
) -> list[Finding]:
    """The collisions of `destination`: where it gets messages for others, or others get its messages."""
    delivering = {one for one in bindings if one.source == topology.delivery}
    own = {one for one in delivering if one.destination == destination}
    found = collisions(topology, own | (set(bindings) - delivering), exchanges)
    for other in sorted(delivering - own, key=str):
        found += collisions(topology, {*own, other})
    return list(dict.fromkeys(found))


def _read(topology: CascadeTopology, binding: Binding) -> _ReadBinding:
    exactly = "*." * topology.levels
    for start in (exactly, _ANYTHING_BEFORE):
        address = binding.routing_key.removeprefix(start)
        if address != binding.routing_key and WILDCARDS.isdisjoint(address.split(".")):
            return _ReadBinding(binding, address, start == exactly)
    return _ReadBinding(binding, None, False)


def _strangers(topology: CascadeTopology, bound: Iterable[_ReadBinding]) -> Iterator[Finding]:
    """Bindings that take messages for another destination's address."""
    owners: dict[str, set[str]] = {}
    for one in bound:
        if one.address is not None:
            owners.setdefault(one.address, set()).add(one.binding.destination)
    longer = _by_suffix(owners)
    zeros = "0." * topology.levels
    for one in bound:
        if one.exact:
            continue
        if one.address is not None:
            taken = longer.get(one.address, [])
        else:
            taken = [address for address in owners if matches(one.binding.routing_key, zeros + address)]
        foreign = [address for address in taken if owners[address] - {one.binding.destination}]
        if foreign:
            yield _collision(one.binding, sorted(foreign))


def _by_suffix(addresses: Iterable[str]) -> dict[str, list[str]]:
    """For each proper suffix, at a dot, of an address: the addresses that end in it."""
    found: dict[str, list[str]] = {}
    for address in addresses:
        words = address.split(".")
        for begin in range(1, len(words)):
            found.setdefault(".".join(words[begin:]), []).append(address)
    return found


def _collision(binding: Binding, foreign: list[str]) -> Finding:
    text = (
        f"{binding.kind} {binding.destination!r} also gets messages for {named(list(map(repr, foreign)), _SHOWN)}; "
        "bind it exactly in place of this (delaystore cascade bind, and unbind this), or rename one of them"
    )
    return Finding(FindingKind.COLLISION, str(binding), text)


def _twice(topology: CascadeTopology, bound: Iterable[_ReadBinding], onward: Layout) -> Iterator[Finding]:
    """Addresses that are bound both to the queue and to the exchange of one name, which leads to another queue.

    However many bindings lead to a queue, RabbitMQ gives it a message once.
    """
    kinds: dict[tuple[str, str], set[DestinationKind]] = {}
    for one in bound:
        if one.address is not None:
            kinds.setdefault((one.address, one.binding.destination), set()).add(one.binding.kind)
    for (address, name), both in sorted(kinds.items()):
        if len(both) == 1:
            continue
        others = sorted({*onward.queues_for(name, "0." * topology.levels + address)} - {name})
        if others:
            text = f"arrives twice: the queue {name!r} is bound, and the exchange, which leads to {others[0]!r} as well"
            yield Finding(FindingKind.COLLISION, f"address {address!r}", f"{text}; unbind one")


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingResult:
    """The result of binding one destination.

    Attributes:
        destination: Its name.
        bindings: The bindings that it has, or would have.
        failure: Why it is not bound, and what to do; None: it is bound.
        collisions: Bindings of other programs that mix up its messages with others'; None: unknown.

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
    """Bind each destination, so that it gets its messages and no others. May be run again.

    A failure is reported, and the rest are bound.

    Args:
        broker: The virtual host.
        topology: The cascade.
        destinations: Names of queues, or of exchanges.
        routing: How they are bound.
        dry_run: Bind nothing, and report the bindings that would be made.

    Returns:
        One result for each different destination, in their order.

    Raises:
        TransportUnavailableError: The broker cannot be reached.
        TransportError: The management API, where there is one, does not answer.

    """
    broker.check_same_cluster()
    exchanges = {} if broker.management is None else broker.management.exchanges()
    binder = _Binder(broker, topology, routing, exchanges, dry_run)
    results = [binder.bind(name) for name in dict.fromkeys(destinations)]
    if broker.management is None:
        return results
    existing, known = broker.management.bindings(), BrokerSnapshot(exchanges).routing()
    return [
        replace(result, collisions=collisions_of(topology, {*existing, *result.bindings}, result.destination, known))
        for result in results
    ]


@dataclass(frozen=True, slots=True)
class _Binder:
    """Arguments that all destinations of a call share. `exchanges`: as the management API shows them; else empty."""

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
                declare(self.broker.connections, bindings)
        except DeclarationError as error:
            advice = "grant this user write on the destination and read on the exchange"
            return BindingResult(destination=destination, failure=f"{error.reason}; {advice}")
        except TransportUnavailableError:
            raise
        except (InvalidMessageError, TransportError) as error:
            return BindingResult(destination=destination, failure=str(error))
        return BindingResult(destination=destination, bindings=bindings)

    def _obstacle(self, bindings: Sequence[Binding], destination: str) -> str | None:
        """The part that is missing, or cannot work. None: all can."""
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
    return f"{part}, the cascade's end, does not exist; run delaystore cascade create"
