"""Declared topologies: a layout as data, which is created and deleted on a broker, each with checks before the change.

A cascade and an ingress name their parts, and the words in which messages describe them; the steps are the same for
both.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Self, TypeVar

from pika import exceptions

from delaystore.cascades.checking import LayoutCheck, check_layout
from delaystore.cascades.findings import Finding, LayoutWords
from delaystore.cascades.management import BrokerClient
from delaystore.errors import TransportError, TransportSetupError, TransportUnavailableError
from delaystore.text import named
from delaystore.transports.rabbitmq.declaring import declare
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.queues import QueueAvailability, QueueLook, look_at
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Part, Queue

STATISTICS_AGE: Final = 6.0
"""Seconds between two checks. Brokers count every 5 by default: the second check's counts are newer than the first."""
_LEAVING: Final = 2.0
"""Seconds for consumers to leave: a quorum queue counts one for a moment after its program has ended."""
_LOOK_EVERY: Final = 0.1
_TELLING: Final = frozenset({QueueAvailability.THERE, QueueAvailability.MISSING})
_LISTED: Final = 3
"""Names that a sentence repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTopology:
    """A layout to declare on a broker, and the words that messages to people have for it.

    Attributes:
        stages: Layouts that are declared one after the other, each in its own order.
        words: The words of findings and errors.
        ends: Exchanges to which other programs may bind any queue or exchange.
        exchanges_stay: Whether an exchange that exists is not declared again, as its arguments may be its owner's.
        relevant: Which findings of a check matter.

    """

    stages: Sequence[Layout]
    words: LayoutWords
    ends: Collection[str] = ()
    exchanges_stay: bool = False
    relevant: Callable[[Sequence[Finding]], Sequence[Finding]] = tuple

    @property
    def layout(self) -> Layout:
        """Everything it consists of."""
        return sum(self.stages, Layout())

    def check(self, broker: BrokerClient, *, declaring: bool) -> LayoutCheck:
        """Check whether the broker supports it, and find missing and differing parts. Changes nothing.

        Args:
            broker: The virtual host.
            declaring: Also check whether the user could declare it.

        Returns:
            The missing parts, and the findings that matter.

        Raises:
            TransportUnavailableError, TransportError: The broker does not answer.

        """
        found = check_layout(broker, self.layout, ends=self.ends, declaring=declaring, words=self.words)
        return found.with_findings(self.relevant(found.findings))


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """The result of a creation, or of its dry run.

    Attributes:
        broker: Host, port and virtual host.
        version: The broker's version.
        missing: The parts that did not exist before; without a management API, bindings are left out: they are unknown.
        declared: Number of declared parts, including existing ones.
        unchecked: Facts that could not be found out, a sentence each.

    """

    broker: str
    version: str
    missing: Sequence[Part]
    declared: int
    unchecked: Sequence[str] = ()


class TopologyRefusedError(TransportSetupError):
    """Existing parts differ from the wanted ones, or the broker or the user cannot declare them. Nothing was declared.

    Args:
        findings: The reasons; at least one.
        verify: The command that lists them.

    """

    def __init__(self, findings: Sequence[Finding], verify: str) -> None:
        self.findings = tuple(findings)
        self._verify = verify
        more = f" (and {len(findings) - 1} more: {verify} lists them)" if len(findings) > 1 else ""
        super().__init__(f"{findings[0]}{more}; nothing was declared")

    def __reduce__(self) -> tuple[type["TopologyRefusedError"], tuple[Sequence[Finding], str]]:
        return type(self), (self.findings, self._verify)


class CreationPlan:
    """A creation whose checks have passed. `found`: their findings.

    Args:
        broker: The virtual host.
        topology: The parts to declare.

    Raises:
        TopologyRefusedError: A finding blocks the creation.
        TransportUnavailableError, TransportError: The broker does not answer.

    """

    def __init__(self, broker: BrokerClient, topology: DeclaredTopology) -> None:
        self.found: Final = topology.check(broker, declaring=True)
        self._broker = broker
        self._topology = topology
        blocking = [finding for finding in self.found.findings if finding.blocks]
        if blocking:
            raise TopologyRefusedError(blocking, topology.words.verify)

    @property
    def parts(self) -> Sequence[Part]:
        """The parts to declare, in this order."""
        stay = self._topology.exchanges_stay
        parts = [part for stage in self._topology.stages for part in stage.parts]
        return [part for part in parts if not (stay and isinstance(part, Exchange)) or part in self.found.missing]

    def carry_out(
        self, *, dry_run: bool = False, on_declared: Callable[[Part], object] = lambda _part: None
    ) -> Creation:
        """Declare `parts`.

        Args:
            dry_run: Change nothing, and report the parts that would be declared.
            on_declared: Called after each part.

        Returns:
            The result.

        Raises:
            DeclarationError: The broker refuses a part anyway. Its text lists the parts declared before.
            TransportUnavailableError: The connection is lost.

        """
        parts = self.parts
        if not dry_run:
            declare(self._broker.connections, parts, on_declared)
        return Creation(
            broker=self._broker.label,
            version=self.found.version,
            missing=self.found.missing,
            declared=0 if dry_run else len(parts),
            unchecked=self.found.unchecked,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The findings about a declared topology.

    Attributes:
        broker: Host, port and virtual host.
        version: The broker's version.
        findings: The defects that were found.
        unchecked: Facts that could not be found out, a sentence each; `findings` leave it out.

    """

    broker: str
    version: str
    findings: Sequence[Finding]
    unchecked: Sequence[str] = ()

    @classmethod
    def of(
        cls, broker: BrokerClient, found: LayoutCheck, findings: Iterable[Finding] = (), unchecked: Iterable[str] = ()
    ) -> Self:
        """Make a verification of a check.

        Args:
            broker: The virtual host.
            found: The check.
            findings: Further findings.
            unchecked: Further sentences.

        """
        return cls(
            broker=broker.label,
            version=found.version,
            findings=(*found.findings, *findings),
            unchecked=(*found.unchecked, *unchecked),
        )

    @property
    def good(self) -> bool:
        """Whether nothing was found. Unchecked parts may still be wrong."""
        return not self.findings

    @property
    def blocking(self) -> list[Finding]:
        """Findings that keep the topology from being declared."""
        return [finding for finding in self.findings if finding.blocks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Messages and consumers of queues.

    Attributes:
        counts: Messages by queue, of all queues. None: the broker has not counted them yet.
        consumers: Consumers by queue, of queues that have any.
        unknowable: There is no management API, so that nothing will ever be counted.

    """

    counts: Mapping[str, int | None] = field(default_factory=dict)
    consumers: Mapping[str, int] = field(default_factory=dict)
    unknowable: bool = False

    @property
    def messages(self) -> Mapping[str, int]:
        """Messages by queue, of queues that are known to have any."""
        return {name: count for name, count in self.counts.items() if count}

    @property
    def uncounted(self) -> Sequence[str]:
        """Queues whose messages are not counted."""
        return [name for name, count in self.counts.items() if count is None]

    @property
    def certain(self) -> str | None:
        """Why the queues must not be deleted, regardless of other checks. None: another check may find nothing."""
        found = []
        if self.messages:
            found.append(f"{sum(self.messages.values()):,} messages are in {_listed(self.messages)}, and would be lost")
        if self.consumers:
            found.append(f"{sum(self.consumers.values())} consumers take from {_listed(self.consumers)}")
        if not found and self.unknowable and self.uncounted:
            found.append("without the management API (--management URL) it is unknown whether messages are in it")
        return "; ".join(found) or None

    @property
    def obstacle(self) -> str | None:
        """Why the queues must not be deleted without force. None: they are empty, and have no consumers."""
        if self.certain is None and self.uncounted:
            return f"it is not known yet whether messages are in {_listed(self.uncounted)}"
        return self.certain


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionCheck:
    """The parts to delete, and whether they may be deleted.

    Attributes:
        exchanges: The exchanges that exist and would be deleted.
        queues: The queues that exist and would be deleted.
        uses: Who needs these queues.
        upstream: What leads messages into the queues; it is deleted, or unbound, before everything else.
        restoring: What opens the way into the queues again.
        cut_off: Bindings of others that vanish with an exchange.
        kept: Why other parts stay, a sentence each.

    """

    exchanges: Sequence[Exchange] = ()
    queues: Sequence[Queue] = ()
    uses: Uses = Uses()
    upstream: Sequence[Exchange | Binding] = ()
    restoring: Sequence[Part] = ()
    cut_off: Sequence[Binding] = ()
    kept: Sequence[str] = ()

    @property
    def parts(self) -> Sequence[Exchange | Queue]:
        """Everything that would be deleted."""
        return [*self.exchanges, *self.queues]


Check = TypeVar("Check", bound=DeletionCheck)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion(Generic[Check]):
    """The result of a deletion.

    Attributes:
        check: The last check.
        deleted: The parts that were deleted, in that order.
        lost: Messages that were in the queues.

    """

    check: Check
    deleted: Sequence[Exchange | Queue]
    lost: int


class TopologyInUseError(TransportError):
    """A topology that must not be deleted: messages are in it, or may be, or programs consume from it.

    Args:
        uses: Where.
        words: The words of the error.
        note: A remark for the text.

    """

    def __init__(self, uses: Uses, words: LayoutWords, note: str = "") -> None:
        self.uses = uses
        self._words = words
        self._note = note
        text = f"the {words.layout} is not deleted: {uses.obstacle}{note}; {words.emptying}, or pass --force"
        super().__init__(text)

    def __reduce__(self) -> tuple[type["TopologyInUseError"], tuple[Uses, LayoutWords, str]]:
        return type(self), (self.uses, self._words, self._note)


def delete_topology(
    broker: BrokerClient,
    check: Callable[[], Check],
    words: LayoutWords,
    *,
    force: bool = False,
    minds_consumers: bool = True,
    statistics_age: float = STATISTICS_AGE,
    on_deleted: Callable[[Exchange | Queue], object] = lambda _part: None,
) -> Deletion[Check]:
    """Delete the parts that `check` finds. May be run again.

    It checks twice, since the broker's counts are some seconds old. Then it deletes what leads messages into the
    queues, and looks once more: where messages have come meanwhile, it restores the way into the queues. At last it
    deletes the queues, and then the exchanges that they lead to.

    Args:
        broker: The virtual host.
        check: Finds the parts to delete.
        words: The words of errors.
        force: Delete although messages are lost, and consumers lose their queues.
        minds_consumers: Whether consumers keep a queue from being deleted.
        statistics_age: Seconds between the two checks.
        on_deleted: Is called after each part.

    Returns:
        The deleted parts.

    Raises:
        TopologyInUseError: Messages are in the queues, or may be, or programs consume from them, without `force`.
        TransportSetupError: The broker refuses to delete a part. The text says how many were deleted before.
        TransportUnavailableError: The connection is lost.

    """
    found = check()
    if not force:
        if found.uses.certain is not None:
            raise TopologyInUseError(found.uses, words)
        time.sleep(statistics_age if found.queues else 0)
        found = check()
        if found.uses.obstacle is not None:
            raise TopologyInUseError(found.uses, words)
    run = _DeletionRun(broker, on_deleted)
    run.delete(found.upstream)
    if not force:
        uses = uses_of(broker, found.queues, minds_consumers=minds_consumers)
        if uses.obstacle is not None:
            declare(broker.connections, found.restoring)
            raise TopologyInUseError(uses, words, " (just now; what had been deleted is restored)")
    run.delete(found.queues)
    run.delete([one for one in found.exchanges if one not in run.deleted])
    return Deletion(check=found, deleted=tuple(run.deleted), lost=run.lost)


def uses_of(
    broker: BrokerClient,
    queues: Sequence[Queue],
    counted: Mapping[str, int | None] | None = None,
    *,
    minds_consumers: bool = True,
    unknowable: bool = False,
) -> Uses:
    """Find the messages and consumers of queues now.

    Args:
        broker: The virtual host.
        queues: The queues; they exist.
        counted: Messages as the management API counts them, seconds ago. None: only ready messages count.
        minds_consumers: Whether to look for consumers, and to give them a moment to leave.
        unknowable: There is no management API that could count messages; `counted` is empty.

    Returns:
        The messages and consumers.

    Raises:
        TransportSetupError: A queue does not answer.
        TransportUnavailableError: The broker cannot be reached.

    """
    looks = _looks(broker, queues)
    ends = time.monotonic() + _LEAVING
    while minds_consumers and any(look.consumers for look in looks.values()) and time.monotonic() < ends:
        time.sleep(_LOOK_EVERY)
        looks = _looks(broker, queues)
    silent = next((name for name, look in looks.items() if look.availability not in _TELLING), None)
    if silent is not None:
        raise TransportSetupError(f"queue {silent!r} does not answer: {looks[silent].reason}; nothing was deleted")
    counts: Mapping[str, int | None] = dict.fromkeys(looks, 0) if counted is None else counted
    consumers = {name: look.consumers for name, look in looks.items() if look.consumers}
    return Uses(
        counts={name: _most(look.ready, counts.get(name)) for name, look in looks.items()},
        consumers=consumers if minds_consumers else {},
        unknowable=unknowable,
    )


def _looks(broker: BrokerClient, queues: Sequence[Queue]) -> dict[str, QueueLook]:
    return {queue.name: look_at(broker.connections, queue.name) for queue in queues}


def _most(ready: int, counted: int | None) -> int | None:
    """How many messages are known to be in a queue. None: not known, since none is ready and none is counted."""
    return (ready or None) if counted is None else max(ready, counted)


class _DeletionRun:
    """One deletion, and the parts that it has deleted so far."""

    def __init__(self, broker: BrokerClient, on_deleted: Callable[[Exchange | Queue], object]) -> None:
        self.deleted: list[Exchange | Queue] = []
        self.lost = 0
        self._connections = broker.connections
        self._on_deleted = on_deleted

    def delete(self, parts: Iterable[Part]) -> None:
        """Delete each in this order, and unbind bindings; a part that is gone already is no error."""
        for part in parts:
            with self._channel_for(part) as channel:
                if isinstance(part, Binding):
                    unbind = channel.queue_unbind if part.kind is DestinationKind.QUEUE else channel.exchange_unbind
                    unbind(part.destination, part.source, part.routing_key, dict(part.arguments))
                    continue
                if isinstance(part, Queue):
                    self.lost += channel.queue_delete(part.name).method.message_count
                else:
                    channel.exchange_delete(part.name)
            self.deleted.append(part)
            self._on_deleted(part)

    @contextmanager
    def _channel_for(self, part: Part) -> Iterator[Any]:
        try:
            with self._connections.channel() as channel, quiet_pika():
                yield channel
        except TransportUnavailableError as error:
            raise TransportUnavailableError(f"{error}; {self._until_then()}") from None
        except exceptions.ChannelClosedByBroker as error:
            raise TransportSetupError(f"{part} cannot be deleted: {reason_of(error)}; {self._until_then()}") from None

    def _until_then(self) -> str:
        if not self.deleted:
            return "nothing had been deleted until then"
        return f"deleted until then: {len(self.deleted)} exchanges and queues; run it again to delete the rest"


def _listed(names: Iterable[str]) -> str:
    return named(list(map(repr, names)), _LISTED)
