"""Deleting an ingress, unless messages are in it, or programs consume from it."""

from collections.abc import Callable, Sequence
from typing import Final

from delaystore.amounts import counted
from delaystore.cascades import (
    STATISTICS_AGE,
    BrokerClient,
    Deletion,
    DeletionCheck,
    Snapshot,
    delete_topology,
    uses_of,
)
from delaystore.errors import ConfigurationError
from delaystore.ingress.names import IngressNames
from delaystore.ingress.topology._declared import words_of
from delaystore.ingress.topology._plugin import PLUGIN_TYPE
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Part, Queue

_NO_MANAGEMENT: Final = (
    "only the management API counts every message, and tells who else uses the exchanges; pass --management URL"
)


def delete(
    broker: BrokerClient,
    names: IngressNames,
    *,
    with_out: bool = False,
    force: bool = False,
    statistics_age: float = STATISTICS_AGE,
    on_deleted: Callable[[Exchange | Queue], object] = lambda _part: None,
) -> Deletion[DeletionCheck]:
    """Delete the ingress. May be run again.

    The exchange to publish to stays where others are bound to it, or where it is the plugin's; OUT stays where anything
    is bound to it, unless `with_out`. `force`: messages are lost, and consumers lose their queue.
    Raises TopologyInUseError where messages are in it or programs consume from it, unless `force`; else as
    `check_deletion` and `delete_topology`, which checks twice, `statistics_age` seconds apart, and once more at the
    end.
    """
    return delete_topology(
        broker,
        lambda: check_deletion(broker, names, with_out=with_out),
        words_of(names),
        force=force,
        statistics_age=statistics_age,
        on_deleted=on_deleted,
    )


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
    inward = sorted((one for one in snapshot.bindings if _leads_to_queue(one, names.queue)), key=str)
    gone = {one.name for one in exchanges}
    others = [one for one in snapshot.bindings if {one.source, _exchange_of(one)} & gone and not _is_own(one, names)]
    return DeletionCheck(
        exchanges=exchanges,
        queues=queues,
        kept=kept,
        uses=uses_of(broker, queues, broker.management.message_counts()),
        cut_off=sorted(others, key=str),
        entrances=[*(one for one in exchanges if one.name == names.exchange), *inward],
        restoring=[*_entrance_of(names, exchanges, snapshot), *inward],
    )


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
