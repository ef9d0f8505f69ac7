"""What a rejected message was before it was rejected."""

from typing import Final

from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.headers import EXPIRATION, REJECTED_PROPERTIES, REJECTED_REASON
from delaystore.ingress._rejecting import EXCHANGE, ROUTING_KEY
from delaystore.transports.rabbitmq.raw.aside import CARBON_COPIES
from delaystore.transports.rabbitmq.raw.connection import Delivery
from delaystore.transports.rabbitmq.raw.copies import Copy
from delaystore.transports.rabbitmq.raw.properties import MalformedPropertiesError, RawProperties
from delaystore.transports.rabbitmq.raw.tables import Entry, text_of

_WHOLE: Final = frozenset({REJECTED_PROPERTIES.encode(), f"{REJECTED_PROPERTIES}-size".encode()})
_ADDED: Final = frozenset(
    {REJECTED_REASON.encode(), EXCHANGE.encode(), ROUTING_KEY.encode(), EXPIRATION.encode(), b"x-delivery-count"}
)
"""Headers that the message did not have when it came."""
_NAMES: Final = {kept: name for name, kept in CARBON_COPIES.items()}


class IrretrievableError(ValueError):
    """A message that cannot be published as it was; why."""


def restored(delivery: Delivery) -> Copy:
    """The message as it was published, to where it was published. Raises IrretrievableError."""
    try:
        headers = delivery.properties.headers
    except MalformedPropertiesError:
        raise IrretrievableError("its properties cannot be read") from None
    found = dict(headers)
    if not found.keys().isdisjoint(_WHOLE):
        raise IrretrievableError("its properties were put aside whole; publish it again from your program")
    address = _origin(found)
    own = [Entry(_NAMES.get(name, name), value) for name, value in headers if name not in _ADDED]
    if address.exchange == DEFAULT_EXCHANGE and any(name in CARBON_COPIES for name, _ in own):
        raise IrretrievableError("it has CC, and those queues have their copies; publish it again from your program")
    return Copy(address, _with_expiration(delivery.properties.changed(own), found), delivery.body)


def _origin(headers: dict[bytes, bytes]) -> Address:
    if REJECTED_REASON.encode() not in headers:
        raise IrretrievableError("no ingress has rejected it: it has no header delaystore.rejected-reason")
    exchange, key = text_of(headers.get(EXCHANGE.encode())), text_of(headers.get(ROUTING_KEY.encode()))
    if exchange is None or key is None:
        raise IrretrievableError("where it was published to is no text; publish it again from your program")
    return Address(exchange, key)


def _with_expiration(properties: RawProperties, headers: dict[bytes, bytes]) -> RawProperties:
    expiration = text_of(headers.get(EXPIRATION.encode()))
    if expiration is None:
        return properties
    text = expiration.encode()
    return RawProperties.of({**properties.fields, "expiration": bytes((len(text),)) + text})
