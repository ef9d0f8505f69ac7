"""Copies of messages that are put aside: what they were is kept, and takes no effect until it is restored."""

import re
from collections.abc import Sequence
from typing import Final

from delaystore import headers
from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.headers import EXPIRATION, REJECTED_PROPERTIES
from delaystore.transports.rabbitmq.raw.copies import Copy
from delaystore.transports.rabbitmq.raw.properties import MalformedPropertiesError, RawProperties
from delaystore.transports.rabbitmq.raw.tables import (
    Entry,
    bytes_value,
    integer_value,
    text_of,
    text_value,
    with_entries,
)

_SET_ASIDE: Final = {"user_id": "delaystore.user-id", "expiration": EXPIRATION}
"""Properties that must not take effect again, and the headers that keep them."""
CARBON_COPIES: Final = {name.encode(): kept.encode() for name, kept in headers.CARBON_COPIES.items()}
"""Headers that would have copies sent elsewhere, and those that keep them."""
_MILLISECONDS: Final = re.compile(r"\+?[0-9]{1,20}")
_NAMES: Final = {kept: name for name, kept in CARBON_COPIES.items()}
_PERSISTENT: Final = {"delivery_mode": b"\x02"}
"""What a copy has in place of properties that it cannot have: a queue that is no quorum queue keeps it as well."""
_MOST: Final = 112 * 1024
"""Bytes of properties that fit into a frame, whatever it is that is said beside them."""


class PutAsideWholeError(ValueError):
    """The properties were put aside as bytes, in a header or before the body."""


def rejected_copy(queue: str, properties: RawProperties, body: bytes, said: Sequence[Entry]) -> Copy:
    """A copy for a rejected queue, as `copy_aside` makes it."""
    return copy_aside(queue, properties, body, said, REJECTED_PROPERTIES)


def copy_aside(queue: str, properties: RawProperties, body: bytes, said: Sequence[Entry], whole: str) -> Copy:
    """A copy that only people look at, with the headers `said`.

    What the broker would act upon is kept in headers of other names: user_id, expiration, CC and BCC. Properties that
    cannot be read are kept whole in the header `whole`. Those that leave no room for `said` stand before the body, and
    the header `whole` with `-size` behind it says how many bytes they are. A sender's own headers that begin as `whole`
    does, such as `delaystore.rejected-`, are left out: only delaystore says where a message was published to.
    """
    aside = _changed(properties, said, whole)
    if len(aside.encoded) > _MOST:
        size = Entry(_size_of(whole), integer_value(len(properties.encoded)))
        aside, body = RawProperties.of(_PERSISTENT).changed([*said, size]), properties.encoded + body
    return Copy(Address(DEFAULT_EXCHANGE, queue), aside, body)


def restored(properties: RawProperties, whole: str) -> RawProperties:
    """What `copy_aside` was given, with the headers `said` beside its own. `whole`: as it was told.

    user_id stays in its header: the broker takes it from that user alone. Raises PutAsideWholeError, and
    MalformedPropertiesError.
    """
    found = dict(properties.headers)
    if not found.keys().isdisjoint({whole.encode(), _size_of(whole)}):
        raise PutAsideWholeError(whole)
    expiration = _expiration_of(found)
    own = [
        Entry(_NAMES.get(name, name), value)
        for name, value in properties.headers
        if expiration is None or name != EXPIRATION.encode()
    ]
    before = properties.changed(own)
    if expiration is None:
        return before
    return RawProperties.of({**before.fields, "expiration": bytes((len(expiration),)) + expiration})


def _expiration_of(headers: dict[bytes, bytes]) -> bytes | None:
    """The expiration that was set aside; None: there is none, or it is somebody else's header, and none could be so."""
    text = text_of(headers.get(EXPIRATION.encode())) or ""
    return text.encode() if _MILLISECONDS.fullmatch(text) else None


def _size_of(whole: str) -> bytes:
    """The header that says how many bytes of properties stand before the body."""
    return f"{whole}-size".encode()


def _changed(properties: RawProperties, said: Sequence[Entry], whole: str) -> RawProperties:
    try:
        aside = [
            Entry(header.encode(), text_value(value))
            for name, header in _SET_ASIDE.items()
            if (value := properties.text(name)) is not None
        ]
        forged = whole.removesuffix("properties").encode()
        own = [
            Entry(CARBON_COPIES.get(name, name), value)
            for name, value in properties.headers
            if not name.startswith(forged)
        ]
        return properties.changed(with_entries(own, *aside, *said), without=list(_SET_ASIDE))
    except MalformedPropertiesError:
        return RawProperties.of(_PERSISTENT).changed([*said, Entry(whole.encode(), bytes_value(properties.encoded))])
