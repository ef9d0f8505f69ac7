"""How often a message may be given back to its queue before the broker sends it on, and the policy that lifts this.

Since RabbitMQ 4.0 a quorum queue has a limit of 20 by default. Beyond it a level queue dead-letters a
message to the next level, which is early, and a queue without a dead-letter exchange drops it.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from delaystore.cascades.findings import Finding, FindingKind
from delaystore.cascades.management import BrokerClient
from delaystore.cascades.policies import applying, command_for, complete_layout
from delaystore.cascades.snapshot import BrokerSnapshot, Policy, QueueState
from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.queues import LIFTED_LIMIT, has_default_limit
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology

DELIVERY_LIMIT: Final = "delivery-limit"
_ARGUMENT: Final = f"x-{DELIVERY_LIMIT}"
_DEFAULT_LIMIT: Final = 20
"""https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling"""
_APPLIES_TO: Final = ("all", "queues", "quorum_queues")
"""The kinds of policies that apply to a quorum queue."""
_ATTEMPTS: Final = 15
"""How often queues are asked, once a second, before they are believed: the broker refreshes answers every five."""
_WHY: Final = "a message that is read and given back more often is sent on early, or dropped"
WITHOUT_LIFTING: Final = f"without it, {_WHY}: after {_DEFAULT_LIMIT} times, by default"


def delivery_limit(version: str, queue: QueueState | None, policies: Iterable[Policy] = ()) -> int | None:
    """How often a message of `queue` may be given back before the broker sends it on or drops it. None: as you like.

    `queue` None: unknown, and taken for a quorum queue. `policies`: of the virtual host; the queue's own report of
    policies that apply is some seconds old. Where sources differ, the smallest counts.
    """
    if queue is not None and queue.type != "quorum":
        return None
    by_default = has_default_limit(version)
    said: list[int] = []
    if queue is not None:
        policy = applying(policies, queue.name, _APPLIES_TO)
        by_policy = None if policy is None else policy.definition.get(DELIVERY_LIMIT)
        said = [*queue.given(DELIVERY_LIMIT), *([] if by_policy is None else [by_policy])]
    if not by_default:
        said = [max(0, limit) for limit in said]  # RabbitMQ 3 takes -1 for 0
    elif not said:
        said = [_DEFAULT_LIMIT]
    if queue is not None and queue.delivery_limit is not None:
        said.append(queue.delivery_limit)
    return min((limit for limit in said if 0 <= limit < LIFTED_LIMIT), default=None)


def limit_policy(topology: CascadeTopology) -> Policy | None:
    """The policy that lifts the limit of the cascade's quorum queues. None: it has no such queue."""
    names = _quorum_queues(topology)
    if not names:
        return None
    return Policy(
        name=f"delaystore delivery limit for {topology.delivery}",
        pattern=f"^({'|'.join(_patterns(topology, names))})$",
        definition={DELIVERY_LIMIT: LIFTED_LIMIT},
        apply_to="queues",
    )


def limited_queues(version: str, topology: CascadeTopology, snapshot: BrokerSnapshot) -> Mapping[str, int]:
    """The quorum queues of the cascade that exist and have a limit, with it."""
    states = (snapshot.queues.get(name) for name in _quorum_queues(topology))
    limits = {one.name: delivery_limit(version, one, snapshot.policies) for one in states if one is not None}
    return {name: limit for name, limit in limits.items() if limit is not None}


def current_snapshot(
    version: str, topology: CascadeTopology, snapshot: BrokerSnapshot, take: Callable[[], BrokerSnapshot]
) -> BrokerSnapshot:
    """`snapshot`, or one that `take` returns later: a queue's report of its limit may be older than the policies.

    A limit that a queue still has after some seconds, although a policy lifts it, is one.
    """
    for _ in range(_ATTEMPTS):
        limited = [snapshot.queues[name] for name in limited_queues(version, topology, snapshot)]
        unlimited = (replace(one, delivery_limit=None, policy_definition={}) for one in limited)
        if not limited or any(delivery_limit(version, one, snapshot.policies) is not None for one in unlimited):
            break
        time.sleep(1)
        snapshot = take()
    return snapshot


def lifted_by_policy(topology: CascadeTopology, policies: Collection[Policy]) -> bool:
    """Whether policies lift the limit of all quorum queues of the cascade, also of queues that do not exist yet."""
    found = (applying(policies, name, _APPLIES_TO) for name in _quorum_queues(topology))
    return all(one is not None and _lifts(one) for one in found)


def limit_competitor(topology: CascadeTopology, snapshot: BrokerSnapshot) -> Policy | None:
    """Another policy that applies to a queue of the cascade, or would apply in place of our policy, and does not
    lift the limit.

    None: there is none.
    """
    ours = limit_policy(topology)
    others = [one for one in snapshot.policies if ours is None or one.name != ours.name]
    found = (applying(others, name, _APPLIES_TO) for name in _quorum_queues(topology))
    return next((one for one in found if one is not None and not _lifts(one)), None)


def check_limits(version: str, topology: CascadeTopology, snapshot: BrokerSnapshot, virtual_host: str) -> list[Finding]:
    """The queues of the cascade whose limit is not lifted, and what to do."""
    policy, limited = limit_policy(topology), limited_queues(version, topology, snapshot)
    if policy is None or not limited:
        return []
    (name, limit), more = next(iter(limited.items())), len(limited) - 1
    other = limit_competitor(topology, snapshot)
    by_argument = [one for one, most in limited.items() if _declared_with(snapshot.queues[one], most)]
    if by_argument:
        what = f"queue {by_argument[0]!r} was declared with it: delete that queue once it is empty, and create it again"
    elif other is not None:
        what = limit_advice(other)
    else:
        what = f"run delaystore cascade create, or {command_for(policy, virtual_host)}"
    subject = f"queue {name!r}" + (f" and {more} more" if more else "")
    return [Finding(FindingKind.DELIVERY_LIMIT, subject, f"has a delivery limit of {limit}: {_WHY}; {what}")]


def limit_warning(broker: BrokerClient, name: str) -> str | None:
    """The remedy for the limit of the queue `name`, which is no part of a cascade. None: it has none, or is missing.

    Raises ConfigurationError without a management API, or with another broker's; TransportUnavailableError,
    TransportError.
    """
    if broker.management is None:
        raise ConfigurationError("only the management API shows the limits of queues; pass --management URL")
    broker.check_same_cluster()
    queue, policies = broker.management.queues().get(name), broker.management.policies()
    limit = None if queue is None else delivery_limit(broker.version(), queue, policies)
    if queue is None or limit is None:
        return None
    policy = Policy(
        name=f"delaystore delivery limit for {name}",
        pattern=f"^{re.escape(name)}$",
        definition={DELIVERY_LIMIT: LIFTED_LIMIT},
        apply_to="queues",
    )
    other = applying(policies, name, _APPLIES_TO)
    if _declared_with(queue, limit):
        what = "it was declared with it: delete it once it is empty, and create it again"
    elif other is not None:
        what = limit_advice(other)
    else:
        what = f"run {command_for(policy, broker.management.virtual_host)}"
    return f"queue {name!r} has a delivery limit of {limit}: {_WHY}; {what}"


def limit_advice(other: Policy) -> str:
    """The remedy where another policy applies."""
    return (
        f"policy {other.name!r} (priority {other.priority}) applies, and only one can: "
        f"give {DELIVERY_LIMIT!r} in that policy's definition the value {LIFTED_LIMIT}"
    )


def _declared_with(queue: QueueState, limit: int) -> bool:
    """Whether it is the queue's own argument that sets its limit, and not a policy that sets a lower one."""
    given = queue.arguments.get(_ARGUMENT)
    return given is not None and max(0, given) == limit


def _lifts(policy: Policy) -> bool:
    limit = policy.definition.get(DELIVERY_LIMIT)
    return limit is not None and not 0 <= limit < LIFTED_LIMIT


def _quorum_queues(topology: CascadeTopology) -> list[str]:
    return [queue.name for queue in complete_layout(topology).queues if queue.type == "quorum"]


def _patterns(topology: CascadeTopology, names: Iterable[str]) -> list[str]:
    """Regular expressions for these names; one for all levels, where they differ by a number at the end."""
    levels = {topology.level(number) for number in range(topology.levels)}
    stems = {name.rstrip("0123456789") for name in levels}
    patterns = (
        f"{re.escape(*stems)}[0-9]+" if name in levels and len(stems) == 1 else re.escape(name) for name in names
    )
    return list(dict.fromkeys(patterns))
