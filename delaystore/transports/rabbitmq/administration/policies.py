"""Where a shared cascade leaves what has no destination: an alternate exchange, set by policy."""

import json
import re
import shlex
from collections.abc import Iterable
from typing import Final

from delaystore.transports.rabbitmq.administration.comparing import Holdings
from delaystore.transports.rabbitmq.administration.findings import Finding, FindingKind
from delaystore.transports.rabbitmq.held import Policy
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import (
    ALTERNATE_EXCHANGE,
    Binding,
    DestinationKind,
    Exchange,
    Layout,
    Queue,
)

APPLIES_TO: Final = ("all", "exchanges")
"""The kinds of policies that apply to an exchange."""
WITHOUT_IT: Final = (
    "without it, a message whose destination is not bound when its delay is over is lost (classic queues), or stays in "
    "its level and can hold up everybody's (quorum queues)"
)


def needs_policy(topology: CascadeTopology) -> bool:
    """Whether the layout itself says nothing of what has no destination, and a policy may."""
    return topology.undeliverable is None and any(
        exchange.name == topology.delivery for exchange in topology.layout().exchanges
    )


def undeliverable_name(topology: CascadeTopology) -> str | None:
    """The exchange and queue for what has no destination when its delay is over; None: everything has one."""
    return f"{topology.delivery}.undeliverable" if needs_policy(topology) else topology.undeliverable


def undeliverable_layout(topology: CascadeTopology) -> Layout:
    """The exchange and queue that our policy leads to; nothing where the cascade needs no policy."""
    name = undeliverable_name(topology)
    if name is None or not needs_policy(topology):
        return Layout()
    return Layout(
        exchanges=(Exchange(name, "fanout"),),
        queues=(Queue(name, {"x-queue-type": "quorum"}),),
        bindings=(Binding(name, name, DestinationKind.QUEUE),),
    )


def complete_layout(topology: CascadeTopology) -> Layout:
    """The cascade, and before it what our policy leads to."""
    return undeliverable_layout(topology) + topology.layout()


def policy_for(topology: CascadeTopology) -> Policy | None:
    """The policy that leads from the delivery exchange to the undeliverable one; None: the layout needs none."""
    if not needs_policy(topology):
        return None
    return Policy(
        name=f"delaystore undeliverable for {topology.delivery}",
        pattern=f"^{re.escape(topology.delivery)}$",
        definition={ALTERNATE_EXCHANGE: undeliverable_name(topology)},
        apply_to="exchanges",
    )


def command_for(policy: Policy, virtual_host: str) -> str:
    """The shell command that sets the policy."""
    definition = json.dumps(dict(policy.definition))
    words = ["rabbitmqctl", "set_policy", "--vhost", virtual_host, "--priority", str(policy.priority)]
    return shlex.join([*words, "--apply-to", policy.apply_to, policy.name, policy.pattern, definition])


def applying(policies: Iterable[Policy], exchange: str) -> Policy | None:
    """The one policy that applies to `exchange`: of those that match it, one with the highest priority."""
    matching = [one for one in policies if one.apply_to in APPLIES_TO and _matches(one.pattern, exchange)]
    return max(matching, key=lambda one: one.priority, default=None)


def competitor(topology: CascadeTopology, holdings: Holdings) -> Policy | None:
    """Another policy that applies to the delivery exchange, or would, in place of ours; None: there is none."""
    ours = policy_for(topology)
    delivery = holdings.exchanges.get(topology.delivery)
    others = [one for one in holdings.policies if ours is None or one.name != ours.name]
    if delivery is None or delivery.policy is None:
        return applying(others, topology.delivery)
    if ours is not None and delivery.policy == ours.name:
        return None
    return next((one for one in others if one.name == delivery.policy), applying(others, topology.delivery))


def alternate_exchange(topology: CascadeTopology, holdings: Holdings) -> str | None:
    """Where the delivery exchange leaves what it cannot deliver, by its own argument or by policy; None: nowhere."""
    delivery = holdings.exchanges.get(topology.delivery)
    if delivery is None:
        return None
    if ALTERNATE_EXCHANGE in delivery.arguments:
        return str(delivery.arguments[ALTERNATE_EXCHANGE])
    applied = next((one for one in holdings.policies if one.name == delivery.policy), None)
    name = None if applied is None else applied.definition.get(ALTERNATE_EXCHANGE)
    return None if name is None else str(name)


def check_policy(topology: CascadeTopology, holdings: Holdings, virtual_host: str) -> list[Finding]:
    """Whether what has no destination is caught; what catches it, by whatever policy, must lead to a queue."""
    policy = policy_for(topology)
    if policy is None or topology.delivery not in holdings.exchanges:
        return []
    subject = f"policy of exchange {topology.delivery!r}"
    name = alternate_exchange(topology, holdings)
    if name is None:
        return [
            Finding(
                FindingKind.UNDELIVERABLE, subject, _what_to_do(policy, competitor(topology, holdings), virtual_host)
            )
        ]
    if not any(binding.source == name for binding in holdings.bindings):
        text = f"leads what has no destination to {name!r}, which leads nowhere: bind a queue to it"
        return [Finding(FindingKind.UNDELIVERABLE, subject, text)]
    return []


def advice_against(other: Policy) -> str:
    """What to do where another policy applies."""
    return (
        f"policy {other.name!r} (priority {other.priority}) applies to it, and only one can: "
        f"add {ALTERNATE_EXCHANGE!r} to that policy's definition, or exclude the exchange from its pattern"
    )


def _what_to_do(policy: Policy, other: Policy | None, virtual_host: str) -> str:
    if other is not None:
        return f"has no {ALTERNATE_EXCHANGE}; {advice_against(other)}; {WITHOUT_IT}"
    return f"sets no {ALTERNATE_EXCHANGE}; run {command_for(policy, virtual_host)}; {WITHOUT_IT}"


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False
