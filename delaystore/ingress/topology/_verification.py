"""Whether a broker has an ingress as it should be."""

from collections.abc import Iterator
from typing import Final

from delaystore.cascades import BrokerClient, Finding, FindingKind, QueueState, Snapshot, Verification
from delaystore.errors import ConfigurationError
from delaystore.ingress.names import IngressNames
from delaystore.ingress.topology._declared import declared
from delaystore.ingress.topology._layout import ENTRANCE_KEYS, GIVEN_BACK, IngressTopology, entrance_type_for

_HARM: Final = {
    "expires": "deletes the queue when nobody uses it for that long, and what is in it",
    "message-ttl": "takes out what waits longer, while delaystore does not run",
}
_DROPPING: Final = {
    "max-length": "drops what is more",
    "max-length-bytes": "drops what is more",
}
"""Of queues that do not refuse what is too much."""
_BEYOND_LIMIT: Final = "takes out what was given back more often"


def verify(
    broker: BrokerClient,
    names: IngressNames,
    *,
    out_type: str | None = None,
    entrance_type: str | None = None,
    passive: bool = False,
) -> Verification:
    """Verify the broker's version and feature flags, the user's permissions, and every part of the ingress.

    Uses the management API where there is one, otherwise what AMQP can tell. Changes nothing. `out_type`,
    `entrance_type`: of the two exchanges; None: whatever they are, as far as it can be. `passive`: the user may not
    declare, so only passive declares are made, and permissions are left out.
    Raises ConfigurationError where neither a type nor a management API is given; TransportUnavailableError,
    TransportError where the broker does not answer.
    """
    topology = _topology(broker, names, out_type, entrance_type)
    found = declared(topology).check(broker, declaring=not passive)
    if found.snapshot is None:
        unknown = "whether policies do to the queues what must not be: only the management API shows them"
        return Verification.of(broker, found, unchecked=[unknown])
    return Verification.of(broker, found, _by_snapshot(names, found.snapshot))


def _topology(
    broker: BrokerClient, names: IngressNames, out_type: str | None, entrance_type: str | None
) -> IngressTopology:
    """With types that are there, where nobody says which they should be."""
    if broker.management is None:
        if out_type is None:
            raise ConfigurationError("AMQP does not tell of which type OUT is; pass --type TYPE, or --management URL")
        return IngressTopology(
            names=names, out_type=out_type, entrance_type=entrance_type or entrance_type_for(out_type)
        )
    exchanges = broker.management.exchanges()
    actual = {one: exchanges[one].type for one in (names.exchange, names.out) if one in exchanges}
    out_type = out_type or actual.get(names.out, "topic")
    there = actual.get(names.exchange)
    usual = entrance_type_for(out_type) if there is None or there not in ENTRANCE_KEYS else there
    return IngressTopology(names=names, out_type=out_type, entrance_type=entrance_type or usual)


def _by_snapshot(names: IngressNames, snapshot: Snapshot) -> Iterator[Finding]:
    behind = snapshot.queues_behind(names.out)
    if names.queue in behind:
        text = f"leads back to the queue {names.queue!r}: what is due would go round for ever; unbind what leads there"
        yield Finding(FindingKind.EXTRA_BINDING, f"exchange {names.out!r}", text)
    if names.out in snapshot.exchanges and not behind:
        text = "leads to no queue, so that what is due goes to the error queue; bind your queues to it"
        yield Finding(FindingKind.UNDELIVERABLE, f"exchange {names.out!r}", text)
    for name in (names.queue, names.expired, names.rejected):
        queue = snapshot.queues.get(name)
        if queue is not None:
            yield from _harm_by_policy(queue)


def _harm_by_policy(queue: QueueState) -> Iterator[Finding]:
    policy = queue.policy_definition
    harm = _HARM if queue.arguments.get("x-overflow") == "reject-publish" else {**_HARM, **_DROPPING}
    what = {setting: why for setting, why in harm.items() if setting in policy}
    if 0 <= policy.get("delivery-limit", GIVEN_BACK) < GIVEN_BACK:
        what["delivery-limit"] = _BEYOND_LIMIT
    for setting, why in what.items():
        text = f"a policy sets {setting} {policy[setting]}, which {why}; leave this queue out of the policy's pattern"
        yield Finding(FindingKind.POLICY, f"queue {queue.name!r}", text)
