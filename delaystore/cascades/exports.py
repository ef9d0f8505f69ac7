"""A cascade and its destinations, written for other tools: definitions, Terraform and Mermaid."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from delaystore.cascades.checking import DEAD_LETTER_EXCHANGE
from delaystore.cascades.snapshot import Policy
from delaystore.errors import ConfigurationError
from delaystore.text import duration_text
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import (
    ALTERNATE_EXCHANGE,
    Binding,
    DestinationKind,
    Exchange,
    Layout,
    Queue,
)


def definitions(layout: Layout, vhost: str = "/", policies: Iterable[Policy] = ()) -> dict[str, Any]:
    """The document, ready for JSON: the parts of `layout` and `policies`, and nothing else.

    The virtual host must exist: an entry for it would create it without any user's permissions, and could reset the
    description and default queue type of one that exists.
    """
    return {
        "exchanges": [
            {
                "name": exchange.name,
                "vhost": vhost,
                "type": exchange.type,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": dict(exchange.arguments),
            }
            for exchange in layout.exchanges
        ],
        "queues": [
            {
                "name": queue.name,
                "vhost": vhost,
                "durable": True,
                "auto_delete": False,
                "arguments": dict(queue.arguments),
            }
            for queue in layout.queues
        ],
        "bindings": [
            {
                "source": binding.source,
                "vhost": vhost,
                "destination": binding.destination,
                "destination_type": str(binding.kind),
                "routing_key": binding.routing_key,
                "arguments": {},
            }
            for binding in layout.bindings
        ],
        "policies": [
            {
                "name": policy.name,
                "vhost": vhost,
                "pattern": policy.pattern,
                "apply-to": policy.apply_to,
                "definition": dict(policy.definition),
                "priority": policy.priority,
            }
            for policy in policies
        ],
    }


_ENDS: Final = 2
"""How many levels are drawn at either end. Those between them are one node."""
_MIDDLE: Final = "middle"
_MAX_ZEROS: Final = 3
_DIGITS: Final = frozenset({"0", "1"})


def mermaid(topology: CascadeTopology, *, full: bool = False, undeliverable: str | None = None) -> str:
    """The drawing: levels from the longest to the shortest, the delivery exchange, and the queues bound to it.

    Exchanges are round, queues are boxes. A solid line is a binding, with the routing key's digits; a dashed line is
    the way after a time. `full`: draw all levels, however many. `undeliverable`: the name of the exchange and queue
    to which a policy leads messages that the delivery exchange cannot route. None: no policy does.
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
        """The level of each exchange: its own name's, or the level of the queue that leads to it."""
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
        span = _span_text(queue.ttl or 0)
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
        waits = f"<br/>{_span_text(queue.ttl)}" if queue.ttl is not None else ""
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


_SOURCE: Final = "cyrilgdn/rabbitmq"
_VERSION: Final = ">= 1.6"
_KEPT: Final = {"lifecycle": {"prevent_destroy": True}}
"""A plan that would delete or replace the resource fails: messages wait in queues, and need the exchanges."""
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that the name of a resource cannot have."""
_TEMPLATE: Final = re.compile(r"[$%](?=\{)")
"""Where a template begins for Terraform. Doubled, the sign is plain text."""


def terraform(layout: Layout, vhost: str = "/", policies: Iterable[Policy] = ()) -> dict[str, Any]:
    """The document, for a file `*.tf.json` in a module of its own. The provider's login is left to the module's user.

    Bindings and policies refer to the resources that they need, so that Terraform creates and deletes in an order
    that the broker accepts. Raises ConfigurationError for names that the provider cannot manage: it splits a
    resource's id at `@`, and a binding's id at `/`. Terraform refuses to delete the exchanges and queues.
    """
    policies = tuple(policies)
    _check(layout, vhost, policies)
    exchanges = _labels(exchange.name for exchange in layout.exchanges)
    queues = _labels(queue.name for queue in layout.queues)
    names = _labels(map(_binding_name, layout.bindings))
    own = {
        DestinationKind.EXCHANGE: {name: f"rabbitmq_exchange.{label}" for name, label in exchanges.items()},
        DestinationKind.QUEUE: {name: f"rabbitmq_queue.{label}" for name, label in queues.items()},
    }
    resources: dict[str, dict[str, Any]] = {
        "rabbitmq_exchange": {exchanges[one.name]: _exchange(one, vhost) for one in layout.exchanges},
        "rabbitmq_queue": {queues[one.name]: _queue(one, vhost) for one in layout.queues},
        "rabbitmq_binding": {names[_binding_name(one)]: _binding(one, vhost, own) for one in layout.bindings},
        "rabbitmq_policy": {
            label: _policy(policy, vhost, own[DestinationKind.EXCHANGE])
            for policy, label in zip(policies, _labels(one.name for one in policies).values(), strict=True)
        },
    }
    return {
        "//": "A delay cascade of RabbitMQ, written by `delaystore cascade export`.",
        "terraform": {"required_providers": {"rabbitmq": {"source": _SOURCE, "version": _VERSION}}},
        "resource": {kind: entries for kind, entries in resources.items() if entries},
    }


def _exchange(exchange: Exchange, vhost: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"type": exchange.type, "durable": True, "auto_delete": False}
    if exchange.arguments:
        settings["arguments"] = _literals(exchange.arguments)  # a map of strings; alternate-exchange is one
    return {"name": _literal(exchange.name), "vhost": _literal(vhost), "settings": settings, **_KEPT}


def _queue(queue: Queue, vhost: str) -> dict[str, Any]:
    # RabbitMQ 4 adds the type where it is missing, and the next plan would replace a queue that differs
    arguments = {"x-queue-type": queue.type, **queue.arguments}
    # `arguments` would send numbers as strings, which are different arguments to the broker
    settings = {"durable": True, "auto_delete": False, "arguments_json": _literal(json.dumps(arguments))}
    return {"name": _literal(queue.name), "vhost": _literal(vhost), "settings": settings, **_KEPT}


def _binding(binding: Binding, vhost: str, own: Mapping[DestinationKind, Mapping[str, str]]) -> dict[str, Any]:
    return {
        "source": _reference(binding.source, own[DestinationKind.EXCHANGE]),
        "vhost": _literal(vhost),
        "destination": _reference(binding.destination, own[binding.kind]),
        "destination_type": str(binding.kind),
        "routing_key": _literal(binding.routing_key),
    }


def _policy(policy: Policy, vhost: str, exchanges: Mapping[str, str]) -> dict[str, Any]:
    settings = {
        "pattern": _literal(policy.pattern),
        "priority": policy.priority,
        "apply_to": policy.apply_to,
        "definition": _literals(policy.definition),
    }
    needed = [exchanges[name] for name in policy.definition.values() if name in exchanges]
    order = {"depends_on": needed} if needed else {}
    return {"name": _literal(policy.name), "vhost": _literal(vhost), "policy": settings, **order}


def _reference(name: str, own: Mapping[str, str]) -> str:
    """`name`; as a reference if it is a resource of this document, so that Terraform creates that first."""
    return f"${{{own[name]}.name}}" if name in own else _literal(name)


def _literal(text: str) -> str:
    return _TEMPLATE.sub(lambda found: found[0] * 2, text)


def _literals(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _literal(value) if isinstance(value, str) else value for key, value in arguments.items()}


def _binding_name(binding: Binding) -> str:
    """A name that no other binding has."""
    return f"{binding.source}_to_{binding.kind}_{binding.destination}_by_{binding.routing_key}"


def _labels(names: Iterable[str]) -> dict[str, str]:
    """A unique resource name for each of `names`, as similar to it as possible."""
    labels: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        label = stem = _label(name)
        number = 1
        while label in taken:
            number += 1
            label = f"{stem}_{number}"
        taken.add(label)
        labels[name] = label
    return labels


def _label(name: str) -> str:
    # the words of a key tell more than its wildcards
    label = _NO_LABEL.sub("_", name.replace("*.", "").replace("#", "any"))
    return label if label and not label[0].isdigit() and label[0] != "-" else f"_{label}"


def _check(layout: Layout, vhost: str, policies: Iterable[Policy]) -> None:
    own = [one.name for one in layout.exchanges] + [one.name for one in layout.queues]
    for name in (vhost, *own, *(policy.name for policy in policies)):
        if "@" in name:
            raise ConfigurationError(f"Terraform's RabbitMQ provider cannot manage {name!r}, for the @ in it")
    for binding in layout.bindings:
        for name in (binding.source, binding.destination):
            if "/" in name:
                raise ConfigurationError(
                    f"Terraform's RabbitMQ provider cannot manage the bindings of {name!r}, for the / in it"
                )


def _span_text(milliseconds: int) -> str:
    return duration_text(timedelta(milliseconds=milliseconds), spaced=True)
