"""Deleting a cascade, unless messages wait in it."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pika import exceptions

from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._snapshot import Policy
from delaystore.cascades.delivery_limits import limit_policy
from delaystore.cascades.policies import complete_layout, policy_for
from delaystore.errors import TransportError, TransportSetupError, TransportUnavailableError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.existence import missing, ready_counts
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import Binding, Exchange, Queue

STATISTICS_AGE: Final = 6.0
"""Seconds between two checks. Brokers count every 5 by default: the second check's counts are newer than the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionCheck:
    """What there is to delete, and whether it may be deleted.

    `parts`: the exchanges and queues that exist. `waiting`: messages by queue, stuck ones included; None: not counted.
    `destinations`: bindings that vanish with the delivery exchange, where the management API lists them.
    `policy`, `limit_policy`: the names of our policies. None: it does not exist. `unknowable`: there is no management
    API, so that nothing will ever be counted.
    """

    parts: Sequence[Exchange | Queue]
    waiting: Mapping[str, int | None]
    destinations: Sequence[Binding]
    policy: str | None = None
    limit_policy: str | None = None
    unknowable: bool = False

    @property
    def messages(self) -> int:
        """How many are known to wait."""
        return sum(count or 0 for count in self.waiting.values())

    @property
    def refusable(self) -> bool:
        """Whether there is an obstacle that a second check cannot remove. An uncounted queue is no such obstacle."""
        return self.messages > 0 or (self.unknowable and bool(self.waiting))

    @property
    def obstacle(self) -> str | None:
        """Why it must not be deleted without force. None: nothing waits."""
        if self.messages:
            queues = sum(1 for count in self.waiting.values() if count)
            return f"{self.messages:,} messages wait in {queues} of its queues, and would be lost"
        if self.unknowable and self.waiting:
            return "without the management API (--management URL) nobody can know whether messages wait in it"
        uncounted = [name for name, count in self.waiting.items() if count is None]
        if uncounted:
            return f"nobody can know whether messages wait in {uncounted[0]!r}" + (
                f" and {len(uncounted) - 1} more queues" if len(uncounted) > 1 else ""
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What was deleted. `policy`, `limit_policy`: their names. None: it was not. `lost`: messages in the queues."""

    check: DeletionCheck
    deleted: Sequence[Exchange | Queue]
    policy: str | None
    limit_policy: str | None
    lost: int


class MessagesWaitError(TransportError):
    """A cascade that must not be deleted: messages wait in it, or may. `check` says where."""

    def __init__(self, check: DeletionCheck, note: str = "") -> None:
        self.check = check
        self._note = note
        super().__init__(f"the cascade is not deleted: {check.obstacle}{note}; let them arrive, or pass --force")

    def __reduce__(self) -> tuple[type["MessagesWaitError"], tuple[DeletionCheck, str]]:
        return type(self), (self.check, self._note)


def check_deletion(broker: BrokerClient, topology: CascadeTopology) -> DeletionCheck:
    """Check what `delete` would delete, and whether it may. Raises TransportUnavailableError, TransportError."""
    layout = complete_layout(topology)
    absent = missing(broker.connections, layout.nodes)
    parts = [part for part in layout.nodes if part not in absent]
    management = broker.management
    broker.check_same_cluster()
    counted = {} if management is None else management.message_counts()
    # those ready now; if none is, all, as of some seconds ago
    waiting = {name: ready or counted.get(name) for name, ready in _ready(broker.connections, parts).items()}
    if management is None:
        return DeletionCheck(parts=parts, waiting=waiting, destinations=(), unknowable=True)
    existing = {policy.name for policy in management.policies()}
    own = frozenset(layout.bindings)
    return DeletionCheck(
        parts=parts,
        waiting=waiting,
        destinations=[binding for binding in management.bindings(topology.delivery) if binding not in own],
        policy=_existing(policy_for(topology), existing),
        limit_policy=_existing(limit_policy(topology), existing),
    )


def delete(
    broker: BrokerClient,
    topology: CascadeTopology,
    *,
    force: bool = False,
    statistics_age: float = STATISTICS_AGE,
    on_deleted: Callable[[Exchange | Queue], object] = lambda _part: None,
) -> Deletion:
    """Delete the cascade's exchanges and queues, and our policies. Destinations stay, unbound. May be run again.

    Raises MessagesWaitError where messages wait, or where that cannot be known (no management API), unless `force`.
    It checks twice, `statistics_age` seconds apart, since the broker's counts are up to 5 seconds old. It checks once
    more when nothing can be published into the levels any more, and restores them if messages have arrived.
    Messages that are put into the level queues without the levels' exchanges (as by a plugin) are not protected.
    """
    found = check_deletion(broker, topology)
    if not force:
        if found.refusable:
            raise MessagesWaitError(found)
        time.sleep(statistics_age if found.waiting else 0)
        found = check_deletion(broker, topology)
        if found.obstacle is not None:
            raise MessagesWaitError(found)
    run = _Run(broker, topology, on_deleted)
    run.close_entrances(found, force)
    run.delete_rest(found)
    policy, limit = (_delete_policy(broker, name) for name in (found.policy, found.limit_policy))
    return Deletion(check=found, deleted=tuple(run.deleted), policy=policy, limit_policy=limit, lost=run.lost)


def _existing(policy: Policy | None, names: Collection[str]) -> str | None:
    return policy.name if policy is not None and policy.name in names else None


def _delete_policy(broker: BrokerClient, name: str | None) -> str | None:
    """`name`; None: there was no such policy."""
    if name is None or broker.management is None:
        return None
    return name if broker.management.delete_policy(name) else None


class _Run:
    """One deletion, and what it has deleted so far."""

    def __init__(
        self, broker: BrokerClient, topology: CascadeTopology, on_deleted: Callable[[Exchange | Queue], object]
    ) -> None:
        self.deleted: list[Exchange | Queue] = []
        self.lost = 0
        self._connections = broker.connections
        self._topology = topology
        self._on_deleted = on_deleted

    def close_entrances(self, found: DeletionCheck, force: bool) -> None:
        """Delete the exchanges that lead into levels. Restore them if messages have arrived in the meantime."""
        for part in found.parts:
            if isinstance(part, Exchange) and part.type != "fanout" and part.name != self._topology.delivery:
                self._delete(part)
        if force:
            return
        waiting = _ready(self._connections, found.parts)
        if any(waiting.values()):
            declare(self._connections, self._topology.layout())
            late = replace(found, waiting=waiting)
            raise MessagesWaitError(late, " (they arrived just now; what had been deleted is restored)")

    def delete_rest(self, found: DeletionCheck) -> None:
        """Delete the queues, then the exchanges that they lead to."""
        for part in found.parts:
            if isinstance(part, Queue):
                self._delete(part)
        for part in found.parts:
            if part not in self.deleted:
                self._delete(part)

    def _delete(self, part: Exchange | Queue) -> None:
        try:
            with self._connections.channel() as channel, quiet_pika():
                if isinstance(part, Queue):
                    self.lost += channel.queue_delete(part.name).method.message_count
                else:
                    channel.exchange_delete(part.name)
        except TransportUnavailableError as error:
            raise TransportUnavailableError(f"{error}; {self._until_then()}") from None
        except exceptions.ChannelClosedByBroker as error:
            raise TransportSetupError(f"{part} cannot be deleted: {reason_of(error)}; {self._until_then()}") from None
        self.deleted.append(part)
        self._on_deleted(part)

    def _until_then(self) -> str:
        if not self.deleted:
            return "nothing had been deleted until then"
        return f"deleted until then: {len(self.deleted)} exchanges and queues; run it again to delete the rest"


def _ready(connections: BlockingConnections, parts: Sequence[Exchange | Queue]) -> dict[str, int | None]:
    """How many messages are ready in each queue; None: it does not exist."""
    names = [part.name for part in parts if isinstance(part, Queue)]
    return dict(zip(names, ready_counts(connections, names), strict=True))
