"""Deleting an ingress, unless messages are in it, or somebody takes from it."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pika import exceptions

from delaystore.cascades import STATISTICS_AGE, BrokerClient
from delaystore.errors import TransportError, TransportSetupError
from delaystore.ingress.names import IngressNames
from delaystore.ingress.topology._deletion_check import DeletionCheck, Uses, check_deletion, uses_of
from delaystore.transports.rabbitmq.declaring import declare_parts
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.topology.layout import Binding, Exchange, Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What was deleted. `lost`: messages in the queues."""

    check: DeletionCheck
    deleted: Sequence[Exchange | Queue]
    lost: int


class IngressInUseError(TransportError):
    """An ingress that must not be deleted: messages are in it, or somebody takes from it. `uses` says where."""

    def __init__(self, uses: Uses, note: str = "") -> None:
        self.uses = uses
        self._note = note
        super().__init__(f"the ingress is not deleted: {uses.obstacle}{note}; empty and stop it, or pass --force")

    def __reduce__(self) -> tuple[type["IngressInUseError"], tuple[Uses, str]]:
        return type(self), (self.uses, self._note)


def delete(
    broker: BrokerClient,
    names: IngressNames,
    *,
    with_out: bool = False,
    force: bool = False,
    statistics_age: float = STATISTICS_AGE,
    on_deleted: Callable[[Exchange | Queue], object] = lambda _part: None,
) -> Deletion:
    """Delete the ingress. May be run again.

    The exchange to publish to stays where others are bound to it, or where it is the plugin's; OUT stays where anything
    is bound to it, unless `with_out`. `force`: messages are lost, and consumers lose their queue.
    It checks twice, `statistics_age` seconds apart, since the broker's counts are that old; and once more when nothing
    is routed to the ingress queue any more: where something has come meanwhile, the way to it is restored.
    Raises IngressInUseError where messages are in it or somebody takes from it, unless `force`; TransportSetupError
    where the broker refuses; else as `check_deletion`.
    """
    found = check_deletion(broker, names, with_out=with_out)
    if not force:
        _refuse(found.uses, found.uses.certain)
        time.sleep(statistics_age if found.queues else 0)
        found = check_deletion(broker, names, with_out=with_out)
        _refuse(found.uses, found.uses.obstacle)
    run = _Run(broker, on_deleted)
    run.delete([one for one in found.exchanges if one.name == names.exchange])
    run.unbind(found.entrances)
    if not force:
        _refuse_late(broker, found)
    run.delete(found.queues)
    run.delete([one for one in found.exchanges if one not in run.deleted])
    return Deletion(check=found, deleted=tuple(run.deleted), lost=run.lost)


def _refuse(uses: Uses, obstacle: str | None) -> None:
    if obstacle is not None:
        raise IngressInUseError(uses)


def _refuse_late(broker: BrokerClient, found: DeletionCheck) -> None:
    """Where something has come since the last check, open the way again, and refuse."""
    uses = uses_of(broker, found.queues)
    if uses.obstacle is not None:
        declare_parts(broker.connections, found.restoring)
        raise IngressInUseError(uses, " (just now; what had been deleted is restored)")


class _Run:
    """One deletion, and what it has deleted so far."""

    def __init__(self, broker: BrokerClient, on_deleted: Callable[[Exchange | Queue], object]) -> None:
        self.deleted: list[Exchange | Queue] = []
        self.lost = 0
        self._connections = broker.connections
        self._on_deleted = on_deleted

    def unbind(self, bindings: Iterable[Binding]) -> None:
        """Undo bindings to queues; those that are gone already are no error."""
        for one in bindings:
            with self._channel_for(one) as channel:
                channel.queue_unbind(one.destination, one.source, one.routing_key, dict(one.arguments))

    def delete(self, parts: Iterable[Exchange | Queue]) -> None:
        """Each of them, in this order. Raises TransportSetupError, TransportUnavailableError."""
        for part in parts:
            with self._channel_for(part) as channel:
                if isinstance(part, Queue):
                    self.lost += channel.queue_delete(part.name).method.message_count
                else:
                    channel.exchange_delete(part.name)
            self.deleted.append(part)
            self._on_deleted(part)

    @contextmanager
    def _channel_for(self, part: Exchange | Queue | Binding) -> Iterator[Any]:
        try:
            with self._connections.channel() as channel, quiet_pika():
                yield channel
        except exceptions.ChannelClosedByBroker as error:
            raise TransportSetupError(
                f"{part} cannot be deleted: {reason_of(error)}; deleted until then: {len(self.deleted)}; run it again "
                "to delete the rest"
            ) from None
