"""How a snapshot of a broker differs from a layout. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from delaystore.cascades._findings import Finding, FindingKind
from delaystore.cascades._snapshot import ExchangeState, QueueState, Snapshot
from delaystore.transports.rabbitmq.topology.layout import Exchange, Layout, Part, Queue

ANOTHER_LAYOUT: Final = "whoever made it wants another layout: choose that cascade, or delete this and create it anew"
"""What to do about an inequivalent exchange or queue."""
_QUEUE_TYPE: Final = "x-queue-type"


def differences(layout: Layout, snapshot: Snapshot, ends: Iterable[str] = ()) -> list[Finding]:
    """What is missing, inequivalent or too much. `ends`: exchanges to which others may bind what they like."""
    return [
        *(missing_finding(part) for part in missing_parts(layout, snapshot)),
        *(
            finding
            for exchange in layout.exchanges
            if exchange.name in snapshot.exchanges
            for finding in _exchange_differences(exchange, snapshot.exchanges[exchange.name])
        ),
        *(
            finding
            for queue in layout.queues
            if queue.name in snapshot.queues
            for finding in _queue_differences(queue, snapshot.queues[queue.name])
        ),
        *_extra_bindings(layout, snapshot, frozenset(ends)),
    ]


def missing_parts(layout: Layout, snapshot: Snapshot) -> list[Part]:
    """What `snapshot` lacks of `layout`, in the order in which it can be declared."""
    return [
        *(exchange for exchange in layout.exchanges if exchange.name not in snapshot.exchanges),
        *(queue for queue in layout.queues if queue.name not in snapshot.queues),
        *(binding for binding in layout.bindings if binding not in snapshot.bindings),
    ]


def missing_finding(part: Part) -> Finding:
    """The finding for a part that does not exist."""
    return Finding(FindingKind.MISSING, str(part), "is missing; run delaystore delays create")


def _exchange_differences(expected: Exchange, actual: ExchangeState) -> Iterator[Finding]:
    thing = str(expected)
    pairs = {
        "type": (expected.type, actual.type),
        "durable": (True, actual.durable),
        "auto_delete": (False, actual.auto_delete),
        "internal": (False, actual.internal),
    }
    yield from _differences(thing, pairs)
    yield from _differences(thing, _paired(expected.arguments, actual.arguments))


def _queue_differences(expected: Queue, actual: QueueState) -> Iterator[Finding]:
    thing = str(expected)
    pairs = {
        _QUEUE_TYPE: (expected.type, actual.type),
        "durable": (True, actual.durable),
        "auto_delete": (False, actual.auto_delete),
        "exclusive": (False, actual.exclusive),
    }
    yield from _differences(thing, pairs)
    arguments = _paired(expected.arguments, actual.arguments)
    arguments.pop(_QUEUE_TYPE, None)  # compared above: a queue of the default type may leave it out
    yield from _differences(thing, arguments)


def _paired(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (expected.get(name), actual.get(name)) for name in {**expected, **actual}}


def _differences(thing: str, pairs: Mapping[str, tuple[Any, Any]]) -> Iterator[Finding]:
    for argument, (expected, actual) in pairs.items():
        if expected != actual:
            text = f"{argument} is {_shown(actual)} and should be {_shown(expected)}; {ANOTHER_LAYOUT}"
            yield Finding(FindingKind.INEQUIVALENT, thing, text, argument, expected, actual)


def _shown(value: Any) -> str:
    return "absent" if value is None else repr(value)


def _extra_bindings(layout: Layout, snapshot: Snapshot, ends: frozenset[str]) -> Iterator[Finding]:
    wanted = frozenset(layout.bindings)
    sources = {exchange.name for exchange in layout.exchanges} - ends
    for binding in sorted(snapshot.bindings - wanted, key=str):
        if binding.source in sources:
            text = "is not part of the cascade, and leads messages astray; unbind it"
            yield Finding(FindingKind.EXTRA_BINDING, str(binding), text)
