"""What the exchanges and queues of an ingress are called."""

from dataclasses import dataclass
from typing import Final, Self

from delaystore.address import MAX_SHORT_STRING_BYTES
from delaystore.errors import ConfigurationError
from delaystore.names import control_character

QUEUE_ENDING: Final = ".ingress"
"""How the name of an exchange's ingress queue ends, unless told otherwise."""
_RESERVED: Final = "amq."


def expired_of(queue: str) -> str:
    """The exchange and the queue for messages that the ingress queue `queue` itself gives up."""
    return f"{queue}.expired"


def rejected_of(queue: str) -> str:
    """The queue for messages of the ingress queue `queue` that cannot be stored."""
    return f"{queue}.rejected"


@dataclass(frozen=True, slots=True)
class IngressNames:
    """The names that belong to `exchange`, to which programs publish what is to be delayed.

    `queue`: the ingress queue. `out`: the exchange to which delaystore publishes what is due.
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
                    f"{name!r} cannot be: RabbitMQ keeps names that begin with {_RESERVED!r} for itself; pass names of "
                    "your own with --queue and --out"
                )
        if names.out in (names.exchange, names.expired):
            raise ConfigurationError(
                f"what is due would come back: {names.out!r} cannot be the exchange that due messages go to, too; "
                "name another with --out"
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
        raise ConfigurationError("the exchange has no name; the default exchange cannot delay, so name one of your own")
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
