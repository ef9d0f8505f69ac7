"""A virtual host at one moment, as the management API shows it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delaystore.transports.rabbitmq.topology.layout import ALTERNATE_EXCHANGE, Binding, DestinationKind, Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeState:
    """An exchange.

    Attributes:
        name: Its name.
        type: Its type, such as topic.
        durable: Whether it outlives a restart of the broker.
        auto_delete: Whether it is deleted with its last binding.
        internal: Whether clients may not publish to it.
        arguments: Its arguments.
        policy: The name of the one policy that applies; None: none does.
        delayed: Messages that wait in the delayed-message plugin for it; None: it is another kind of exchange.

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

    Attributes:
        name: Its name.
        type: Its type, such as quorum.
        durable: Whether it outlives a restart of the broker.
        auto_delete: Whether it is deleted with its last consumer.
        exclusive: Whether it belongs to one connection.
        arguments: Its arguments.
        policy: The name of the one policy that applies; None: none does.
        messages: Ready, unacknowledged and dead-lettering messages together; None: not counted yet.
        ready: Messages that no consumer has got; None: not counted yet.
        unacknowledged: Prefetched messages; None: not counted yet.
        dead_lettering: Expired messages that the next queue has not confirmed, which no AMQP method counts; None: this
            queue waits for no confirms.
        published: Messages that channels have ever published to it; messages that were dead-lettered to it are not
            among them.
        consumers: Its consumers; None: not counted yet.
        message_bytes: The bodies of `messages`, in bytes; None: not counted yet.
        ready_bytes: The bodies of `ready`, in bytes; None: not counted yet.
        policy_definition: Of all policies that apply, operator policies included.
        state: Running, down, minority and the like; None: unknown.
        delivery_limit: The limit that the broker applies; None: none, or it does not say, as before RabbitMQ 4.
        publish_rate: Messages published a second, lately; None: not counted.
        deliver_rate: Messages delivered a second, lately; None: not counted.
        oldest: The timestamp of the message at the head, seconds since 1970; None: it has none, or the broker does not
            say, as of most quorum queues.

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
        """Values of a setting: of the policies, and then of the queue's argument.

        Args:
            setting: Its name in policies, such as `max-length`; the argument is then `x-max-length`.

        Returns:
            The values, at most two.

        """
        said = (self.policy_definition.get(setting), self.arguments.get(f"x-{setting}"))
        return [value for value in said if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy. Of several that match, the one with the highest `priority` applies.

    Attributes:
        name: Its name.
        pattern: A regular expression for names.
        definition: Its settings.
        apply_to: Its kind of objects: exchanges, queues, all and the like.
        priority: Its priority.

    """

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
    """A virtual host at one moment.

    Attributes:
        exchanges: All exchanges by name.
        queues: All queues by name.
        bindings: All bindings.
        policies: All policies.

    """

    exchanges: Mapping[str, ExchangeState] = field(default_factory=dict)
    queues: Mapping[str, QueueState] = field(default_factory=dict)
    bindings: frozenset[Binding] = frozenset()
    policies: tuple[Policy, ...] = ()

    def alternate_exchange(self, name: str) -> str | None:
        """Where an exchange sends messages that it cannot route, by its argument or else by policy.

        Args:
            name: The exchange.

        Returns:
            The alternate exchange; None: it has none, or does not exist.

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
        """Find all queues that some message of an exchange may come to. Alternate exchanges are not followed.

        Args:
            exchange: The exchange.

        Returns:
            The names of the queues.

        """
        found: set[str] = set()
        passed: set[str] = set()
        exchanges = {exchange}
        while exchanges:
            passed |= exchanges
            onward = [one for one in self.bindings if one.source in exchanges]
            found |= {one.destination for one in onward if one.kind is DestinationKind.QUEUE}
            exchanges = {one.destination for one in onward if one.kind is DestinationKind.EXCHANGE} - passed
        return found
