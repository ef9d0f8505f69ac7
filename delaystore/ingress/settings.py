"""Names and settings of an ingress: frozen, and checked at construction."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Self

from delaystore.errors import ConfigurationError
from delaystore.settings import Duration, OneOf
from delaystore.text import MAX_SHORT_STRING_BYTES, control_character

QUEUE_ENDING: Final = ".ingress"
"""How the name of an exchange's ingress queue ends by default."""
_RESERVED: Final = "amq."


def expired_of(queue: str) -> str:
    """The exchange and the queue for messages that the ingress queue `queue` itself gives up."""
    return f"{queue}.expired"


def rejected_of(queue: str) -> str:
    """The queue for messages of the ingress queue `queue` that cannot be stored."""
    return f"{queue}.rejected"


@dataclass(frozen=True, slots=True)
class IngressNames:
    """The names that belong to `exchange`, to which programs publish delayed messages.

    `queue`: the ingress queue. `out`: the exchange to which delaystore publishes due messages.
    """

    exchange: str
    queue: str
    out: str

    @classmethod
    def of(cls, exchange: str, *, queue: str | None = None, out: str | None = None) -> Self:
        """With the names that are not given made from `exchange`.

        Raises ConfigurationError for a name that none may have, and where two of them are the same exchange.
        """
        names = cls(exchange, queue or f"{exchange}{QUEUE_ENDING}", out or f"{exchange}.out")
        for name in (names.exchange, names.out, names.expired, names.rejected):
            _check(name)
        for name in (names.out, names.queue):
            if name.startswith(_RESERVED):
                raise ConfigurationError(
                    f"{name!r} cannot be: RabbitMQ keeps names that begin with {_RESERVED!r} for itself; pass other "
                    "names with --queue and --output-exchange"
                )
        if names.out in (names.exchange, names.expired):
            raise ConfigurationError(
                f"--output-exchange {names.out!r} is an exchange of the ingress itself, so due messages would come "
                "back; choose another with --output-exchange"
            )
        return names

    @property
    def expired(self) -> str:
        """As `expired_of`."""
        return expired_of(self.queue)

    @property
    def rejected(self) -> str:
        """As `rejected_of`."""
        return rejected_of(self.queue)


def _check(name: str) -> None:
    if not name:
        raise ConfigurationError("the exchange has no name; the default exchange cannot delay, so name your own")
    if control_character(name) is not None:
        raise ConfigurationError(f"no exchange or queue may have a control character in its name: {name!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"the name {name!r} cannot be written as UTF-8") from None
    if size > MAX_SHORT_STRING_BYTES:
        raise ConfigurationError(
            f"the name {name[:40]!r}... has {size} bytes; AMQP allows {MAX_SHORT_STRING_BYTES}: give a shorter one"
        )


MOST_PREFETCHED: Final = 65535
"""basic.qos has 16 bits for the number."""


class IngressOnDuplicate(StrEnum):
    """The result for a message whose id another waiting message has. The same message again is acknowledged."""

    BOTH = "both"
    """Both are delivered: the later one under another id, with its own in `delaystore.original-message-id`."""
    KEEP = "keep"
    """The one that waits stays, and the later one is dropped."""
    REPLACE = "replace"
    """The later one takes its place. If a dispatcher has the first one already, both are delivered."""


class IngressOnRepeat(StrEnum):
    """The result for a message whose id was delivered before, as far as the history reaches back."""

    DELIVER = "deliver"
    """It is stored, and delivered again."""
    DROP = "drop"
    """It is acknowledged and dropped. While no history is kept, it is delivered."""


@dataclass(frozen=True, kw_only=True)
class IngressSettings:
    """Settings of one ingress; durations are timedeltas or seconds.

    `queue`: the ingress queue. Raises ConfigurationError at construction, naming the setting.
    """

    queue: str
    rejected_queue: str = ""
    """Where messages go that cannot be stored; default: `QUEUE.rejected`."""
    expired_queue: str = ""
    """Where the broker puts messages that expire in the ingress queue, read as well if it exists; default:
    `QUEUE.expired`."""
    on_duplicate: OneOf[IngressOnDuplicate] = OneOf(IngressOnDuplicate.BOTH)
    on_repeat: OneOf[IngressOnRepeat] = OneOf(IngressOnRepeat.DELIVER)
    direct_below: Duration = Duration(timedelta(0))
    """Messages due within less are forwarded at once, without the store; 0: none are."""
    batch_size: int = 1000
    """The most messages stored at once."""
    prefetch: int = 2500
    """The most messages that the broker gives ahead of their acknowledgement."""
    memory_bytes: int = 64 * 1024 * 1024
    """Nothing is read from the broker while messages of as many bytes are in memory; at least 1 MiB. A single message
    may exceed it."""

    def __post_init__(self) -> None:
        if not self.queue:
            raise ConfigurationError("queue is empty; name the ingress queue")
        for name, default in (("rejected_queue", rejected_of), ("expired_queue", expired_of)):
            if not getattr(self, name):
                object.__setattr__(self, name, default(self.queue))
            if getattr(self, name) == self.queue:
                raise ConfigurationError(
                    f"{name} is the ingress queue itself, so messages would loop; name another one"
                )
        _check_range("batch_size", self.batch_size, 1, MOST_PREFETCHED)
        _check_range("prefetch", self.prefetch, 1, MOST_PREFETCHED)
        _check_range("memory_bytes", self.memory_bytes, 1024 * 1024, 2**40)


def _check_range(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ConfigurationError(f"{name} must be a whole number from {least:,} to {most:,}, not {value!r}")
