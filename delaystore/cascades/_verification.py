"""Whether a broker has a cascade as it should be."""

from collections.abc import Sequence
from dataclasses import dataclass

from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._check import check_layout
from delaystore.cascades._collisions import collisions
from delaystore.cascades._differences import differences
from delaystore.cascades._findings import Finding
from delaystore.cascades._snapshot import Snapshot
from delaystore.cascades.delivery_limits import check_limits, current_snapshot, limit_policy
from delaystore.cascades.policies import check_policy, needs_policy, undeliverable_layout, undeliverable_name
from delaystore.transports.rabbitmq.queues import has_default_limit
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What is wrong with a cascade. `broker`: host, port and virtual host.

    `unchecked`: what could not be known, a sentence each. `findings` say nothing of it.
    """

    broker: str
    version: str
    findings: Sequence[Finding]
    unchecked: Sequence[str] = ()

    @property
    def good(self) -> bool:
        """Whether nothing was found. What was not checked may still be wrong."""
        return not self.findings

    @property
    def hindrances(self) -> list[Finding]:
        """What keeps the cascade from being declared."""
        return [finding for finding in self.findings if finding.hinders]


def verify(broker: BrokerClient, topology: CascadeTopology, *, passive: bool = False) -> Verification:
    """Verify the broker's version and feature flags, the user's permissions, and every part of the cascade.

    Uses the management API where there is one, otherwise what AMQP can tell. Changes nothing.
    `passive`: the user may not declare, so only passive declares are made, and permissions are left out.
    Raises TransportUnavailableError, TransportError where the broker does not answer.
    """
    found = check_layout(broker, topology.layout(), ends={topology.delivery}, declaring=not passive)
    findings, unchecked = list(found.findings), list(found.unchecked)
    if found.snapshot is not None and broker.management is not None:
        findings += _verify_behind_delivery(broker, topology, found.snapshot)
        if has_default_limit(found.version):
            current = current_snapshot(found.version, topology, found.snapshot, broker.management.snapshot)
            findings += check_limits(found.version, topology, current, broker.broker.virtual_host)
    else:
        unchecked += _unknown_policies(found.version, topology)
    return Verification(
        broker=broker.label, version=found.version, findings=tuple(findings), unchecked=tuple(unchecked)
    )


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
