"""A drawing of a cascade, as Mermaid text (https://mermaid.js.org/syntax/flowchart.html)."""

from collections.abc import Iterator
from typing import Final

from delaystore.cascades._requirements import DEAD_LETTER_EXCHANGE
from delaystore.cascades.spans import span_text
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import ALTERNATE_EXCHANGE, Binding, DestinationKind, Queue

_ENDS: Final = 2
"""How many levels are drawn at either end. Those between them are one node."""
_MIDDLE: Final = "middle"
_MAX_ZEROS: Final = 3
_DIGITS: Final = frozenset({"0", "1"})


def mermaid(topology: CascadeTopology, *, full: bool = False, undeliverable: str | None = None) -> str:
    """The drawing: levels from the longest to the shortest, the delivery exchange, and what is bound to it.

    Exchanges are round, queues are boxes. A solid line is a binding, with the routing key's digits; a dashed line is
    what happens after a time. `full`: draw all levels, however many. `undeliverable`: the name of the exchange and
    queue to which a policy leads what the delivery exchange cannot route. None: no policy does.
    """
    return "\n".join(_Drawing(topology, full, undeliverable).lines()) + "\n"


class _Drawing:
    def __init__(self, topology: CascadeTopology, full: bool, undeliverable: str | None) -> None:
        self._topology = topology
        self._layout = topology.layout()
        self._undeliverable = undeliverable
        hidden = [] if full else range(_ENDS, topology.levels - _ENDS)
        self._hidden = range(0) if len(hidden) < 2 else hidden  # leaving one level out saves no room
        self._levels = {topology.level(number): number for number in range(topology.levels)}
        self._queues = {queue.name: queue for queue in self._layout.queues}
        self._exchange_levels = self._find_exchange_levels()
        self._ids: dict[tuple[DestinationKind, str], str] = {}

    def lines(self) -> Iterator[str]:
        edges = list(dict.fromkeys(self._edges()))  # levels left out have equal edges
        yield "flowchart TD"
        yield from self._nodes()
        yield from (f"    {edge}" for edge in edges)

    def _find_exchange_levels(self) -> dict[str, int]:
        """The level of each exchange: its own name's, or that of the queue that leads to it."""
        exchanges = {exchange.name for exchange in self._layout.exchanges}
        behind = {self._queues[name].arguments[DEAD_LETTER_EXCHANGE]: level for name, level in self._levels.items()}
        own = {name: level for name, level in self._levels.items() if name in exchanges}
        return own or {name: level for name, level in behind.items() if name != self._topology.delivery}

    def _nodes(self) -> Iterator[str]:
        outside = [one.name for one in self._layout.exchanges if one.name not in self._exchange_levels]
        delivery = self._topology.delivery
        yield from (self._exchange(name) for name in outside if name not in (delivery, self._topology.undeliverable))
        for level in reversed(range(self._topology.levels)):
            yield from self._level_nodes(level)
        yield from (self._exchange(name) for name in outside if name == delivery)
        yield from (self._queue(queue) for queue in self._layout.queues if queue.name == delivery)
        if self._has_destinations():
            yield '    destination["destination<br/>queue or exchange"]'
        yield from self._undeliverable_nodes()

    def _level_nodes(self, level: int) -> Iterator[str]:
        if level not in self._hidden:
            yield from (self._exchange(name) for name, at in self._exchange_levels.items() if at == level)
            yield self._queue(self._queues[self._topology.level(level)])
        elif level == self._hidden[-1]:
            yield f'    {_MIDDLE}["… levels {level} to {self._hidden[0]} …"]'

    def _undeliverable_nodes(self) -> Iterator[str]:
        name = self._undeliverable or self._topology.undeliverable
        if name is not None:
            yield self._exchange(name)
            yield self._queue(Queue(name))

    def _edges(self) -> Iterator[str]:
        for binding in sorted(self._layout.bindings, key=self._depth):
            yield from self._edge(binding)
        for queue in sorted(self._levels, key=lambda name: -self._levels[name]):
            yield from self._expiry(self._queues[queue])
        yield from self._end()

    def _depth(self, binding: Binding) -> int:
        return -self._exchange_levels.get(binding.source, self._topology.levels)

    def _edge(self, binding: Binding) -> Iterator[str]:
        source = self._id(DestinationKind.EXCHANGE, binding.source)
        target = self._id(binding.kind, binding.destination)
        if source == target:
            return
        label = _digits(binding.routing_key)
        shown = label and _MIDDLE not in (source, target)
        yield f'{source} -- "{label}" --> {target}' if shown else f"{source} --> {target}"

    def _expiry(self, queue: Queue) -> Iterator[str]:
        source = self._id(DestinationKind.QUEUE, queue.name)
        target = self._id(DestinationKind.EXCHANGE, queue.arguments[DEAD_LETTER_EXCHANGE])
        if source == target:
            return
        span = span_text(queue.ttl or 0)
        yield f"{source} -.-> {target}" if source == _MIDDLE else f'{source} -. "after {span}" .-> {target}'

    def _end(self) -> Iterator[str]:
        if not self._has_destinations():
            return
        delivery = self._id(DestinationKind.EXCHANGE, self._topology.delivery)
        yield f'{delivery} -- "address" --> destination'
        arguments = next(one.arguments for one in self._layout.exchanges if one.name == self._topology.delivery)
        alternate = self._undeliverable or arguments.get(ALTERNATE_EXCHANGE)
        if alternate is not None:
            yield f'{delivery} -. "no destination bound" .-> {self._id(DestinationKind.EXCHANGE, alternate)}'
        if self._undeliverable is not None:
            queue = self._id(DestinationKind.QUEUE, self._undeliverable)
            yield f"{self._id(DestinationKind.EXCHANGE, self._undeliverable)} --> {queue}"

    def _has_destinations(self) -> bool:
        return any(one.name == self._topology.delivery for one in self._layout.exchanges)

    def _exchange(self, name: str) -> str:
        return f'    {self._id(DestinationKind.EXCHANGE, name)}(["{_escaped(name)}"])'

    def _queue(self, queue: Queue) -> str:
        waits = f"<br/>{span_text(queue.ttl)}" if queue.ttl is not None else ""
        return f'    {self._id(DestinationKind.QUEUE, queue.name)}["{_escaped(queue.name)}{waits}"]'

    def _id(self, kind: DestinationKind, name: str) -> str:
        letter, levels = ("q", self._levels) if kind is DestinationKind.QUEUE else ("x", self._exchange_levels)
        level = levels.get(name)
        if level is None:
            return self._ids.setdefault((kind, name), f"{letter}End{len(self._ids) + 1}")
        return _MIDDLE if level in self._hidden else f"{letter}{level}"


def _digits(pattern: str) -> str:
    """The digits that a binding matches. Many zeros are shown as their number."""
    digits = [word for word in pattern.split(".") if word in _DIGITS]
    zeros = digits.count("0")
    if zeros <= _MAX_ZEROS:
        return " ".join(digits)
    return " ".join([f"{zeros} x 0", *digits[zeros:]])  # they come first, in every layout


def _escaped(text: str) -> str:
    """`text` for a label in double quotes; Mermaid takes entities with # in place of &."""
    return "".join(one if one.isalnum() or one in " .-_/:…" else f"#{ord(one)};" for one in text)
