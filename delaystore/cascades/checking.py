"""Requirements of a layout: the broker's version and feature flags, and the user's permissions. Pure."""

import re
import shlex
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from uuid import uuid4

from pika import exceptions

from delaystore.cascades.findings import (
    CASCADE,
    Finding,
    FindingKind,
    LayoutWords,
    differences,
    missing_finding,
    missing_parts,
)
from delaystore.cascades.management import BrokerClient, Management
from delaystore.cascades.snapshot import BrokerSnapshot, Permissions
from delaystore.text import named
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

DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
_NAMES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class _Need:
    """Requirements of a queue with `argument` of that `value`."""

    argument: str
    value: str
    what: str
    since: tuple[int, int] = (0, 0)
    flag: str | None = None


_NEEDS: Final = (
    _Need("x-queue-type", "quorum", "quorum queues", (3, 8), flag="quorum_queue"),
    _Need("x-dead-letter-strategy", "at-least-once", "at-least-once dead-lettering", (3, 10), flag="stream_queue"),
)
"""https://www.rabbitmq.com/docs/quorum-queues#activating-at-least-once-dead-lettering: without stream_queue the
broker falls back to at-most-once. A feature flag that a newer broker no longer lists is always enabled there."""


@dataclass(frozen=True, slots=True, order=True)
class BrokerPermission:
    """A permission that is required: `access` (configure, write or read) to the exchange or queue `name`."""

    access: str
    name: str


def check_broker(
    version: str, flags: Mapping[str, bool] | None, layout: Layout, noun: str = "cascade"
) -> list[Finding]:
    """Requirements of `layout`, called `noun`, that a broker of that version with those flags (None: unknown) lacks."""
    return [
        finding
        for need in _NEEDS
        if _applies(need, layout.queues)
        for finding in _check_need(need, version, flags, noun)
    ]


def check_default_type(default: str | None, virtual_host: str, layout: Layout) -> list[Finding]:
    """Whether queues that are declared without a type, as NServiceBus' first layout has them, would be classic.

    `default`: the virtual host's default queue type. None: it has none.
    """
    untyped = [queue for queue in layout.queues if "x-queue-type" not in queue.arguments]
    if not untyped or default in (None, "undefined", "classic"):
        return []
    command = shlex.join(["rabbitmqctl", "update_vhost_metadata", virtual_host, "--default-queue-type", "classic"])
    text = (
        f"is {default}, and {untyped[0]} is declared without a type, by NServiceBus as well: it has to be a classic "
        f"queue; run {command}, or choose another cascade"
    )
    return [Finding(FindingKind.DEFAULT_QUEUE_TYPE, f"default queue type of virtual host {virtual_host!r}", text)]


def flags_needed(layout: Layout) -> list[str]:
    """The feature flags that `layout` depends on."""
    return [need.flag for need in _NEEDS if need.flag is not None and _applies(need, layout.queues)]


def check_permissions(permissions: Permissions, layout: Layout) -> list[Finding]:
    """Permissions that the user lacks to declare `layout`: a finding for each kind of access."""
    names: dict[str, list[str]] = {}
    for need in accesses(layout):
        if not permissions.allow(need.access, need.name):
            names.setdefault(need.access, []).append(need.name)
    return [
        Finding(
            FindingKind.PERMISSION,
            f"permission {access}",
            f"not granted to this user for {named(list(map(repr, denied)), _NAMES_SHOWN)}; grant it with rabbitmqctl "
            "set_permissions",
        )
        for access, denied in names.items()
    ]


def accesses(layout: Layout) -> list[BrokerPermission]:
    """The permissions that declaring `layout` requires (https://www.rabbitmq.com/docs/access-control#authorisation)."""
    return list(dict.fromkeys(_accesses(layout)))


def _accesses(layout: Layout) -> Iterator[BrokerPermission]:
    for exchange in layout.exchanges:
        yield BrokerPermission("configure", exchange.name)
        if ALTERNATE_EXCHANGE in exchange.arguments:
            yield BrokerPermission("read", exchange.name)
            yield BrokerPermission("write", exchange.arguments[ALTERNATE_EXCHANGE])
    for queue in layout.queues:
        yield BrokerPermission("configure", queue.name)
        if DEAD_LETTER_EXCHANGE in queue.arguments:
            yield BrokerPermission("read", queue.name)
            yield BrokerPermission("write", queue.arguments[DEAD_LETTER_EXCHANGE])
    for binding in layout.bindings:
        yield BrokerPermission("read", binding.source)
        yield BrokerPermission("write", binding.destination)


def _applies(need: _Need, queues: Iterable[Queue]) -> bool:
    return any(queue.arguments.get(need.argument) == need.value for queue in queues)


def _check_need(need: _Need, version: str, flags: Mapping[str, bool] | None, noun: str) -> Iterator[Finding]:
    release = _release(version)
    if release < need.since:
        yield Finding(
            FindingKind.VERSION,
            f"RabbitMQ {version}",
            f"too old for {need.what}, which this {noun} needs; upgrade to {_dotted(need.since)} or newer",
        )
    elif need.flag is not None and flags is not None and not flags.get(need.flag, True):
        yield Finding(
            FindingKind.FEATURE_FLAG,
            f"feature flag {need.flag}",
            f"disabled, and {need.what} depends on it; run rabbitmqctl enable_feature_flag {need.flag}",
        )


def _release(version: str) -> tuple[int, int]:
    """Major and minor. An unreadable version counts as the newest."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (9999, 0)


def _dotted(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"


_ACCESS_REFUSED: Final = 403
_PRECONDITION_FAILED: Final = 406
_IMPOSSIBLE_TTL: Final = "none"
_INEQUIVALENT: Final = re.compile(r"inequivalent arg '(?P<argument>[^']*)'.*?: (?P<difference>received .*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LayoutCheck:
    """The result of `check_layout`.

    Attributes:
        version: The broker's version.
        snapshot: The virtual host; None: there is no management API.
        missing: The parts that do not exist, in the order to declare them in; bindings only where there is a snapshot.
        findings: The defects that were found.
        unchecked: Facts that could not be found out, a sentence each.

    """

    version: str
    snapshot: BrokerSnapshot | None
    missing: tuple[Part, ...]
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]

    def with_findings(self, findings: Iterable[Finding]) -> "LayoutCheck":
        """Return a copy with other findings.

        Args:
            findings: The findings of the copy.

        Returns:
            The copy.

        """
        return replace(self, findings=tuple(findings))


def check_layout(
    broker: BrokerClient, layout: Layout, *, ends: Collection[str], declaring: bool, words: LayoutWords = CASCADE
) -> LayoutCheck:
    """Check whether the broker supports a layout, and which parts are missing. Changes nothing.

    Args:
        broker: The virtual host.
        layout: The layout.
        ends: Exchanges to which other programs may bind any queue or exchange.
        declaring: Also check whether the user could declare it.
        words: The words of the findings.

    Returns:
        The result; without a management API, as far as AMQP tells it.

    Raises:
        TransportUnavailableError, TransportError: The broker does not answer.

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


def _refusal(connections: BlockingConnections, attempt: Callable[[Any], object]) -> Any:
    """The error with which the broker closed the channel. None: it did not."""
    try:
        with connections.channel() as channel, quiet_pika():
            attempt(channel)
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
