"""Destinations: plain queue names, and RabbitMQ's address strings, version 2."""

from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from delaystore.errors import TransportSetupError, UnsupportedMessageError
from delaystore.names import control_character

MAX_SHORT_STRING_BYTES: Final = 255
"""The longest exchange name or routing key (AMQP 0-9-1, 4.2.5.3: short strings)."""
DEFAULT_EXCHANGE: Final = ""
"""The exchange every queue is bound to by its own name."""


class Address(NamedTuple):
    """Where a message is published: an exchange and a routing key."""

    exchange: str
    routing_key: str


@lru_cache(maxsize=4096)
def parse_address(destination: str) -> Address:
    """The address that `destination` stands for.

    A plain name is a queue, reached through the default exchange; so is `/queues/NAME`.
    `/exchanges/NAME` and `/exchanges/NAME/ROUTING.KEY` name an exchange (https://www.rabbitmq.com/docs/amqp#addresses);
    their parts are percent-encoded UTF-8. Raises UnsupportedMessageError for another address, for a name that is too
    long, and for one with a control character.
    """
    if not destination.startswith("/"):
        return Address(DEFAULT_EXCHANGE, _name(destination, destination))
    kind, *parts = destination[1:].split("/")
    if kind == "queues" and len(parts) == 1 and parts[0]:
        return Address(DEFAULT_EXCHANGE, _name(_decoded(parts[0], destination), destination))
    if kind == "exchanges" and len(parts) in (1, 2) and parts[0]:
        exchange, routing_key = (_decoded(part, destination) for part in (*parts, "")[:2])
        return Address(_name(exchange, destination), routing_key)
    raise UnsupportedMessageError(
        f"destination {destination!r} is no address; write /queues/NAME or /exchanges/NAME/ROUTING.KEY, percent-encoded"
    )


def queue_or_none(queue: str) -> str | None:
    """The name of the queue that `queue`, a plain name or `/queues/NAME`, means; None: it names an exchange.

    Raises UnsupportedMessageError for what is no address.
    """
    address = parse_address(queue)
    return address.routing_key if address.exchange == DEFAULT_EXCHANGE else None


def queue_of(destination: str) -> str:
    """The name of the queue that `destination` means, for transports without exchanges.

    Raises UnsupportedMessageError for an exchange's address, and for what is no address.
    """
    name = queue_or_none(destination)
    if name is None:
        raise UnsupportedMessageError(
            f"the destination {destination!r} is no queue; this transport takes a queue name or /queues/NAME"
        )
    return name


def named_queue(queue: str) -> str:
    """The queue that `queue`, a name or `/queues/NAME`, stands for, where a queue itself is asked for.

    Raises TransportSetupError for an exchange's address, and for what is no address.
    """
    try:
        name = queue_or_none(queue)
    except UnsupportedMessageError as error:
        raise TransportSetupError(str(error)) from None
    if name is None:
        raise TransportSetupError(f"{queue!r} is an exchange; name a queue, as in /queues/NAME")
    return name


def _decoded(part: str, destination: str) -> str:
    try:
        return _short(unquote_to_bytes(part).decode(), destination)
    except UnicodeError:
        raise UnsupportedMessageError(
            f"destination {destination!r} does not decode to UTF-8; percent-encode the UTF-8 bytes of each name"
        ) from None


def _short(text: str, destination: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UnsupportedMessageError(f"destination {destination[:80]!r} cannot be written as UTF-8") from None
    if size > MAX_SHORT_STRING_BYTES:
        raise UnsupportedMessageError(
            f"destination {destination[:40]!r}... names something of {size} bytes; "
            f"AMQP allows {MAX_SHORT_STRING_BYTES} for an exchange or routing key"
        )
    return text


def _name(text: str, destination: str) -> str:
    """`text`, if a queue or an exchange may be called so; a routing key may hold anything."""
    character = control_character(text)
    if character is not None:
        raise UnsupportedMessageError(
            f"destination {destination[:80]!r} names something with the control character {character!r}"
        )
    return _short(text, destination)
