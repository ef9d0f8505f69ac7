"""How a snapshot of a broker differs from a layout. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from delaystore.cascades._findings import Finding, FindingKind
from delaystore.cascades._snapshot import ExchangeState, QueueState, Snapshot
from delaystore.cascades._words import CASCADE, LayoutWords
from delaystore.transports.rabbitmq.topology.layout import Exchange, Layout, Part, Queue

_QUEUE_TYPE: Final = "x-queue-type"


def differences(
    layout: Layout, snapshot: Snapshot, ends: Iterable[str] = (), words: LayoutWords = CASCADE
) -> list[Finding]:
    """What is missing, inequivalent or too much. `ends`: exchanges to which others may bind what they like."""
    return [
        *(missing_finding(part, words) for part in missing_parts(layout, snapshot)),
        *(
            finding
            for exchange in layout.exchanges
            if exchange.name in snapshot.exchanges
            for finding in _exchange_differences(exchange, snapshot.exchanges[exchange.name], words)
        ),
        *(
            finding
            for queue in layout.queues
            if queue.name in snapshot.queues
            for finding in _queue_differences(queue, snapshot.queues[queue.name], words)
        ),
        *_extra_bindings(layout, snapshot, frozenset(ends), words),
    ]


def missing_parts(layout: Layout, snapshot: Snapshot) -> list[Part]:
    """What `snapshot` lacks of `layout`, in the order in which it can be declared."""
    return [
        *(exchange for exchange in layout.exchanges if exchange.name not in snapshot.exchanges),
        *(queue for queue in layout.queues if queue.name not in snapshot.queues),
        *(binding for binding in layout.bindings if binding not in snapshot.bindings),
    ]


def missing_finding(part: Part, words: LayoutWords = CASCADE) -> Finding:
    """The finding for a part that does not exist."""
    return Finding(FindingKind.MISSING, str(part), f"is missing; run {words.create}")


def _exchange_differences(expected: Exchange, actual: ExchangeState, words: LayoutWords) -> Iterator[Finding]:
    settings = {
        "type": (expected.type, actual.type),
        "durable": (True, actual.durable),
        "auto_delete": (False, actual.auto_delete),
        "internal": (False, actual.internal),
    }
    return _differences(expected, actual, settings, words)


def _queue_differences(expected: Queue, actual: QueueState, words: LayoutWords) -> Iterator[Finding]:
    settings = {
        _QUEUE_TYPE: (expected.type, actual.type),
        "durable": (True, actual.durable),
        "auto_delete": (False, actual.auto_delete),
        "exclusive": (False, actual.exclusive),
    }
    return _differences(expected, actual, settings, words)


def _differences(
    expected: Exchange | Queue,
    actual: ExchangeState | QueueState,
    settings: Mapping[str, tuple[Any, Any]],
    words: LayoutWords,
) -> Iterator[Finding]:
    """The settings and arguments that differ. `settings`: the expected and the actual value of each."""
    arguments = {
        name: (expected.arguments.get(name), actual.arguments.get(name))
        for name in {**expected.arguments, **actual.arguments}
        if name != _QUEUE_TYPE  # one of the settings: a queue of the default type may leave it out
    }
    for name, (wanted, found) in [*settings.items(), *arguments.items()]:
        if wanted != found:
            text = f"{name} is {_shown(found)} and should be {_shown(wanted)}; {words.another}"
            yield Finding(FindingKind.INEQUIVALENT, str(expected), text, name, wanted, found)


def _shown(value: Any) -> str:
    return "absent" if value is None else repr(value)


def _extra_bindings(layout: Layout, snapshot: Snapshot, ends: frozenset[str], words: LayoutWords) -> Iterator[Finding]:
    wanted = frozenset(layout.bindings)
    sources = {exchange.name for exchange in layout.exchanges} - ends
    for binding in sorted(snapshot.bindings - wanted, key=str):
        if binding.source in sources:
            yield Finding(FindingKind.EXTRA_BINDING, str(binding), words.astray)
