"""What there is to delete of an ingress, and whether it may be."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from delaystore.amounts import counted
from delaystore.cascades import BrokerClient, Snapshot
from delaystore.errors import ConfigurationError, TransportSetupError
from delaystore.ingress.names import IngressNames
from delaystore.ingress.topology._plugin import PLUGIN_TYPE
from delaystore.transports.rabbitmq.existence import QueueLook, Standing, look_at
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Part, Queue

_NO_MANAGEMENT: Final = (
    "only the management API counts every message, and tells who else uses the exchanges; pass --management URL"
)
_LEAVING: Final = 2.0
"""Seconds for consumers to leave: a quorum queue counts one for a moment after its program has ended."""
_LOOK_EVERY: Final = 0.1
_TELLING: Final = frozenset({Standing.THERE, Standing.MISSING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Who needs queues: messages in them, and consumers, by queue, where there are any.

    `uncounted`: queues whose messages the broker has not counted yet.
    """

    messages: Mapping[str, int] = field(default_factory=dict)
    consumers: Mapping[str, int] = field(default_factory=dict)
    uncounted: Sequence[str] = ()

    @property
    def certain(self) -> str | None:
        """What another look would not change. None: nothing is in them, as far as is counted, and nobody takes."""
        found = []
        if self.messages:
            count = sum(self.messages.values())
            found.append(f"{count:,} messages are in {_listed(self.messages)}, and would be lost")
        if self.consumers:
            found.append(f"{sum(self.consumers.values())} consumers take from {_listed(self.consumers)}")
        return "; ".join(found) or None

    @property
    def obstacle(self) -> str | None:
        """Why the queues must not be deleted without force. None: nothing is in them, and nobody takes from them."""
        if self.certain is None and self.uncounted:
            return f"nobody knows yet what is in {_listed(self.uncounted)}"
        return self.certain


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionCheck:
    """What there is to delete, and whether it may be.

    `exchanges`, `queues`: those that exist and would go. `kept`: why others stay, a sentence each. `uses`: of the
    queues. `cut_off`: bindings of others that vanish with an exchange. `entrances`: bindings to the ingress queue.
    `restoring`: what opens the way to the ingress queue again.
    """

    exchanges: Sequence[Exchange]
    queues: Sequence[Queue]
    kept: Sequence[str] = ()
    uses: Uses = Uses()
    cut_off: Sequence[Binding] = ()
    entrances: Sequence[Binding] = ()
    restoring: Sequence[Part] = ()

    @property
    def parts(self) -> list[Exchange | Queue]:
        """All that would go."""
        return [*self.exchanges, *self.queues]


def check_deletion(broker: BrokerClient, names: IngressNames, *, with_out: bool = False) -> DeletionCheck:
    """Check what `delete` would delete, and whether it may.

    Raises ConfigurationError without a management API, TransportUnavailableError, TransportError.
    """
    if broker.management is None:
        raise ConfigurationError(_NO_MANAGEMENT)
    broker.check_same_cluster()
    snapshot = broker.management.snapshot()
    exchanges, kept = _exchanges(names, snapshot, with_out)
    queues = [Queue(name) for name in (names.queue, names.expired, names.rejected) if name in snapshot.queues]
    entrances = [one for one in snapshot.bindings if _leads_to_queue(one, names.queue)]
    gone = {one.name for one in exchanges}
    others = [one for one in snapshot.bindings if {one.source, _exchange_of(one)} & gone and not _is_own(one, names)]
    return DeletionCheck(
        exchanges=exchanges,
        queues=queues,
        kept=kept,
        uses=uses_of(broker, queues, broker.management.message_counts()),
        cut_off=sorted(others, key=str),
        entrances=sorted(entrances, key=str),
        restoring=[*_entrance_of(names, exchanges, snapshot), *entrances],
    )


def uses_of(broker: BrokerClient, queues: Sequence[Queue], counted: Mapping[str, int | None] | None = None) -> Uses:
    """Who needs the queues now. `counted`: messages as the management API counts them, seconds ago; None: not asked.

    Raises TransportSetupError where a queue does not answer, TransportUnavailableError.
    """
    looks = _looks(broker, queues)
    ends = time.monotonic() + _LEAVING
    while any(look.consumers for look in looks.values()) and time.monotonic() < ends:
        time.sleep(_LOOK_EVERY)
        looks = _looks(broker, queues)
    silent = next((name for name, look in looks.items() if look.standing not in _TELLING), None)
    if silent is not None:
        raise TransportSetupError(f"queue {silent!r} does not answer: {looks[silent].reason}; nothing was deleted")
    counts: Mapping[str, int | None] = dict.fromkeys(looks, 0) if counted is None else counted
    messages = {name: max(look.ready, counts.get(name) or 0) for name, look in looks.items()}
    return Uses(
        messages=_some(messages),
        consumers=_some({name: look.consumers for name, look in looks.items()}),
        uncounted=[name for name in looks if counts.get(name) is None],
    )


def _looks(broker: BrokerClient, queues: Sequence[Queue]) -> dict[str, QueueLook]:
    return {queue.name: look_at(broker.connections, queue.name) for queue in queues}


def _exchanges(names: IngressNames, snapshot: Snapshot, with_out: bool) -> tuple[list[Exchange], list[str]]:
    """The exchanges that go, and why others stay."""
    going: list[Exchange] = []
    kept: list[str] = []
    for name, why in (
        (names.exchange, _why_entrance_stays(names, snapshot)),
        (names.expired, None),
        (names.out, None if with_out else _why_out_stays(names, snapshot)),
    ):
        state = snapshot.exchanges.get(name)
        if state is not None and why is None:
            going.append(Exchange(name, state.type, state.arguments))
        elif state is not None:
            kept.append(f"exchange {name!r} stays: {why}")
    return going, kept


def _why_entrance_stays(names: IngressNames, snapshot: Snapshot) -> str | None:
    state = snapshot.exchanges.get(names.exchange)
    if state is not None and state.type == PLUGIN_TYPE:
        return "it is the delayed-message plugin's"
    others = [one for one in snapshot.bindings if one.source == names.exchange and not _is_own(one, names)]
    return f"{others[0].kind} {others[0].destination!r} is bound to it, too" if others else None


def _why_out_stays(names: IngressNames, snapshot: Snapshot) -> str | None:
    count = sum(1 for one in snapshot.bindings if names.out in (one.source, _exchange_of(one)))
    return f"it has {counted(count, 'binding')}; --with-out deletes it, too" if count else None


def _entrance_of(names: IngressNames, exchanges: Sequence[Exchange], snapshot: Snapshot) -> list[Part]:
    """The exchange to publish to, if it goes, and what leads to it."""
    entrance: list[Part] = [one for one in exchanges if one.name == names.exchange]
    return [*entrance, *(one for one in snapshot.bindings if entrance and _exchange_of(one) == names.exchange)]


def _is_own(binding: Binding, names: IngressNames) -> bool:
    """Whether it leads from one of the ingress' exchanges into its queue."""
    return _leads_to_queue(binding, names.queue if binding.source == names.exchange else names.expired)


def _leads_to_queue(binding: Binding, queue: str) -> bool:
    return binding.kind is DestinationKind.QUEUE and binding.destination == queue


def _exchange_of(binding: Binding) -> str | None:
    """The exchange that it leads to. None: it leads to a queue."""
    return binding.destination if binding.kind is DestinationKind.EXCHANGE else None


def _some(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def _listed(names: Mapping[str, int] | Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
