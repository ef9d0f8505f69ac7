"""The policy by which a shared cascade sends messages without a destination to a queue of their own."""

import json
import re
import shlex
from collections.abc import Collection, Iterable
from typing import Final

from delaystore.cascades.findings import Finding, FindingKind
from delaystore.cascades.snapshot import BrokerSnapshot, Policy
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import ALTERNATE_EXCHANGE, Layout, fanout_queue

APPLIES_TO: Final = ("all", "exchanges")
"""The kinds of policies that apply to an exchange."""
WITHOUT_IT: Final = (
    "without it, a message whose destination is not bound when its delay is over is lost (classic queues), or stays in "
    "its level and can hold up everybody's (quorum queues)"
)


def needs_policy(topology: CascadeTopology) -> bool:
    """Whether a policy has to catch messages without a destination, since the layout itself does not."""
    return topology.undeliverable is None and any(
        exchange.name == topology.delivery for exchange in topology.layout().exchanges
    )


def undeliverable_name(topology: CascadeTopology) -> str | None:
    """The exchange and queue for messages that have no destination when their delay is over. None: all have one."""
    return f"{topology.delivery}.undeliverable" if needs_policy(topology) else topology.undeliverable


def undeliverable_layout(topology: CascadeTopology) -> Layout:
    """The exchange and queue that our policy leads to. Empty where the cascade needs no policy."""
    name = undeliverable_name(topology)
    if name is None or not needs_policy(topology):
        return Layout()
    return fanout_queue(name, {"x-queue-type": "quorum"})


def complete_layout(topology: CascadeTopology) -> Layout:
    """The cascade, preceded by what our policy leads to."""
    return undeliverable_layout(topology) + topology.layout()


def policy_for(topology: CascadeTopology) -> Policy | None:
    """The policy that leads from the delivery exchange to the undeliverable one. None: the layout needs none."""
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


def applying(policies: Iterable[Policy], name: str, kinds: Collection[str] = APPLIES_TO) -> Policy | None:
    """The one policy that applies to the exchange or queue `name`: of the policies that match, one of the highest
    priority.

    `kinds`: of policies that apply to an exchange, or to such a queue.
    """
    matching = [one for one in policies if one.apply_to in kinds and _matches(one.pattern, name)]
    return max(matching, key=lambda one: one.priority, default=None)


def competitor(topology: CascadeTopology, snapshot: BrokerSnapshot) -> Policy | None:
    """Another policy that applies to the delivery exchange, or would, in place of our policy. None: there is none."""
    ours = policy_for(topology)
    delivery = snapshot.exchanges.get(topology.delivery)
    others = [one for one in snapshot.policies if ours is None or one.name != ours.name]
    if delivery is None or delivery.policy is None:
        return applying(others, topology.delivery)
    if ours is not None and delivery.policy == ours.name:
        return None
    return next((one for one in others if one.name == delivery.policy), applying(others, topology.delivery))


def check_policy(topology: CascadeTopology, snapshot: BrokerSnapshot, virtual_host: str) -> list[Finding]:
    """Findings if messages without a destination are not caught, or a policy leads them to no queue."""
    policy = policy_for(topology)
    if policy is None or topology.delivery not in snapshot.exchanges:
        return []
    subject = f"policy of exchange {topology.delivery!r}"
    name = snapshot.alternate_exchange(topology.delivery)
    if name is None:
        text = _what_to_do(policy, competitor(topology, snapshot), virtual_host)
    elif not any(binding.source == name for binding in snapshot.bindings):
        text = f"leads messages without a destination to {name!r}, which leads nowhere: bind a queue to it"
    else:
        return []
    return [Finding(FindingKind.UNDELIVERABLE, subject, text)]


def advice_against(other: Policy) -> str:
    """The remedy where another policy applies."""
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
