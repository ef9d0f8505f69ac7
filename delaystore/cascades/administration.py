"""Creating, verifying and deleting a cascade: everything is checked before anything is changed."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from delaystore.cascades.binding import collisions
from delaystore.cascades.checking import LayoutCheck
from delaystore.cascades.declared import (
    STATISTICS_AGE,
    Creation,
    CreationPlan,
    DeclaredTopology,
    Deletion,
    DeletionCheck,
    Verification,
    delete_topology,
    uses_of,
)
from delaystore.cascades.delivery_limits import (
    WITHOUT_LIFTING,
    check_limits,
    current_snapshot,
    lifted_by_policy,
    limit_advice,
    limit_competitor,
    limit_policy,
)
from delaystore.cascades.findings import CASCADE, Finding, differences
from delaystore.cascades.management import BrokerClient, ManagementRefusedError
from delaystore.cascades.policies import (
    WITHOUT_IT,
    advice_against,
    check_policy,
    command_for,
    competitor,
    complete_layout,
    needs_policy,
    policy_for,
    undeliverable_layout,
    undeliverable_name,
)
from delaystore.cascades.snapshot import BrokerSnapshot, Policy
from delaystore.transports.rabbitmq.queues import has_default_limit, missing
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import Exchange, Part, Queue

_NO_MANAGEMENT: Final = "without the management API no policy can be set"


class PolicyState(StrEnum):
    """Results of setting a policy.

    NOT_NEEDED: the layout or the broker does without. PRESENT: its purpose is served already. SET: it was set, or
    would be without the dry run. NOT_SET: it was not; `PolicyOutcome.advice` says why, and what to do.
    """

    NOT_NEEDED = "not-needed"
    PRESENT = "present"
    SET = "set"
    NOT_SET = "not-set"


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The result for one policy.

    Attributes:
        state: Whether it is needed, and set.
        name: Its name; None: none is needed.
        command: The shell command that sets it, where that is left to do.
        advice: A sentence for people.

    """

    state: PolicyState
    name: str | None = None
    command: str | None = None
    advice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeCreation(Creation):
    """The result of `create`, or of its dry run.

    Attributes:
        policy: The policy that catches messages without a destination.
        limit_policy: The policy that lifts the delivery limit of quorum queues.

    """

    policy: PolicyOutcome
    limit_policy: PolicyOutcome


def create(
    broker: BrokerClient,
    topology: CascadeTopology,
    *,
    dry_run: bool = False,
    on_declared: Callable[[Part], object] = lambda _part: None,
) -> CascadeCreation:
    """Declare the cascade and its policies. May be run again.

    Args:
        broker: The virtual host.
        topology: The cascade.
        dry_run: Change nothing, and report the parts that would be declared.
        on_declared: Called after each part.

    Returns:
        The declared parts, and the result for each policy.

    Raises:
        TopologyRefusedError: A finding blocks it, and nothing was changed. It is a TransportSetupError.
        DeclarationError: The broker refuses a part anyway. The text lists the parts declared before.
        TransportUnavailableError, TransportError: The broker does not answer.

    Example:
        ```python
        with BrokerClient("amqp://broker", "http://broker:15672") as broker:
            create(broker, NSERVICEBUS_V2)
        ```

    """
    plan = CreationPlan(
        broker, DeclaredTopology(stages=[complete_layout(topology)], words=CASCADE, ends={topology.delivery})
    )
    limit = _ensure_limit(broker, topology, plan.found, dry_run)  # first, so that new queues begin with it
    done = plan.carry_out(dry_run=dry_run, on_declared=on_declared)
    return CascadeCreation(
        broker=done.broker,
        version=done.version,
        missing=done.missing,
        declared=done.declared,
        unchecked=done.unchecked,
        policy=_ensure_undeliverable(broker, topology, plan.found, dry_run),
        limit_policy=limit,
    )


def _ensure_undeliverable(
    broker: BrokerClient, topology: CascadeTopology, found: LayoutCheck, dry_run: bool
) -> PolicyOutcome:
    policy = policy_for(topology)
    if policy is None:
        return PolicyOutcome(PolicyState.NOT_NEEDED)
    if found.snapshot is None:
        return _left_to_do(broker, policy, f"{_NO_MANAGEMENT}; {WITHOUT_IT}")
    if _is_caught(topology, found.snapshot):
        return PolicyOutcome(PolicyState.PRESENT, policy.name)
    other = competitor(topology, found.snapshot)
    if other is not None:
        advice = f"exchange {topology.delivery!r}: {advice_against(other)}; {WITHOUT_IT}"
        return PolicyOutcome(PolicyState.NOT_SET, policy.name, None, advice)
    return _set(broker, policy, WITHOUT_IT, dry_run)


def _is_caught(topology: CascadeTopology, snapshot: BrokerSnapshot) -> bool:
    """Whether the alternate exchange exists, or is ours, which has just been declared."""
    name = snapshot.alternate_exchange(topology.delivery)
    return name is not None and (name == undeliverable_name(topology) or name in snapshot.exchanges)


def _ensure_limit(broker: BrokerClient, topology: CascadeTopology, found: LayoutCheck, dry_run: bool) -> PolicyOutcome:
    policy = limit_policy(topology)
    if policy is None or not has_default_limit(found.version):
        return PolicyOutcome(PolicyState.NOT_NEEDED)
    if found.snapshot is None:
        return _left_to_do(broker, policy, f"{_NO_MANAGEMENT}; {WITHOUT_LIFTING}")
    if lifted_by_policy(topology, found.snapshot.policies):
        return PolicyOutcome(PolicyState.PRESENT, policy.name)
    other = limit_competitor(topology, found.snapshot)
    if other is not None:
        return PolicyOutcome(PolicyState.NOT_SET, policy.name, None, f"{limit_advice(other)}; {WITHOUT_LIFTING}")
    return _set(broker, policy, WITHOUT_LIFTING, dry_run)


def _set(broker: BrokerClient, policy: Policy, without: str, dry_run: bool) -> PolicyOutcome:
    assert broker.management is not None
    try:
        if not dry_run:
            broker.management.set_policy(policy)
    except ManagementRefusedError:
        return _left_to_do(
            broker, policy, f"this user may not set policies (that takes the tag policymaker); {without}"
        )
    return PolicyOutcome(PolicyState.SET, policy.name)


def _left_to_do(broker: BrokerClient, policy: Policy, advice: str) -> PolicyOutcome:
    return PolicyOutcome(PolicyState.NOT_SET, policy.name, command_for(policy, broker.broker.virtual_host), advice)


def verify(broker: BrokerClient, topology: CascadeTopology, *, passive: bool = False) -> Verification:
    """Verify the broker's version and feature flags, the user's permissions, and every part of the cascade.

    Uses the management API where there is one, otherwise what AMQP reports. Changes nothing.

    Args:
        broker: The virtual host.
        topology: The cascade.
        passive: The user may not declare: only passive declares are made, and permissions are not checked.

    Returns:
        The findings; none, if the cascade is as it should be.

    Raises:
        TransportUnavailableError, TransportError: The broker does not answer.

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


def _verify_behind_delivery(broker: BrokerClient, topology: CascadeTopology, snapshot: BrokerSnapshot) -> list[Finding]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeDeletionCheck(DeletionCheck):
    """The parts of a cascade to delete.

    Attributes:
        policy: The name of our policy for messages without a destination; None: it does not exist.
        limit_policy: The name of our policy for the delivery limit; None: it does not exist.

    """

    policy: str | None = None
    limit_policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeDeletion(Deletion[CascadeDeletionCheck]):
    """The deleted parts of a cascade.

    Attributes:
        policy: The name of our policy for messages without a destination; None: it was not deleted.
        limit_policy: The name of our policy for the delivery limit; None: it was not deleted.

    """

    policy: str | None
    limit_policy: str | None


def check_deletion(broker: BrokerClient, topology: CascadeTopology) -> CascadeDeletionCheck:
    """Check the parts that `delete` would delete, and whether it may. Changes nothing.

    Args:
        broker: The virtual host.
        topology: The cascade.

    Returns:
        The parts and policies that exist, and the messages that would be lost.

    Raises:
        TransportUnavailableError, TransportError: The broker does not answer.

    """
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
        upstream=[one for one in exchanges if one.type != "fanout" and one.name != topology.delivery],
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

    It checks as `delete_topology` does. Messages that are put into the level queues without the levels' exchanges (as
    by a plugin) are not protected.

    Args:
        broker: The virtual host.
        topology: The cascade.
        force: Delete although messages are lost.
        statistics_age: Seconds between the two checks before the deletion.
        on_deleted: Called after each part.

    Returns:
        The deleted parts, and the number of lost messages.

    Raises:
        TopologyInUseError: Messages wait, or without a management API may wait, and `force` is False.
        TransportSetupError: The broker refuses to delete a part. The text says how many were deleted before.
        TransportUnavailableError, TransportError: The broker does not answer.

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
