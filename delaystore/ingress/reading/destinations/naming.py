"""Destination rules as users write them."""

from typing import Final

from delaystore.address import DEFAULT_EXCHANGE, MAX_SHORT_STRING_BYTES, parse_address
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.headers import DESTINATION
from delaystore.ingress.reading.destinations.abc import DestinationRule
from delaystore.ingress.reading.destinations.exchange import ExchangeDestination
from delaystore.ingress.reading.destinations.fixed import FixedDestination
from delaystore.ingress.reading.destinations.header import HeaderDestination
from delaystore.message import check_destination

_HEADER: Final = "header"
_EXCHANGE: Final = "/exchanges/"
_POSSIBLE: Final = (
    "write /exchanges/NAME (messages keep their routing keys), /exchanges/NAME/KEY, a queue, "
    f"header ({DESTINATION} says it), or header:NAME"
)


def parse_destination(text: str, option: str) -> DestinationRule:
    """The rule that `text` means; ConfigurationError naming `option` for what means none.

    `/exchanges/NAME`: to that exchange, with the routing key that each message has. `header`, `header:NAME`: where a
    header says. Any other address, or a queue's name: there. The queue `header` is `/queues/header`.
    """
    given = text.strip()
    kind, colon, name = given.partition(":")
    if kind == _HEADER:
        return _header(name if colon else DESTINATION, option)
    try:
        check_destination(given)
        address = parse_address(given)
    except InvalidMessageError as error:
        raise ConfigurationError(f"{option}: {error}; {_POSSIBLE}") from None
    if address.exchange == DEFAULT_EXCHANGE and not address.routing_key:
        raise ConfigurationError(f"{option} {text!r} names no destination; {_POSSIBLE}")
    if given.startswith(_EXCHANGE) and given.count("/") == _EXCHANGE.count("/"):
        return ExchangeDestination(address.exchange)
    return FixedDestination(given)


def _header(name: str, option: str) -> DestinationRule:
    if not name or len(name.encode(errors="replace")) > MAX_SHORT_STRING_BYTES:
        raise ConfigurationError(f"{option}: a header's name has 1 to {MAX_SHORT_STRING_BYTES} bytes; {_POSSIBLE}")
    return HeaderDestination(name)
