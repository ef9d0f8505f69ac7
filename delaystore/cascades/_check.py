"""Whether a broker supports a layout, and what it lacks of it: by the management API, or else by AMQP alone.

A passive declare says whether an exchange or queue exists, and no more. Declaring what exists once more, as it should
be, changes nothing, and is refused where an argument differs. For what does not exist, the broker checks permissions
before arguments: a declaration with an argument that it must refuse tells whether a right one would be allowed. So
does unbinding what was never bound. Bindings cannot be looked up by AMQP at all.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from uuid import uuid4

from pika import exceptions

from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._differences import differences, missing_finding, missing_parts
from delaystore.cascades._findings import Finding, FindingKind
from delaystore.cascades._management import Management
from delaystore.cascades._requirements import check_broker, check_default_type, check_permissions, flags_needed
from delaystore.cascades._snapshot import Snapshot
from delaystore.cascades._words import CASCADE, LayoutWords
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare_part
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.queues import missing
from delaystore.transports.rabbitmq.topology.layout import (
    ALTERNATE_EXCHANGE,
    Binding,
    DestinationKind,
    Exchange,
    Layout,
    Part,
    Queue,
)

_ACCESS_REFUSED: Final = 403
_PRECONDITION_FAILED: Final = 406
_IMPOSSIBLE_TTL: Final = "none"
_INEQUIVALENT: Final = re.compile(r"inequivalent arg '(?P<argument>[^']*)'.*?: (?P<difference>received .*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LayoutCheck:
    """What `check_layout` found. `snapshot`: None where there is no management API.

    `missing`: what does not exist of it, in the order to declare it in; bindings only where there is a snapshot.
    `unchecked`: what could not be known, a sentence each.
    """

    version: str
    snapshot: Snapshot | None
    missing: tuple[Part, ...]
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]

    def with_findings(self, findings: Iterable[Finding]) -> "LayoutCheck":
        """The same, with these findings instead."""
        return replace(self, findings=tuple(findings))


def check_layout(
    broker: BrokerClient, layout: Layout, *, ends: Collection[str], declaring: bool, words: LayoutWords = CASCADE
) -> LayoutCheck:
    """Check whether the broker supports `layout`, and what it lacks of it. Changes nothing.

    `ends`: exchanges to which others may bind what they like. `declaring`: also whether the user could declare it.
    `words`: of the findings.
    Raises TransportUnavailableError, TransportError.
    """
    if broker.management is None:
        return _by_amqp(broker, layout, declaring, words)
    return _by_management(broker, broker.management, layout, ends, declaring, words)


def _by_management(
    broker: BrokerClient,
    management: Management,
    layout: Layout,
    ends: Collection[str],
    declaring: bool,
    words: LayoutWords,
) -> LayoutCheck:
    version = broker.version()
    broker.check_same_cluster()
    flags = management.feature_flags()
    snapshot = management.snapshot()
    absent = tuple(missing_parts(layout, snapshot))
    default_type = management.default_queue_type()
    findings = [
        *check_broker(version, flags, layout, words.layout),
        *check_default_type(default_type, management.virtual_host, layout),
    ]
    if declaring:
        findings += _permissions(broker, management, layout, absent)
    findings += differences(layout, snapshot, ends, words)
    unchecked = () if flags is not None else _unknown_flags(layout, "only an administrator may see them")
    return LayoutCheck(version, snapshot, absent, tuple(findings), unchecked)


def _permissions(
    broker: BrokerClient, management: Management, layout: Layout, absent: tuple[Part, ...]
) -> list[Finding]:
    granted = management.permissions()
    if granted is not None:
        return check_permissions(granted, layout)
    refusals = _check_declaring(broker.connections, layout, absent, CASCADE)
    # what does not match is taken from the snapshot, which tells more
    return [finding for finding in refusals if finding.kind is FindingKind.PERMISSION]


def _by_amqp(broker: BrokerClient, layout: Layout, declaring: bool, words: LayoutWords) -> LayoutCheck:
    version = broker.version()
    absent = missing(broker.connections, layout.nodes)
    findings = [*check_broker(version, None, layout, words.layout)]
    if declaring:
        findings += _check_declaring(broker.connections, layout, absent, words)
    findings += (missing_finding(part, words) for part in absent)
    unchecked = [
        *_unknown_flags(layout, "the management API shows them"),
        *words.by_management,
    ]
    if not declaring:
        unchecked.insert(0, "types and arguments: a passive declare looks at names alone")
    return LayoutCheck(version, None, tuple(absent), tuple(findings), tuple(unchecked))


def _unknown_flags(layout: Layout, why: str) -> tuple[str, ...]:
    needed = flags_needed(layout)
    return (f"whether feature flags are enabled ({', '.join(needed)}): {why}",) if needed else ()


def _check_declaring(
    connections: BlockingConnections, layout: Layout, absent: Sequence[Part], words: LayoutWords
) -> list[Finding]:
    """Why `layout` could not be declared: permissions, and the arguments of what exists (all but `absent`)."""
    findings: list[Finding] = []
    denied: list[tuple[Part, str]] = []
    for part in layout.nodes:
        attempt = _broken(part) if part in absent else part
        refusal = _refusal(connections, partial(declare_part, part=attempt))
        if refusal is None:
            continue
        if refusal.reply_code == _ACCESS_REFUSED:
            denied.append((part, refusal.reply_text))
        elif part not in absent:
            findings.append(_inequivalent(part, refusal, words))
    denied += _denied_bindings(connections, layout.bindings)
    return [*_permission(denied), *findings]


def _denied_bindings(connections: BlockingConnections, bindings: Sequence[Binding]) -> Iterator[tuple[Part, str]]:
    never_bound = f"delaystore-check-{uuid4()}"
    waiting = deque({(one.source, one.destination, one.kind): one for one in bindings}.values())

    def unbind_all(channel: Any) -> None:
        while waiting:
            binding = waiting[0]
            unbind = channel.queue_unbind if binding.kind is DestinationKind.QUEUE else channel.exchange_unbind
            unbind(binding.destination, binding.source, never_bound)
            waiting.popleft()

    # one channel for all, and a new one after each refusal, which closes it
    while (refusal := _refusal(connections, unbind_all)) is not None:
        refused = waiting.popleft()
        if refusal.reply_code == _ACCESS_REFUSED:
            yield refused, refusal.reply_text


def _refusal(connections: BlockingConnections, ask: Callable[[Any], object]) -> Any:
    """The error with which the broker closed the channel. None: it did not."""
    try:
        with connections.channel() as channel, quiet_pika():
            ask(channel)
    except exceptions.ChannelClosedByBroker as error:
        return error
    return None


def _broken(part: Exchange | Queue) -> Exchange | Queue:
    """`part` with an argument that no broker accepts, so that nothing is declared."""
    if isinstance(part, Exchange):
        return replace(part, arguments={**part.arguments, ALTERNATE_EXCHANGE: 0})
    return replace(part, arguments={**part.arguments, "x-message-ttl": _IMPOSSIBLE_TTL})


def _inequivalent(part: Part, refusal: Any, words: LayoutWords) -> Finding:
    found = _INEQUIVALENT.search(refusal.reply_text)
    if refusal.reply_code != _PRECONDITION_FAILED or found is None:
        return Finding(FindingKind.INEQUIVALENT, str(part), f"would be refused: {reason_of(refusal)}")
    argument = found["argument"]
    text = f"{argument} differs: {found['difference']}; {words.another}"
    return Finding(FindingKind.INEQUIVALENT, str(part), text, argument)


def _permission(denied: Sequence[tuple[Part, str]]) -> list[Finding]:
    if not denied:
        return []
    (first, reason), more = denied[0], len(denied) - 1
    rest = f" and {more} more" if more else ""
    text = f"refused for {first}{rest} ({reason}); grant it with rabbitmqctl set_permissions"
    return [Finding(FindingKind.PERMISSION, "permission to declare", text)]
