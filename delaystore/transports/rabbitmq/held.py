"""What a broker says it holds, as data."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeState:
    """An exchange as the management API shows it. `policy`: the name of the one policy that applies, if any does."""

    name: str
    type: str
    durable: bool
    auto_delete: bool = False
    internal: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """A queue as the management API shows it.

    `messages`: ready, unacknowledged, and those that are being dead-lettered, which no AMQP method counts; the broker
    takes and gathers the figures every 5 seconds, so they may be 10 seconds old. None: it has not counted yet.
    `dead_lettering`: expired messages that the next queue has not confirmed; None: this queue waits for no confirms.
    `published`: how many channels have published to it, ever; what was dead-lettered to it is not among them.
    `policy_definition`: of all policies that apply, operators' included. `state`: as in running, down, minority.
    """

    name: str
    type: str
    durable: bool
    auto_delete: bool = False
    exclusive: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    policy: str | None = None
    messages: int | None = None
    ready: int | None = None
    unacknowledged: int | None = None
    dead_lettering: int | None = None
    published: int = 0
    consumers: int | None = None
    message_bytes: int | None = None
    ready_bytes: int | None = None
    policy_definition: Mapping[str, Any] = field(default_factory=dict, hash=False)
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy. `pattern`: a regular expression; of several that match, the one with the highest `priority` applies."""

    name: str
    pattern: str
    definition: Mapping[str, Any] = field(hash=False)
    apply_to: str = "all"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a user may do in a virtual host: a regular expression over names for each kind of access."""

    configure: str
    write: str
    read: str

    def allow(self, access: str, name: str) -> bool:
        """Whether `access` (configure, write or read) to the exchange or queue `name` is granted."""
        pattern = getattr(self, access)
        try:
            return bool(pattern) and re.search(pattern, name) is not None
        except re.error:
            return True  # Erlang's dialect, not ours; the broker itself will say no if it must


NO_PERMISSIONS = Permissions("", "", "")
"""Of a user who has none in a virtual host."""
