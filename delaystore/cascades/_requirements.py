"""What a layout requires: the broker's version and feature flags, and the user's permissions. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from delaystore.cascades._findings import Finding, FindingKind
from delaystore.cascades._snapshot import Permissions
from delaystore.transports.rabbitmq.topology.layout import ALTERNATE_EXCHANGE, Layout, Queue

DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
_NAMES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class _Need:
    """What a queue with `argument` of that `value` requires of the broker."""

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
class Access:
    """A permission that is required: `access` (configure, write or read) to the exchange or queue `name`."""

    access: str
    name: str


def check_broker(
    version: str, flags: Mapping[str, bool] | None, layout: Layout, noun: str = "cascade"
) -> list[Finding]:
    """What a broker of that version, with those feature flags (None: unknown), lacks for `layout`, called `noun`."""
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
    """What the user lacks to declare `layout`: a finding for each kind of access."""
    names: dict[str, list[str]] = {}
    for need in accesses(layout):
        if not permissions.allow(need.access, need.name):
            names.setdefault(need.access, []).append(need.name)
    return [
        Finding(
            FindingKind.PERMISSION,
            f"permission {access}",
            f"not granted to this user for {_listed(denied)}; grant it with rabbitmqctl set_permissions",
        )
        for access, denied in names.items()
    ]


def accesses(layout: Layout) -> list[Access]:
    """The permissions that declaring `layout` requires (https://www.rabbitmq.com/docs/access-control#authorisation)."""
    return list(dict.fromkeys(_accesses(layout)))


def _accesses(layout: Layout) -> Iterator[Access]:
    for exchange in layout.exchanges:
        yield Access("configure", exchange.name)
        if ALTERNATE_EXCHANGE in exchange.arguments:
            yield Access("read", exchange.name)
            yield Access("write", exchange.arguments[ALTERNATE_EXCHANGE])
    for queue in layout.queues:
        yield Access("configure", queue.name)
        if DEAD_LETTER_EXCHANGE in queue.arguments:
            yield Access("read", queue.name)
            yield Access("write", queue.arguments[DEAD_LETTER_EXCHANGE])
    for binding in layout.bindings:
        yield Access("read", binding.source)
        yield Access("write", binding.destination)


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


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
