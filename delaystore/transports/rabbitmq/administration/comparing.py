"""A layout compared with what a broker holds. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delaystore.transports.rabbitmq.administration.declaring import Part, named
from delaystore.transports.rabbitmq.administration.findings import Finding, FindingKind
from delaystore.transports.rabbitmq.held import ExchangeState, Policy, QueueState
from delaystore.transports.rabbitmq.topology.layout import Binding, Exchange, Layout, Queue

_QUEUE_TYPE: Final = "x-queue-type"


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a virtual host holds."""

    exchanges: Mapping[str, ExchangeState] = field(default_factory=dict)
    queues: Mapping[str, QueueState] = field(default_factory=dict)
    bindings: frozenset[Binding] = frozenset()
    policies: tuple[Policy, ...] = ()


def compare(layout: Layout, holdings: Holdings, ends: Iterable[str] = ()) -> list[Finding]:
    """What is missing, inequivalent or too much. `ends`: exchanges whose further bindings are the destinations'."""
    return [
        *(missing(part) for part in missing_parts(layout, holdings)),
        *(
            finding
            for exchange in layout.exchanges
            if exchange.name in holdings.exchanges
            for finding in _compare_exchange(exchange, holdings.exchanges[exchange.name])
        ),
        *(
            finding
            for queue in layout.queues
            if queue.name in holdings.queues
            for finding in _compare_queue(queue, holdings.queues[queue.name])
        ),
        *_extra_bindings(layout, holdings, frozenset(ends)),
    ]


def missing_parts(layout: Layout, holdings: Holdings) -> list[Part]:
    """What `holdings` lack of `layout`, in the order in which it can be declared."""
    return [
        *(exchange for exchange in layout.exchanges if exchange.name not in holdings.exchanges),
        *(queue for queue in layout.queues if queue.name not in holdings.queues),
        *(binding for binding in layout.bindings if binding not in holdings.bindings),
    ]


def missing(part: Part) -> Finding:
    """The finding for what is not there."""
    return Finding(FindingKind.MISSING, named(part), "is missing; run delaystore delays create")


def _compare_exchange(expected: Exchange, actual: ExchangeState) -> Iterator[Finding]:
    thing = named(expected)
    pairs = {
        "type": (expected.type, actual.type),
        "durable": (True, actual.durable),
        "auto_delete": (False, actual.auto_delete),
        "internal": (False, actual.internal),
    }
    yield from _differences(thing, pairs)
    yield from _differences(thing, _paired(expected.arguments, actual.arguments))


def _compare_queue(expected: Queue, actual: QueueState) -> Iterator[Finding]:
    thing = named(expected)
    pairs = {
        _QUEUE_TYPE: (expected.type, actual.type),
        "durable": (True, actual.durable),
        "auto_delete": (False, actual.auto_delete),
        "exclusive": (False, actual.exclusive),
    }
    yield from _differences(thing, pairs)
    arguments = _paired(expected.arguments, actual.arguments)
    arguments.pop(_QUEUE_TYPE, None)  # compared above: a queue of the default type may not spell it out
    yield from _differences(thing, arguments)


def _paired(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (expected.get(name), actual.get(name)) for name in {**expected, **actual}}


def _differences(thing: str, pairs: Mapping[str, tuple[Any, Any]]) -> Iterator[Finding]:
    for argument, (expected, actual) in pairs.items():
        if expected != actual:
            text = (
                f"{argument} is {_shown(actual)} and should be {_shown(expected)}; whoever made it wants another "
                "layout: choose that cascade, or delete this and create it anew"
            )
            yield Finding(FindingKind.INEQUIVALENT, thing, text, argument, expected, actual)


def _shown(value: Any) -> str:
    return "absent" if value is None else repr(value)


def _extra_bindings(layout: Layout, holdings: Holdings, ends: frozenset[str]) -> Iterator[Finding]:
    wanted = frozenset(layout.bindings)
    sources = {exchange.name for exchange in layout.exchanges} - ends
    for binding in sorted(holdings.bindings - wanted, key=named):
        if binding.source in sources:
            text = "is no part of the cascade, and leads messages astray; unbind it"
            yield Finding(FindingKind.EXTRA_BINDING, named(binding), text)
