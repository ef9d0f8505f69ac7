"""Whether a broker has a cascade as it should be."""

from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._collisions import collisions
from delaystore.cascades._differences import differences
from delaystore.cascades._findings import Finding
from delaystore.cascades._snapshot import Snapshot
from delaystore.cascades._words import CASCADE
from delaystore.cascades.declared import DeclaredTopology, Verification
from delaystore.cascades.delivery_limits import check_limits, current_snapshot, limit_policy
from delaystore.cascades.policies import check_policy, needs_policy, undeliverable_layout, undeliverable_name
from delaystore.transports.rabbitmq.queues import has_default_limit
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology


def verify(broker: BrokerClient, topology: CascadeTopology, *, passive: bool = False) -> Verification:
    """Verify the broker's version and feature flags, the user's permissions, and every part of the cascade.

    Uses the management API where there is one, otherwise what AMQP can tell. Changes nothing.
    `passive`: the user may not declare, so only passive declares are made, and permissions are left out.
    Raises TransportUnavailableError, TransportError where the broker does not answer.
    """
    declared = DeclaredTopology(stages=[topology.layout()], words=CASCADE, ends={topology.delivery})
    found = declared.check(broker, declaring=not passive)
    if found.snapshot is None or broker.management is None:
        return Verification.of(broker, found, unchecked=_unknown_policies(found.version, topology))
    findings = _verify_behind_delivery(broker, topology, found.snapshot)
    if has_default_limit(found.version):
        current = current_snapshot(found.version, topology, found.snapshot, broker.management.snapshot)
        findings += check_limits(found.version, topology, current, broker.broker.virtual_host)
    return Verification.of(broker, found, findings)


def _verify_behind_delivery(broker: BrokerClient, topology: CascadeTopology, snapshot: Snapshot) -> list[Finding]:
    """Messages without a destination must be caught, and destinations must not get each other's messages."""
    virtual_host = broker.broker.virtual_host
    findings = check_policy(topology, snapshot, virtual_host)
    if not findings and snapshot.alternate_exchange(topology.delivery) == undeliverable_name(topology):
        own = undeliverable_layout(topology)
        findings = differences(own, snapshot, ends={exchange.name for exchange in own.exchanges})
    return [*findings, *collisions(topology, snapshot.bindings, snapshot.routing())]


def _unknown_policies(version: str, topology: CascadeTopology) -> list[str]:
    unknown = []
    if needs_policy(topology):
        unknown.append("whether what has no destination is caught: only the management API shows policies")
    if limit_policy(topology) is not None and has_default_limit(version):
        unknown.append("whether the delivery limit of its queues is lifted: only the management API shows policies")
    return unknown
