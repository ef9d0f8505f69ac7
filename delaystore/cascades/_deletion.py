"""Deleting a cascade, unless messages wait in it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._snapshot import Policy
from delaystore.cascades._words import CASCADE
from delaystore.cascades.declared import STATISTICS_AGE, Deletion, DeletionCheck, delete_topology, uses_of
from delaystore.cascades.delivery_limits import limit_policy
from delaystore.cascades.policies import complete_layout, policy_for
from delaystore.transports.rabbitmq.queues import missing
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import Exchange, Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeDeletionCheck(DeletionCheck):
    """What there is to delete of a cascade. `policy`, `limit_policy`: the names of our policies that exist."""

    policy: str | None = None
    limit_policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeDeletion(Deletion[CascadeDeletionCheck]):
    """What was deleted of a cascade. `policy`, `limit_policy`: the names of our policies. None: they were not."""

    policy: str | None
    limit_policy: str | None


def check_deletion(broker: BrokerClient, topology: CascadeTopology) -> CascadeDeletionCheck:
    """Check what `delete` would delete, and whether it may. Raises TransportUnavailableError, TransportError."""
    layout = complete_layout(topology)
    absent = missing(broker.connections, layout.nodes)
    exchanges = [exchange for exchange in layout.exchanges if exchange not in absent]
    queues = [queue for queue in layout.queues if queue not in absent]
    management = broker.management
    broker.check_same_cluster()
    counted = {} if management is None else management.message_counts()
    existing = set() if management is None else {policy.name for policy in management.policies()}
    bound = () if management is None else management.bindings(topology.delivery)
    own = frozenset(layout.bindings)
    return CascadeDeletionCheck(
        exchanges=exchanges,
        queues=queues,
        uses=uses_of(broker, queues, counted, minds_consumers=False, unknowable=management is None),
        entrances=[one for one in exchanges if one.type != "fanout" and one.name != topology.delivery],
        restoring=topology.layout().parts,
        cut_off=[binding for binding in bound if binding not in own],
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
) -> CascadeDeletion:
    """Delete the cascade's exchanges and queues, and our policies. Destinations stay, unbound. May be run again.

    Raises TopologyInUseError where messages wait, or where that cannot be known (no management API), unless `force`;
    else as `delete_topology`, which checks twice, `statistics_age` seconds apart, and once more at the end.
    Messages that are put into the level queues without the levels' exchanges (as by a plugin) are not protected.
    """
    done = delete_topology(
        broker,
        lambda: check_deletion(broker, topology),
        CASCADE,
        force=force,
        minds_consumers=False,
        statistics_age=statistics_age,
        on_deleted=on_deleted,
    )
    policy, limit = (_delete_policy(broker, name) for name in (done.check.policy, done.check.limit_policy))
    return CascadeDeletion(check=done.check, deleted=done.deleted, lost=done.lost, policy=policy, limit_policy=limit)


def _existing(policy: Policy | None, names: Collection[str]) -> str | None:
    return policy.name if policy is not None and policy.name in names else None


def _delete_policy(broker: BrokerClient, name: str | None) -> str | None:
    """`name`; None: there was no such policy."""
    if name is None or broker.management is None:
        return None
    return name if broker.management.delete_policy(name) else None
