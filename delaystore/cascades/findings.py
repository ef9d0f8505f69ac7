"""Findings about a layout on a broker, as values and in words; found by comparing a snapshot with it. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from delaystore.cascades.snapshot import BrokerSnapshot, ExchangeState, QueueState
from delaystore.transports.rabbitmq.topology.layout import Exchange, Layout, Part, Queue


class FindingKind(StrEnum):
    """Kinds of findings.

    VERSION: the broker is too old, or too new, for this layout. FEATURE_FLAG: one that the layout needs is disabled.
    DEFAULT_QUEUE_TYPE: the virtual host's would make the layout's queues another kind.
    PERMISSION: the user lacks a right that the layout needs. MISSING: an exchange, queue or binding does not exist.
    INEQUIVALENT: it exists with another type or argument, so that declaring it would fail. EXTRA_BINDING: a binding
    leads messages where the layout does not. UNDELIVERABLE: an expired message without a destination would be lost,
    or would hold others up. COLLISION: a destination gets messages for another, or gets its own twice.
    DELIVERY_LIMIT: a message that is read and given back too often would be sent on early, or dropped.
    POLICY: one harms a queue.
    """

    VERSION = "version"
    FEATURE_FLAG = "feature-flag"
    DEFAULT_QUEUE_TYPE = "default-queue-type"
    PERMISSION = "permission"
    MISSING = "missing"
    INEQUIVALENT = "inequivalent"
    EXTRA_BINDING = "extra-binding"
    UNDELIVERABLE = "undeliverable"
    COLLISION = "collision"
    DELIVERY_LIMIT = "delivery-limit"
    POLICY = "policy"


BLOCKING: Final = frozenset(
    {
        FindingKind.VERSION,
        FindingKind.FEATURE_FLAG,
        FindingKind.DEFAULT_QUEUE_TYPE,
        FindingKind.PERMISSION,
        FindingKind.INEQUIVALENT,
    }
)
"""Kinds that must be settled before a layout can be declared."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: The kind of problem.
        subject: The part of the topology that the finding is about, in words.
        text: The fault and the remedy.
        argument: The name of the argument that differs; None: it is no inequivalent exchange or queue.
        expected: The value that the argument should have; None: it should be absent.
        actual: The value that it has; None: it is absent.

    """

    kind: FindingKind
    subject: str
    text: str
    argument: str | None = None
    expected: Any = None
    actual: Any = None

    @property
    def blocks(self) -> bool:
        """Whether the layout cannot be declared before this is settled."""
        return self.kind in BLOCKING

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutWords:
    """The words that texts for people have for a layout.

    Attributes:
        layout: A noun.
        create: The command that creates it.
        verify: The command that verifies it.
        another: What to do about an inequivalent part.
        astray: The fault of an extra binding, and the remedy.
        by_management: What AMQP does not tell of it, a sentence each.
        emptying: What to do before it can be deleted.

    """

    layout: str
    create: str
    verify: str
    another: str
    astray: str
    by_management: tuple[str, ...]
    emptying: str


CASCADE: Final = LayoutWords(
    layout="cascade",
    create="delaystore cascade create",
    verify="delaystore cascade verify",
    another="its creator wants another layout: choose that cascade, or delete this one and create it again",
    astray="is not part of the cascade, and leads messages astray; unbind it",
    by_management=(
        "which bindings are missing or too many: only the management API lists them",
        "whether destinations get messages for others: only the management API lists their bindings",
    ),
    emptying="let them arrive",
)
_QUEUE_TYPE: Final = "x-queue-type"


def differences(
    layout: Layout, snapshot: BrokerSnapshot, ends: Iterable[str] = (), words: LayoutWords = CASCADE
) -> list[Finding]:
    """Find missing, inequivalent and extra parts. `ends`: exchanges to which others may bind any queue."""
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


def missing_parts(layout: Layout, snapshot: BrokerSnapshot) -> list[Part]:
    """Find the parts of a layout that a virtual host lacks.

    Args:
        layout: The layout.
        snapshot: The virtual host.

    Returns:
        The parts, in the order in which they can be declared.

    """
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


def _extra_bindings(
    layout: Layout, snapshot: BrokerSnapshot, ends: frozenset[str], words: LayoutWords
) -> Iterator[Finding]:
    wanted = frozenset(layout.bindings)
    sources = {exchange.name for exchange in layout.exchanges} - ends
    for binding in sorted(snapshot.bindings - wanted, key=str):
        if binding.source in sources:
            yield Finding(FindingKind.EXTRA_BINDING, str(binding), words.astray)
