"""What all cascades have in common: a queue for each power of two, and a routing key that says which ones to pass."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from delaystore.address import MAX_SHORT_STRING_BYTES, Address
from delaystore.errors import ConfigurationError, DelaystoreError, InvalidMessageError, UnsupportedMessageError
from delaystore.names import control_character
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


class DueBy(StrEnum):
    """By what the remaining delay of a message is found.

    HEADERS: NServiceBus' TimeSent and DelayInSeconds, or a Celery task's eta; exact.
    KEY: the digits of the routing key from the present level down, counted from now. Needs no header and no clock;
    never early, and late by what the message has waited in its present level already.
    EITHER: the headers, or else the key.
    """

    HEADERS = "headers"
    KEY = "key"
    EITHER = "either"


class Routing(StrEnum):
    """How a destination is bound to the delivery exchange.

    CONVENTIONAL: the exchange named like the destination, which leads to its queue. DIRECT: the queue.
    """

    CONVENTIONAL = "conventional"
    DIRECT = "direct"


class DelayKey(NamedTuple):
    """What a cascade's routing key says."""

    units: int
    address: str


@dataclass(frozen=True, kw_only=True)
class CascadeTopology(ABC):
    """A cascade of `levels` queues; a message waits 2^n `unit`s in that of level n if its routing key has a 1 there.

    A routing key is `levels` binary digits, the most significant first, parted by dots, and then the address.
    `level_name`: a format string with `{level}`. `delivery`: the exchange that hands a message on when its delay is
    over. `arguments`: of the level queues, beside time to live and dead-letter exchange.
    `undeliverable`: the exchange and queue for messages without a destination when their delay is over. None: there is
    none, as others declare the same cascade without an alternate exchange (a policy may set it).

    Raises ConfigurationError for what no broker could hold.
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
        """The exchange and routing key to publish to, so that a message comes to `address` after `delay`.

        `delay`: a timedelta or seconds, rounded up to whole units, never early; below 0 means 0.
        Raises InvalidMessageError for what is no duration, UnsupportedMessageError for a delay over `maximum`, or for
        an address that does not fit a key or would be taken for wildcards.
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
        """The name of level `number`, from 0; the queue's, and the walking cascade's exchange."""
        return self.level_name.format(level=number)

    def ttl(self, number: int) -> int:
        """Milliseconds that a message stays in the queue of level `number`."""
        return int(2**number * self.unit // MILLISECOND)

    def units(self, delay: timedelta | float) -> int:
        """`delay` in whole units, rounded up; raises as `route`."""
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

    def queues_passed(self, delay: timedelta | float) -> list[str]:
        """The level queues that a message with this delay waits in, in their order."""
        units = self.units(delay)
        return [self.level(number) for number in reversed(range(self.levels)) if units >> number & 1]

    def key(self, units: int, address: str) -> str:
        """The routing key for a delay of `units`; raises UnsupportedMessageError for an address that does not fit."""
        self.check_address(address)
        return f"{'.'.join(f'{units:0{self.levels}b}')}.{address}"

    def read_key(self, key: str) -> DelayKey | None:
        """What a routing key says; None: it is not a key of this cascade."""
        *digits, address = key.split(".", self.levels)
        if len(digits) < self.levels or not set(digits) <= {"0", "1"}:
            return None
        return DelayKey(int("".join(digits), 2), address)

    def check_address(self, address: str) -> None:
        """Raise UnsupportedMessageError for an address that fits no key, or that no binding would match exactly."""
        room = MAX_SHORT_STRING_BYTES - 2 * self.levels
        size = _size(address, UnsupportedMessageError)
        if not 1 <= size <= room:
            raise UnsupportedMessageError(f"an address has 1 to {room} bytes here, not {size}: {address[:40]!r}")
        if control_character(address) is not None:
            raise UnsupportedMessageError(f"address {address[:40]!r} contains a control character")
        if not WILDCARDS.isdisjoint(address.split(".")):
            raise UnsupportedMessageError(f"address {address[:40]!r} has a word * or #, which a binding takes for any")

    def destination_bindings(self, address: str, routing: Routing = Routing.DIRECT) -> tuple[Binding, ...]:
        """The bindings with which `address` gets what is meant for it, and nothing else; raises as `check_address`.

        As many `*` as there are digits, and not `#`: `#.b` would take what is meant for `a.b` as well.
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
