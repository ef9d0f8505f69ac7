"""What AMQP alone can tell of a layout, without changing anything.

A passive declare says whether a thing is there, and no more. Declaring what is there once more, as it should be,
changes nothing, and is refused where an argument differs. For what is not there, the broker checks permissions before
arguments: a declaration with an argument it must refuse tells whether a right one would be allowed. So does unbinding
what was never bound. Bindings cannot be looked up at all.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import uuid4

from pika import exceptions

from delaystore.transports.rabbitmq.administration.declaring import Part, declare_part, exists, named, things
from delaystore.transports.rabbitmq.administration.findings import Finding, FindingKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.logs import quiet_pika
from delaystore.transports.rabbitmq.reasons import reason_of
from delaystore.transports.rabbitmq.topology.layout import (
    ALTERNATE_EXCHANGE,
    Binding,
    DestinationKind,
    Exchange,
    Layout,
    Queue,
)

_ACCESS_REFUSED: Final = 403
_PRECONDITION_FAILED: Final = 406
_IMPOSSIBLE_TTL: Final = "none"
_INEQUIVALENT: Final = re.compile(r"inequivalent arg '(?P<argument>[^']*)'.*?: (?P<difference>received .*)", re.DOTALL)


def probe_existence(connections: BlockingConnections, layout: Layout) -> list[Part]:
    """The exchanges and queues of `layout` that are not there."""
    return [part for part in things(layout) if not exists(connections, part)]


def probe_declaring(connections: BlockingConnections, layout: Layout, missing: Sequence[Part]) -> list[Finding]:
    """Why `layout` could not be declared as a whole: permissions, and arguments of what is there, all but `missing`."""
    findings: list[Finding] = []
    denied: list[tuple[Part, str]] = []
    for part in things(layout):
        attempt = _broken(part) if part in missing else part
        refusal = _refusal(connections, partial(declare_part, part=attempt))
        if refusal is None:
            continue
        if refusal.reply_code == _ACCESS_REFUSED:
            denied.append((part, refusal.reply_text))
        elif part not in missing:
            findings.append(_inequivalent(part, refusal))
    denied += _denied_bindings(connections, layout.bindings)
    return [*_permission(denied), *findings]


def _denied_bindings(connections: BlockingConnections, bindings: Sequence[Binding]) -> Iterator[tuple[Part, str]]:
    never_bound = f"delaystore-probe-{uuid4()}"
    ends = {(binding.source, binding.destination, binding.kind): binding for binding in bindings}
    waiting = list(ends.values())
    while waiting:
        # one channel for all, and another after each refusal, which closes it
        at, refusal = _first_refusal(connections, waiting, never_bound)
        if refusal is None:
            return
        if refusal.reply_code == _ACCESS_REFUSED:
            yield waiting[at], refusal.reply_text
        del waiting[: at + 1]


def _first_refusal(connections: BlockingConnections, bindings: Sequence[Binding], key: str) -> tuple[int, Any]:
    at = 0

    def unbind_all(channel: Any) -> None:
        nonlocal at
        for at, binding in enumerate(bindings):  # noqa: B007 - where it stopped is the answer
            if binding.kind is DestinationKind.QUEUE:
                channel.queue_unbind(binding.destination, binding.source, key)
            else:
                channel.exchange_unbind(binding.destination, binding.source, key)

    refusal = _refusal(connections, unbind_all)
    return at, refusal


def _refusal(connections: BlockingConnections, ask: Callable[[Any], object]) -> Any:
    """What the broker closed the channel with; None: it did not."""
    try:
        with connections.channel() as channel, quiet_pika():
            ask(channel)
    except exceptions.ChannelClosedByBroker as error:
        return error
    return None


def _broken(part: Exchange | Queue) -> Exchange | Queue:
    """`part` with an argument that no broker takes, so that nothing is declared."""
    if isinstance(part, Exchange):
        return replace(part, arguments={**part.arguments, ALTERNATE_EXCHANGE: 0})
    return replace(part, arguments={**part.arguments, "x-message-ttl": _IMPOSSIBLE_TTL})


def _inequivalent(part: Part, refusal: Any) -> Finding:
    found = _INEQUIVALENT.search(refusal.reply_text)
    if refusal.reply_code != _PRECONDITION_FAILED or found is None:
        return Finding(FindingKind.INEQUIVALENT, named(part), f"would be refused: {reason_of(refusal)}")
    argument = found["argument"]
    text = (
        f"{argument} differs: {found['difference']}; whoever made it wants another layout: choose that cascade, or "
        "delete this and create it anew"
    )
    return Finding(FindingKind.INEQUIVALENT, named(part), text, argument)


def _permission(denied: Sequence[tuple[Part, str]]) -> list[Finding]:
    if not denied:
        return []
    (first, reason), more = denied[0], len(denied) - 1
    rest = f" and {more} more" if more else ""
    text = f"refused for {named(first)}{rest} ({reason}); grant it with rabbitmqctl set_permissions"
    return [Finding(FindingKind.PERMISSION, "permission to declare", text)]
