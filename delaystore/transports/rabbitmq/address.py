"""Where a destination leads: RabbitMQ's address strings, version 2, and plain queue names."""

from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from delaystore.errors import UnsupportedMessageError

MAX_SHORT_STRING_BYTES: Final = 255
"""AMQP 0-9-1, 4.2.5.3: an exchange name and a routing key are short strings."""
DEFAULT_EXCHANGE: Final = ""
"""The exchange every queue is bound to by its own name."""


class Address(NamedTuple):
    """An exchange and a routing key, as a publish names them."""

    exchange: str
    routing_key: str


@lru_cache(maxsize=4096)
def parse_address(destination: str) -> Address:
    """The address that `destination` stands for.

    A plain name is a queue, reached through the default exchange; so is `/queues/NAME`.
    `/exchanges/NAME` and `/exchanges/NAME/ROUTING.KEY` name an exchange (https://www.rabbitmq.com/docs/amqp#addresses);
    their parts are percent-encoded UTF-8. Raises UnsupportedMessageError for what is none of these.
    """
    if not destination.startswith("/"):
        return Address(DEFAULT_EXCHANGE, _short(destination, destination))
    kind, *parts = destination[1:].split("/")
    if kind == "queues" and len(parts) == 1 and parts[0]:
        return Address(DEFAULT_EXCHANGE, _decoded(parts[0], destination))
    if kind == "exchanges" and len(parts) in (1, 2) and parts[0]:
        exchange, routing_key = (_decoded(part, destination) for part in (*parts, "")[:2])
        return Address(exchange, routing_key)
    raise UnsupportedMessageError(
        f"destination {destination!r} is no address; write /queues/NAME or /exchanges/NAME/ROUTING.KEY, percent-encoded"
    )


def queue_name(queue: str) -> str | None:
    """The queue that `queue`, a plain name or `/queues/NAME`, stands for; None: it names an exchange.

    Raises UnsupportedMessageError for what is no address.
    """
    address = parse_address(queue)
    return address.routing_key if address.exchange == DEFAULT_EXCHANGE else None


def _decoded(part: str, destination: str) -> str:
    try:
        return _short(unquote_to_bytes(part).decode(), destination)
    except UnicodeError:
        raise UnsupportedMessageError(
            f"destination {destination!r} does not decode to UTF-8; percent-encode the UTF-8 bytes of each name"
        ) from None


def _short(text: str, destination: str) -> str:
    size = len(text.encode())
    if size > MAX_SHORT_STRING_BYTES:
        raise UnsupportedMessageError(
            f"destination {destination[:40]!r}... names something of {size} bytes; "
            f"AMQP allows {MAX_SHORT_STRING_BYTES} for an exchange or routing key"
        )
    return text
