"""What cannot be moved, as it goes to the poison queue."""

from typing import Final

from delaystore.headers import EXPIRATION
from delaystore.transports.rabbitmq.address import DEFAULT_EXCHANGE, Address
from delaystore.transports.rabbitmq.moving.messages import Copy, WaitingMessage
from delaystore.transports.rabbitmq.moving.planning import with_entries
from delaystore.transports.rabbitmq.moving.raw import MalformedPropertiesError, RawProperties
from delaystore.transports.rabbitmq.moving.tables import Entry, bytes_value, text_value

POISON_REASON: Final = "delaystore.poison-reason"
POISON_QUEUE: Final = "delaystore.poison-queue"
"""The level queue it was read from."""
POISON_ROUTING_KEY: Final = "delaystore.poison-routing-key"
"""The routing key it was read with: its delay and its destination."""
POISON_PROPERTIES: Final = "delaystore.poison-properties"
"""Properties that cannot be read, as they came."""
_ASIDE: Final = {"user_id": "delaystore.user-id", "expiration": EXPIRATION}
"""Properties that must not take effect again, and the headers that keep them."""
_RENAMED: Final = {b"CC": b"delaystore.cc", b"BCC": b"delaystore.bcc"}


def poisoned(message: WaitingMessage, reason: str, queue: str) -> Copy:
    """A copy of `message` for `queue`, with its own headers and why it is there.

    What the broker would act upon is kept in headers of other names: user_id, expiration, CC and BCC.
    """
    key = message.routing_key
    said = [
        Entry(POISON_REASON.encode(), text_value(reason)),
        Entry(POISON_QUEUE.encode(), text_value(message.queue)),
        Entry(POISON_ROUTING_KEY.encode(), text_value(key) if isinstance(key, str) else bytes_value(key)),
    ]
    try:
        properties = message.properties
        aside = [
            Entry(header.encode(), text_value(value))
            for name, header in _ASIDE.items()
            if (value := properties.text(name)) is not None
        ]
        own = [Entry(_RENAMED.get(name, name), value) for name, value in properties.headers]
        changed = properties.changed(with_entries(own, *aside, *said), without=list(_ASIDE))
    except MalformedPropertiesError:
        said.append(Entry(POISON_PROPERTIES.encode(), bytes_value(message.properties.encoded)))
        changed = RawProperties(bytes(2)).changed(said)
    return Copy(Address(DEFAULT_EXCHANGE, queue), changed, message.body)
