"""What a rejected message was before it was rejected."""

from collections.abc import Sequence
from typing import Final

from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.headers import FORWARDED_TO, HOPS, REJECTED_PROPERTIES, REJECTED_REASON
from delaystore.ingress._rejecting import EXCHANGE, ROUTING_KEY
from delaystore.transports.rabbitmq.copies import CARBON_COPIES, Copy, PutAsideWholeError
from delaystore.transports.rabbitmq.copies import restored as properties_restored
from delaystore.transports.rabbitmq.raw import Delivery, Entry, MalformedPropertiesError, text_of

_ADDED: Final = frozenset(
    name.encode() for name in (REJECTED_REASON, EXCHANGE, ROUTING_KEY, FORWARDED_TO, HOPS, "x-delivery-count")
)
"""Headers that the message did not have when it came, or, as those of a loop, is to have no more."""


class IrretrievableError(ValueError):
    """A message that cannot be published as it was; why."""


def restored(delivery: Delivery) -> Copy:
    """The message as it was published, to where it was published. Raises IrretrievableError."""
    try:
        properties = properties_restored(delivery.properties, REJECTED_PROPERTIES)
    except MalformedPropertiesError:
        raise IrretrievableError("its properties cannot be read") from None
    except PutAsideWholeError:
        raise IrretrievableError("its properties were put aside whole; publish it again from your program") from None
    address = _origin(properties.headers)
    own = [entry for entry in properties.headers if entry.name not in _ADDED]
    if address.exchange == DEFAULT_EXCHANGE and any(name in CARBON_COPIES for name, _ in own):
        raise IrretrievableError("it has CC, and those queues have their copies; publish it again from your program")
    return Copy(address, properties.changed(own), delivery.body)


def _origin(entries: Sequence[Entry]) -> Address:
    headers = dict(entries)
    if REJECTED_REASON.encode() not in headers:
        raise IrretrievableError("no ingress has rejected it: it has no header delaystore.rejected-reason")
    for header in (EXCHANGE, ROUTING_KEY):
        if sum(name == header.encode() for name, _ in entries) > 1:
            raise IrretrievableError(f"it has the header {header} twice; publish it again from your program")
    exchange, key = text_of(headers.get(EXCHANGE.encode())), text_of(headers.get(ROUTING_KEY.encode()))
    if exchange is None or key is None:
        raise IrretrievableError("where it was published to is no text; publish it again from your program")
    return Address(exchange, key)
