"""Creating a cascade: everything is checked before anything is declared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from delaystore.errors import TransportSetupError
from delaystore.transports.rabbitmq.administration.broker import Administered
from delaystore.transports.rabbitmq.administration.comparing import Holdings
from delaystore.transports.rabbitmq.administration.declaring import Part, declare
from delaystore.transports.rabbitmq.administration.findings import Finding
from delaystore.transports.rabbitmq.administration.inspecting import Inspection, inspect
from delaystore.transports.rabbitmq.administration.policies import (
    WITHOUT_IT,
    advice_against,
    alternate_exchange,
    command_for,
    competitor,
    complete_layout,
    policy_for,
    undeliverable_name,
)
from delaystore.transports.rabbitmq.held import Policy
from delaystore.transports.rabbitmq.management import ManagementRefusedError
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology


class PolicyState(StrEnum):
    """What became of the policy for what has no destination.

    NOT_NEEDED: the layout itself catches it. PRESENT: it is caught already. SET: by this call, or would be by one
    that is no dry run. NOT_SET: it is not; `PolicyOutcome.advice` says why, and what to do.
    """

    NOT_NEEDED = "not-needed"
    PRESENT = "present"
    SET = "set"
    NOT_SET = "not-set"


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """`command`: the shell command that sets the policy, where that is left to do. `advice`: a sentence."""

    state: PolicyState
    name: str | None = None
    command: str | None = None
    advice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """What `create` did, or would do.

    `missing`: what was not there before; where there is no management API, bindings are left out, since nobody knows.
    `declared`: how many parts were declared, those among them that were there already.
    """

    broker: str
    version: str
    missing: Sequence[Part]
    declared: int
    policy: PolicyOutcome
    unchecked: Sequence[str] = ()


def create(
    broker: Administered,
    topology: CascadeTopology,
    *,
    dry_run: bool = False,
    on_declared: Callable[[Part], object] = lambda _part: None,
) -> Creation:
    """Declare the cascade, and see that what has no destination is caught. May be run again.

    Checks first, as `verify` does, and changes nothing where something hinders: then TransportSetupError.
    DeclarationError, a TransportSetupError, where the broker refuses a part all the same; it names what is left.
    `on_declared` is called after each part.
    """
    layout = complete_layout(topology)
    found = inspect(broker, layout, ends={topology.delivery}, declaring=True)
    _refuse([finding for finding in found.findings if finding.hinders])
    if not dry_run:
        declare(broker.connections, layout, on_declared)
    return Creation(
        broker=broker.broker.label,
        version=found.version,
        missing=found.missing,
        declared=0 if dry_run else len(layout.exchanges) + len(layout.queues) + len(layout.bindings),
        policy=_see_to_policy(broker, topology, found, dry_run),
        unchecked=found.unchecked,
    )


def _refuse(hindrances: Sequence[Finding]) -> None:
    if not hindrances:
        return
    more = f" (and {len(hindrances) - 1} more: delaystore delays verify lists them)" if len(hindrances) > 1 else ""
    raise TransportSetupError(f"{hindrances[0]}{more}; nothing was declared")


def _see_to_policy(broker: Administered, topology: CascadeTopology, found: Inspection, dry_run: bool) -> PolicyOutcome:
    policy = policy_for(topology)
    if policy is None:
        return PolicyOutcome(PolicyState.NOT_NEEDED)
    if found.holdings is None:
        return _left_to_do(broker, policy, "without the management API no policy can be set")
    if _is_caught(topology, found.holdings):
        return PolicyOutcome(PolicyState.PRESENT, policy.name)
    other = competitor(topology, found.holdings)
    if other is not None:
        advice = f"exchange {topology.delivery!r}: {advice_against(other)}; {WITHOUT_IT}"
        return PolicyOutcome(PolicyState.NOT_SET, policy.name, None, advice)
    return PolicyOutcome(PolicyState.SET, policy.name) if dry_run else _set(broker, policy)


def _is_caught(topology: CascadeTopology, holdings: Holdings) -> bool:
    """Whether what has no destination goes somewhere that is, or is ours, which has just been declared."""
    name = alternate_exchange(topology, holdings)
    return name is not None and (name == undeliverable_name(topology) or name in holdings.exchanges)


def _set(broker: Administered, policy: Policy) -> PolicyOutcome:
    assert broker.management is not None
    try:
        broker.management.set_policy(policy)
    except ManagementRefusedError:
        return _left_to_do(broker, policy, "this user may not set policies (that takes the tag policymaker)")
    return PolicyOutcome(PolicyState.SET, policy.name)


def _left_to_do(broker: Administered, policy: Policy, why: str) -> PolicyOutcome:
    command = command_for(policy, broker.broker.parameters().virtual_host)
    return PolicyOutcome(PolicyState.NOT_SET, policy.name, command, f"{why}; {WITHOUT_IT}")
