"""Creating a cascade: everything is checked before anything is declared."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._check import LayoutCheck
from delaystore.cascades._management import ManagementRefusedError
from delaystore.cascades._snapshot import Policy, Snapshot
from delaystore.cascades._words import CASCADE
from delaystore.cascades.declared import Creation, CreationPlan, DeclaredTopology
from delaystore.cascades.delivery_limits import (
    WITHOUT_LIFTING,
    lifted_by_policy,
    limit_advice,
    limit_competitor,
    limit_policy,
)
from delaystore.cascades.policies import (
    WITHOUT_IT,
    advice_against,
    command_for,
    competitor,
    complete_layout,
    policy_for,
    undeliverable_name,
)
from delaystore.transports.rabbitmq.queues import has_default_limit
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import Part

_NO_MANAGEMENT: Final = "without the management API no policy can be set"


class PolicyState(StrEnum):
    """What became of a policy.

    NOT_NEEDED: the layout or the broker does without. PRESENT: what it is for is seen to already. SET: it was set, or
    would be without the dry run. NOT_SET: it was not; `PolicyOutcome.advice` says why, and what to do.
    """

    NOT_NEEDED = "not-needed"
    PRESENT = "present"
    SET = "set"
    NOT_SET = "not-set"


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """`command`: the shell command that sets the policy, where that is left to do. `advice`: a sentence for people."""

    state: PolicyState
    name: str | None = None
    command: str | None = None
    advice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeCreation(Creation):
    """What `create` did, or would do.

    `policy`: catches messages without a destination. `limit_policy`: lifts the delivery limit of quorum queues.
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
    """Declare the cascade, and its policies. May be run again.

    Checks first, and changes nothing where the check finds a hindrance. `on_declared` is called after each part.
    Raises TopologyRefusedError for a hindrance; DeclarationError, as that a TransportSetupError, where the broker
    refuses a part anyway, saying what had been declared until then; TransportUnavailableError, TransportError.
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


def _is_caught(topology: CascadeTopology, snapshot: Snapshot) -> bool:
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
