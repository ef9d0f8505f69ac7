"""Creating a cascade: everything is checked before anything is declared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._check import LayoutCheck, check_layout
from delaystore.cascades._findings import Finding
from delaystore.cascades._management import ManagementRefusedError
from delaystore.cascades._snapshot import Policy, Snapshot
from delaystore.cascades.policies import (
    WITHOUT_IT,
    advice_against,
    command_for,
    competitor,
    complete_layout,
    policy_for,
    undeliverable_name,
)
from delaystore.errors import TransportSetupError
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import Part


class PolicyState(StrEnum):
    """What became of the policy that catches messages without a destination.

    NOT_NEEDED: the layout itself catches them. PRESENT: they are caught already. SET: the policy was set, or would be
    without the dry run. NOT_SET: it was not; `PolicyOutcome.advice` says why, and what to do.
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
class Creation:
    """What `create` did, or would do. `broker`: host, port and virtual host.

    `missing`: the parts that did not exist before; without a management API, bindings are left out: they are unknown.
    `declared`: how many parts were declared, including those that existed.
    `unchecked`: what could not be known, a sentence each.
    """

    broker: str
    version: str
    missing: Sequence[Part]
    declared: int
    policy: PolicyOutcome
    unchecked: Sequence[str] = ()


def create(
    broker: BrokerClient,
    topology: CascadeTopology,
    *,
    dry_run: bool = False,
    on_declared: Callable[[Part], object] = lambda _part: None,
) -> Creation:
    """Declare the cascade, and the policy that catches messages without a destination. May be run again.

    Checks first, and changes nothing where the check finds a hindrance. `on_declared` is called after each part.
    Raises TransportSetupError for a hindrance; DeclarationError, a TransportSetupError, where the broker refuses a
    part all the same, saying what had been declared until then; TransportUnavailableError, TransportError.
    """
    layout = complete_layout(topology)
    found = check_layout(broker, layout, ends={topology.delivery}, declaring=True)
    _refuse([finding for finding in found.findings if finding.hinders])
    if not dry_run:
        declare(broker.connections, layout, on_declared)
    return Creation(
        broker=broker.label,
        version=found.version,
        missing=found.missing,
        declared=0 if dry_run else len(layout.parts),
        policy=_ensure_policy(broker, topology, found, dry_run),
        unchecked=found.unchecked,
    )


def _refuse(hindrances: Sequence[Finding]) -> None:
    if not hindrances:
        return
    more = f" (and {len(hindrances) - 1} more: delaystore delays verify lists them)" if len(hindrances) > 1 else ""
    raise TransportSetupError(f"{hindrances[0]}{more}; nothing was declared")


def _ensure_policy(broker: BrokerClient, topology: CascadeTopology, found: LayoutCheck, dry_run: bool) -> PolicyOutcome:
    policy = policy_for(topology)
    if policy is None:
        return PolicyOutcome(PolicyState.NOT_NEEDED)
    if found.snapshot is None:
        return _left_to_do(broker, policy, "without the management API no policy can be set")
    if _is_caught(topology, found.snapshot):
        return PolicyOutcome(PolicyState.PRESENT, policy.name)
    other = competitor(topology, found.snapshot)
    if other is not None:
        advice = f"exchange {topology.delivery!r}: {advice_against(other)}; {WITHOUT_IT}"
        return PolicyOutcome(PolicyState.NOT_SET, policy.name, None, advice)
    return PolicyOutcome(PolicyState.SET, policy.name) if dry_run else _set(broker, policy)


def _is_caught(topology: CascadeTopology, snapshot: Snapshot) -> bool:
    """Whether the alternate exchange exists, or is ours, which has just been declared."""
    name = snapshot.alternate_exchange(topology.delivery)
    return name is not None and (name == undeliverable_name(topology) or name in snapshot.exchanges)


def _set(broker: BrokerClient, policy: Policy) -> PolicyOutcome:
    assert broker.management is not None
    try:
        broker.management.set_policy(policy)
    except ManagementRefusedError:
        return _left_to_do(broker, policy, "this user may not set policies (that takes the tag policymaker)")
    return PolicyOutcome(PolicyState.SET, policy.name)


def _left_to_do(broker: BrokerClient, policy: Policy, why: str) -> PolicyOutcome:
    command = command_for(policy, broker.broker.parameters().virtual_host)
    return PolicyOutcome(PolicyState.NOT_SET, policy.name, command, f"{why}; {WITHOUT_IT}")
