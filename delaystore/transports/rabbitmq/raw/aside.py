"""Copies of messages that are put aside: what they were is kept, and nothing of it takes effect again."""

from collections.abc import Sequence
from typing import Final

from delaystore.address import Address
from delaystore.headers import EXPIRATION
from delaystore.transports.rabbitmq.raw.copies import Copy
from delaystore.transports.rabbitmq.raw.properties import MalformedPropertiesError, RawProperties
from delaystore.transports.rabbitmq.raw.tables import Entry, bytes_value, integer_value, text_value, with_entries

_SET_ASIDE: Final = {"user_id": "delaystore.user-id", "expiration": EXPIRATION}
"""Properties that must not take effect again, and the headers that keep them."""
CARBON_COPIES: Final = {b"CC": b"delaystore.cc", b"BCC": b"delaystore.bcc"}
"""Headers that would have copies sent elsewhere, and those that keep them."""

IN_BODY: Final = "delaystore.rejected-properties-bytes"
_ROOMY: Final = 120 * 1024
"""Bytes of properties. A frame has 128 KiB; the rest is for headers that say what is wrong."""


def aside_copy(address: Address, properties: RawProperties, body: bytes, said: Sequence[Entry], unread: str) -> Copy:
    """A copy that only people look at, with the headers `said`; see `put_aside`.

    Properties beside which a frame has no room lie before the body. The header IN_BODY says how many bytes they are.
    """
    size = len(properties.encoded)
    if size <= _ROOMY:
        return Copy(address, put_aside(properties, said, unread), body)
    counted = Entry(IN_BODY.encode(), integer_value(size))
    return Copy(
        address, RawProperties.of({"delivery_mode": b"\x02"}).changed([*said, counted]), properties.encoded + body
    )


def put_aside(properties: RawProperties, said: Sequence[Entry], unread: str) -> RawProperties:
    """`properties` with the headers `said`, for a copy that only people look at.

    What the broker would act upon is kept in headers of other names: user_id, expiration, CC and BCC. Properties that
    cannot be read are kept whole in the header `unread`.
    """
    try:
        aside = [
            Entry(header.encode(), text_value(value))
            for name, header in _SET_ASIDE.items()
            if (value := properties.text(name)) is not None
        ]
        own = [Entry(CARBON_COPIES.get(name, name), value) for name, value in properties.headers]
        return properties.changed(with_entries(own, *aside, *said), without=list(_SET_ASIDE))
    except MalformedPropertiesError:
        return RawProperties(bytes(2)).changed([*said, Entry(unread.encode(), bytes_value(properties.encoded))])
