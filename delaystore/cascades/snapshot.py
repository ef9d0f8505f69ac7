"""A virtual host at one moment, as the management API shows it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delaystore.transports.rabbitmq.topology.layout import ALTERNATE_EXCHANGE, Binding, DestinationKind, Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeState:
    """An exchange. `policy`: the name of the one policy that applies; None: none does.

    `delayed`: messages that wait in the delayed-message plugin for it. None: it is another kind of exchange.
    """

    name: str
    type: str
    durable: bool
    auto_delete: bool = False
    internal: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    policy: str | None = None
    delayed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """A queue. Its counts may be 10 seconds old: the broker takes them every 5, and gathers them every 5.

    `messages`: ready, prefetched (`unacknowledged`) and dead-lettering together. None: not counted yet.
    `dead_lettering`: expired messages that the next queue has not confirmed, which no AMQP method counts. None: this
    queue waits for no confirms.
    `published`: messages that channels have ever published to it; what was dead-lettered to it is not among them.
    `policy_definition`: of all policies that apply, operator policies included. `state`: running, down, minority, ...
    `delivery_limit`: the one that the broker applies. None: none, or it does not say, as before RabbitMQ 4.
    `publish_rate`, `deliver_rate`: messages a second, lately. None: not counted. `oldest`: the timestamp of the message
    at the head, seconds since 1970. None: it has none, or the broker does not say, as of most quorum queues.
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
    delivery_limit: int | None = None
    publish_rate: float | None = None
    deliver_rate: float | None = None
    oldest: int | None = None

    def given(self, setting: str) -> list[Any]:
        """Values of a setting such as `max-length`: of the policies, and then of the argument `x-max-length`."""
        said = (self.policy_definition.get(setting), self.arguments.get(f"x-{setting}"))
        return [value for value in said if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy. `pattern`: a regular expression. Of several that match, the one with the highest `priority` applies."""

    name: str
    pattern: str
    definition: Mapping[str, Any] = field(hash=False)
    apply_to: str = "all"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Permissions:
    """A user's permissions in a virtual host: for each kind of access, a regular expression that names must match."""

    configure: str
    write: str
    read: str

    def allow(self, access: str, name: str) -> bool:
        """Whether `access` (configure, write or read) to the exchange or queue `name` is granted."""
        pattern = getattr(self, access)
        try:
            return bool(pattern) and re.search(pattern, name) is not None
        except re.error:
            return True  # valid in Erlang, not in Python: the broker itself will refuse if it must


NO_PERMISSIONS: Final = Permissions("", "", "")
"""The permissions of a user who has none in a virtual host."""


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """All exchanges and queues by name, all bindings and policies."""

    exchanges: Mapping[str, ExchangeState] = field(default_factory=dict)
    queues: Mapping[str, QueueState] = field(default_factory=dict)
    bindings: frozenset[Binding] = frozenset()
    policies: tuple[Policy, ...] = ()

    def alternate_exchange(self, name: str) -> str | None:
        """Where the exchange `name` sends what it cannot route, by its argument or else by policy.

        None: nowhere, or there is no such exchange.
        """
        exchange = self.exchanges.get(name)
        if exchange is None:
            return None
        by_policy = next((one.definition for one in self.policies if one.name == exchange.policy), {})
        alternate = exchange.arguments.get(ALTERNATE_EXCHANGE, by_policy.get(ALTERNATE_EXCHANGE))
        return None if alternate is None else str(alternate)

    def routing(self) -> list[Exchange]:
        """The exchanges as parts of a layout, without their alternate exchanges."""
        return [Exchange(one.name, one.type) for one in self.exchanges.values()]

    def queues_behind(self, exchange: str) -> set[str]:
        """The names of all queues that some message of `exchange` may come to. Alternate exchanges are not followed."""
        found: set[str] = set()
        passed: set[str] = set()
        exchanges = {exchange}
        while exchanges:
            passed |= exchanges
            onward = [one for one in self.bindings if one.source in exchanges]
            found |= {one.destination for one in onward if one.kind is DestinationKind.QUEUE}
            exchanges = {one.destination for one in onward if one.kind is DestinationKind.EXCHANGE} - passed
        return found
