"""Cascades as values: a queue for each power of two, and a routing key that says which ones a message passes.

NServiceBus and Celery: a message walks down, exchange by exchange.
https://docs.particular.net/transports/rabbitmq/delayed-delivery
https://docs.celeryq.dev/projects/kombu/en/v5.5.0/reference/kombu.transport.native_delayed_delivery.html

Skipping: a message skips the levels that it need not wait in.
https://gist.github.com/deefdragon/122fecdc37a883b9c5498e0ba4c4cca3
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from typing_extensions import override

from delaystore.errors import ConfigurationError, DelaystoreError, InvalidMessageError, UnsupportedMessageError
from delaystore.text import MAX_SHORT_STRING_BYTES, Address, control_character
from delaystore.transports.rabbitmq.topology.layout import (
    ALTERNATE_EXCHANGE,
    WILDCARDS,
    Binding,
    DestinationKind,
    Exchange,
    Layout,
    Queue,
    fanout_queue,
)

SECOND: Final = timedelta(seconds=1)
MILLISECOND: Final = timedelta(milliseconds=1)
UNITS: Final = (SECOND, MILLISECOND)
MAX_LEVELS: Final = 40
"""34,865 years in seconds, 34 years in milliseconds; the routing key has 175 bytes left for an address."""
QUORUM: Final[Mapping[str, Any]] = {
    "x-queue-type": "quorum",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
"""Replicated, and an expired message leaves only when its next queue has confirmed it."""

_RESERVED: Final = "amq."
"""Kept for the broker's own exchanges and queues (AMQP 0-9-1, exchange.declare and queue.declare)."""


class DueFrom(StrEnum):
    """The source of a message's remaining delay.

    HEADERS: NServiceBus' TimeSent and DelayInSeconds, or a Celery task's eta; exact.
    ROUTING_KEY: the digits of the routing key from the present level down, counted from now. Needs no header and no
    clock; never early, and late by the time that the message has waited in its present level.
    EITHER: the headers, or else the routing key.
    """

    HEADERS = "headers"
    ROUTING_KEY = "routing-key"
    EITHER = "either"


class Routing(StrEnum):
    """How a destination is bound to the delivery exchange.

    CONVENTIONAL: the exchange named like the destination, which leads to its queue. DIRECT: the queue.
    """

    CONVENTIONAL = "conventional"
    DIRECT = "direct"


class DelayKey(NamedTuple):
    """Delay and address in a cascade's routing key."""

    units: int
    address: str


@dataclass(frozen=True, kw_only=True)
class CascadeTopology(ABC):
    """A cascade of `levels` queues; a message waits 2^n `unit`s in the queue of level n if its routing key has a 1
    there.

    A routing key is `levels` binary digits, the most significant first, parted by dots, and then the address.

    Attributes:
        level_name: A format string with `{level}`.
        delivery: The exchange that hands a message on when its delay is over.
        levels: The number of levels.
        unit: One second or one millisecond.
        arguments: Arguments of the level queues, beside time to live and dead-letter exchange.
        undeliverable: The exchange and queue for messages without a destination when their delay is over. None: there
            is none, as others declare the same cascade without an alternate exchange (a policy may set it).

    Raises:
        ConfigurationError: No broker could hold it.

    """

    level_name: str
    delivery: str
    levels: int = 28
    unit: timedelta = SECOND
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    undeliverable: str | None = None

    def __post_init__(self) -> None:
        if type(self.levels) is not int or not 1 <= self.levels <= MAX_LEVELS:
            raise ConfigurationError(f"levels must be a whole number from 1 to {MAX_LEVELS}, not {self.levels!r}")
        if self.unit not in UNITS:
            raise ConfigurationError("unit must be a timedelta of one second or one millisecond")
        for name in self.names():
            if not 1 <= _size(name, ConfigurationError) <= MAX_SHORT_STRING_BYTES:
                raise ConfigurationError(f"names of exchanges and queues have 1 to 255 bytes, unlike {name[:40]!r}")
            if control_character(name) is not None:
                raise ConfigurationError(f"the name {name[:40]!r} contains a control character")
            if name.startswith(_RESERVED):
                raise ConfigurationError(f"RabbitMQ refuses names that begin with {_RESERVED!r}, as {name[:40]!r} does")
        if len(set(self.names())) < len(self.names()):
            raise ConfigurationError(
                f"level_name {self.level_name!r} must hold {{level}}, so that each name is another"
            )

    @abstractmethod
    def route(self, delay: timedelta | float, address: str) -> Address:
        """Where to publish a message so that it comes to an address after a delay.

        Args:
            delay: A timedelta or seconds, rounded up to whole units, never early; below 0 means 0.
            address: The name of a queue, or of an exchange.

        Returns:
            The exchange and routing key.

        Raises:
            InvalidMessageError: The delay is no duration.
            UnsupportedMessageError: The delay is over `maximum`, or the address does not fit a key or would be taken
                for wildcards.

        """

    @abstractmethod
    def layout(self) -> Layout:
        """Everything the cascade itself consists of; destinations are bound by `destination_bindings`."""

    @property
    def maximum(self) -> timedelta:
        """The longest delay."""
        return timedelta(milliseconds=self.ttl(self.levels)) - self.unit

    def names(self) -> list[str]:
        """The names of all exchanges, each once."""
        own = [self.delivery] if self.undeliverable is None else [self.delivery, self.undeliverable]
        return [self.level(number) for number in reversed(range(self.levels))] + own

    def level(self, number: int) -> str:
        """The name of a level: the queue's, and the walking cascade's exchange.

        Args:
            number: The level, from 0.

        Returns:
            The name.

        """
        return self.level_name.format(level=number)

    def ttl(self, number: int) -> int:
        """How long a message stays in the queue of a level.

        Args:
            number: The level, from 0.

        Returns:
            Milliseconds.

        """
        return int(2**number * self.unit // MILLISECOND)

    def units(self, delay: timedelta | float) -> int:
        """A delay in whole units, rounded up.

        Args:
            delay: A timedelta or seconds; below 0 means 0.

        Returns:
            The number of units.

        Raises:
            InvalidMessageError: The delay is no duration.
            UnsupportedMessageError: The delay is over `maximum`.

        """
        try:
            span = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        except (TypeError, ValueError, OverflowError):
            raise InvalidMessageError(f"a delay is a timedelta or a number of seconds, not {delay!r}") from None
        units = max(0, span // self.unit + (span % self.unit > timedelta(0)))
        if units >= 2**self.levels:
            raise UnsupportedMessageError(
                f"a delay of {span} is beyond the maximum of this cascade, {self.maximum}; let it wait in the store"
            )
        return units

    def key(self, units: int, address: str) -> str:
        """The routing key for a delay and an address.

        Args:
            units: The delay, in units.
            address: The name of a queue, or of an exchange.

        Returns:
            The routing key.

        Raises:
            UnsupportedMessageError: The address does not fit.

        """
        self.check_address(address)
        return f"{'.'.join(f'{units:0{self.levels}b}')}.{address}"

    def read_key(self, key: str) -> DelayKey | None:
        """Read a routing key.

        Args:
            key: The routing key.

        Returns:
            Delay and address; None: it is not a key of this cascade.

        """
        *digits, address = key.split(".", self.levels)
        if len(digits) < self.levels or not set(digits) <= {"0", "1"}:
            return None
        return DelayKey(int("".join(digits), 2), address)

    def check_address(self, address: str) -> None:
        """Check that an address fits a key, and that a binding can match it exactly.

        Args:
            address: The name of a queue, or of an exchange.

        Raises:
            UnsupportedMessageError: It does not.

        """
        room = MAX_SHORT_STRING_BYTES - 2 * self.levels
        size = _size(address, UnsupportedMessageError)
        if not 1 <= size <= room:
            raise UnsupportedMessageError(f"an address has 1 to {room} bytes here, not {size}: {address[:40]!r}")
        if control_character(address) is not None:
            raise UnsupportedMessageError(f"address {address[:40]!r} contains a control character")
        if not WILDCARDS.isdisjoint(address.split(".")):
            raise UnsupportedMessageError(f"address {address[:40]!r} has a word * or #, which a binding takes for any")

    def destination_bindings(self, address: str, routing: Routing = Routing.DIRECT) -> tuple[Binding, ...]:
        """The bindings with which a destination gets its messages, and no others.

        As many `*` as there are digits, and not `#`: `#.b` would also take messages for `a.b`.

        Args:
            address: The name of the queue, or of the exchange.
            routing: How it is bound.

        Returns:
            The bindings.

        Raises:
            UnsupportedMessageError: The address fits no key, or no binding would match it exactly.

        """
        self.check_address(address)
        kind = DestinationKind.QUEUE if routing is Routing.DIRECT else DestinationKind.EXCHANGE
        return (Binding(self.delivery, address, kind, "*." * self.levels + address),)

    def _level_queue(self, number: int, dead_letter_exchange: str) -> Queue:
        own = {"x-message-ttl": self.ttl(number), "x-dead-letter-exchange": dead_letter_exchange}
        return Queue(self.level(number), {**self.arguments, **own})

    def _delivery_layout(self) -> Layout:
        """The delivery exchange, and where messages without a destination go."""
        name = self.undeliverable
        if name is None:
            return Layout(exchanges=(Exchange(self.delivery),))
        end = Layout(exchanges=(Exchange(self.delivery, arguments={ALTERNATE_EXCHANGE: name}),))
        return fanout_queue(name, {"x-queue-type": self.arguments.get("x-queue-type", "classic")}) + end


def _size(name: str, problem: type[DelaystoreError]) -> int:
    """Bytes of a name in UTF-8; raises `problem` for lone surrogates, as Python reads them from other encodings."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        raise problem(f"the name {name[:40]!r} is not UTF-8 text, which AMQP wants for names") from None


@dataclass(frozen=True, kw_only=True)
class WalkingCascade(CascadeTopology):
    """Each level has an exchange: digit 1 leads into the level's queue, and from there down; digit 0 leads down.

    `bind_queue_too`: a conventional destination's queue is bound to its exchange with the same key, as Celery does.
    """

    bind_queue_too: bool = False

    @override
    def route(self, delay: timedelta | float, address: str) -> Address:
        """Into the highest level with a digit 1; the levels above would only pass it on."""
        units = self.units(delay)
        return Address(self.level(max(units.bit_length() - 1, 0)), self.key(units, address))

    @override
    def layout(self) -> Layout:
        return self._delivery_layout() + Layout(
            exchanges=tuple(Exchange(self.level(number)) for number in range(self.levels)),
            queues=tuple(self._level_queue(number, self._below(number)) for number in range(self.levels)),
            bindings=tuple(binding for number in range(self.levels) for binding in self._bindings(number)),
        )

    @override
    def destination_bindings(self, address: str, routing: Routing = Routing.DIRECT) -> tuple[Binding, ...]:
        """As for every cascade; with `bind_queue_too` also the queue of a conventional destination."""
        bindings = super().destination_bindings(address, routing)
        if routing is Routing.DIRECT or not self.bind_queue_too:
            return bindings
        return (*bindings, Binding(address, address, DestinationKind.QUEUE, bindings[0].routing_key))

    def _below(self, number: int) -> str:
        return self.level(number - 1) if number else self.delivery

    def _bindings(self, number: int) -> tuple[Binding, Binding]:
        name, digits_above = self.level(number), "*." * (self.levels - 1 - number)
        return (
            Binding(name, name, DestinationKind.QUEUE, f"{digits_above}1.#"),
            Binding(name, self._below(number), DestinationKind.EXCHANGE, f"{digits_above}0.#"),
        )


@dataclass(frozen=True, kw_only=True)
class SkippingCascade(CascadeTopology):
    """Each queue leads to an exchange of its own, bound to all shorter queues; the next digit 1 decides.

    Attributes:
        ingest: The exchange that everything is published to.
        done_name: A format string with `{level}`.
        addresses: False: one queue `delivery` gets everything, and keys are digits alone, as in the gist. Bindings then
            begin with `#`; with an address behind the digits these would misroute, so `*` for each digit anchors them.

    """

    ingest: str
    done_name: str
    addresses: bool = True

    @override
    def route(self, delay: timedelta | float, address: str) -> Address:
        return Address(self.ingest, self.key(self.units(delay), address))

    @override
    def layout(self) -> Layout:
        end = self._delivery_layout() if self.addresses else Layout(queues=(self._only_destination(),))
        levels = range(self.levels)
        return end + Layout(
            exchanges=(*(Exchange(self.done(number)) for number in levels), Exchange(self.ingest)),
            queues=tuple(self._level_queue(number, self.done(number)) for number in levels),
            bindings=(
                *(binding for number in levels for binding in self._bindings(self.done(number), number)),
                *self._bindings(self.ingest, self.levels),
            ),
        )

    @override
    def names(self) -> list[str]:
        """The names of all exchanges and level queues, each once."""
        return [*super().names(), *(self.done(number) for number in range(self.levels)), self.ingest]

    def done(self, number: int) -> str:
        """The exchange behind the queue of a level.

        Args:
            number: The level, from 0.

        Returns:
            The exchange's name.

        """
        return self.done_name.format(level=number)

    @override
    def key(self, units: int, address: str) -> str:
        """The routing key; without addresses the digits alone."""
        if self.addresses:
            return super().key(units, address)
        self.check_address(address)
        return ".".join(f"{units:0{self.levels}b}")

    @override
    def check_address(self, address: str) -> None:
        """Raise UnsupportedMessageError for an address that does not fit; without addresses, for any but `delivery`."""
        if self.addresses:
            super().check_address(address)
        elif address not in ("", self.delivery):
            raise UnsupportedMessageError(f"this cascade has one destination, {self.delivery!r}, not {address[:40]!r}")

    @override
    def destination_bindings(self, address: str, routing: Routing = Routing.DIRECT) -> tuple[Binding, ...]:
        """As for every cascade; none without addresses."""
        if self.addresses:
            return super().destination_bindings(address, routing)
        self.check_address(address)
        return ()

    def _bindings(self, source: str, above: int) -> list[Binding]:
        """The bindings of `source`, an exchange that decides by the digits below level `above`."""
        bindings = [
            Binding(
                source,
                self.level(number),
                DestinationKind.QUEUE,
                self._pattern(above, ["0"] * (above - 1 - number) + ["1"], number),
            )
            for number in reversed(range(above))
        ]
        kind = DestinationKind.EXCHANGE if self.addresses else DestinationKind.QUEUE
        return [*bindings, Binding(source, self.delivery, kind, self._pattern(above, ["0"] * above, 0))]

    def _pattern(self, above: int, digits: list[str], undecided: int) -> str:
        if self.addresses:
            return ".".join(["*"] * (self.levels - above) + digits + ["#"])
        return ".".join(["#", *digits, *["*"] * undecided])

    def _only_destination(self) -> Queue:
        return Queue(self.delivery, {"x-queue-type": self.arguments.get("x-queue-type", "classic")})


NSERVICEBUS_V2: Final = WalkingCascade(
    level_name="nsb.v2.delay-level-{level:02}", delivery="nsb.v2.delay-delivery", arguments=QUORUM
)
"""Shared with NServiceBus' RabbitMQ transport 7 and newer: names and arguments are a contract."""
NSERVICEBUS_V1: Final = WalkingCascade(
    level_name="nsb.delay-level-{level:02}", delivery="nsb.delay-delivery", arguments={"x-queue-mode": "lazy"}
)
"""Shared with NServiceBus' RabbitMQ transport 4.3 to 6; classic queues."""


def celery(queue_type: str = "quorum", prefix: str | None = None) -> WalkingCascade:
    """Celery's native delayed delivery (kombu 5.5 and newer): a contract, too. An address is a task's routing key.

    Args:
        queue_type: Quorum or classic.
        prefix: The beginning of all names, from kombu 5.7 on; None: none.

    Returns:
        The cascade.

    Raises:
        ConfigurationError: `queue_type` is something else, or the prefix cannot be.

    """
    if queue_type not in ("quorum", "classic"):
        raise ConfigurationError(f"queue_type must be quorum or classic, not {queue_type!r}")
    start = f"{prefix}_celery" if prefix else "celery"
    classic = {"x-queue-type": "classic", "x-overflow": "reject-publish"}
    return WalkingCascade(
        level_name=_literal(start) + "_delayed_{level}",
        delivery=f"{start}_delayed_delivery",
        arguments=QUORUM if queue_type == "quorum" else classic,
        bind_queue_too=True,
    )


def custom(
    prefix: str, *, levels: int = 28, unit: timedelta = SECOND, skipping: bool = False, addresses: bool = True
) -> CascadeTopology:
    """Your own cascade, with quorum queues, and a queue `PREFIX.undeliverable`.

    Args:
        prefix: The beginning of all names.
        levels: The number of levels.
        unit: One second or one millisecond.
        skipping: Make a SkippingCascade.
        addresses: As of SkippingCascade.

    Returns:
        The cascade.

    Raises:
        ConfigurationError: No broker allows the names or levels, or only a skipping cascade can do without addresses.

    """
    if not prefix:
        raise ConfigurationError("your own cascade needs a prefix for its names")
    start = _literal(prefix)
    if skipping:
        return SkippingCascade(
            level_name=start + ".delay-{level:02}",
            done_name=start + ".delay-{level:02}.done",
            ingest=f"{prefix}.ingest",
            delivery=f"{prefix}.delivery" if addresses else f"{prefix}.done",
            undeliverable=f"{prefix}.undeliverable" if addresses else None,
            levels=levels,
            unit=unit,
            arguments=QUORUM,
            addresses=addresses,
        )
    if not addresses:
        raise ConfigurationError("only a skipping cascade can do without addresses")
    return WalkingCascade(
        level_name=start + ".delay-level-{level:02}",
        delivery=f"{prefix}.delay-delivery",
        undeliverable=f"{prefix}.undeliverable",
        levels=levels,
        unit=unit,
        arguments=QUORUM,
    )


def topology_named(name: str) -> CascadeTopology:
    """Make a cascade by its name, as command lines write it.

    Args:
        name: nservicebus-v2, nservicebus-v1, celery, celery:classic, celery:quorum:PREFIX, skipping, custom:PREFIX,
            custom:PREFIX:LEVELS, custom:PREFIX:LEVELS:ms, skipping:PREFIX[:LEVELS[:ms]].

    Returns:
        The cascade.

    Raises:
        ConfigurationError: No cascade has this name.

    """
    kind, *parts = name.split(":")
    if not parts:
        preset = {"nservicebus-v2": NSERVICEBUS_V2, "nservicebus-v1": NSERVICEBUS_V1, "skipping": SKIPPING}.get(kind)
        if preset is not None:
            return preset
    if kind == "celery" and len(parts) <= 2:
        if parts[1:] == [""]:
            raise ConfigurationError(f"the prefix in {name!r} is empty; for Celery's own names leave its colon out")
        return celery(*parts)
    if kind in ("custom", "skipping") and 1 <= len(parts) <= 3:
        return _custom_named(kind == "skipping", *parts)
    raise ConfigurationError(
        f"no cascade is called {name!r}; there are nservicebus-v2, nservicebus-v1, celery[:QUEUE_TYPE[:PREFIX]], "
        "skipping[:PREFIX[:LEVELS[:ms]]] and custom:PREFIX[:LEVELS[:ms]]"
    )


def _custom_named(skipping: bool, prefix: str, levels: str = "28", unit: str = "s") -> CascadeTopology:
    if not (levels.isascii() and levels.isdigit()) or unit not in ("s", "ms"):
        raise ConfigurationError(f"after the prefix {prefix!r} come the number of levels, and s or ms")
    return custom(prefix, levels=int(levels), unit=SECOND if unit == "s" else MILLISECOND, skipping=skipping)


def _literal(text: str) -> str:
    """`text` with its braces escaped for a format string."""
    return text.replace("{", "{{").replace("}", "}}")


SKIPPING: Final = custom("delaystore.skipping", skipping=True)
"""The skipping cascade with addresses, under delaystore's own name."""
