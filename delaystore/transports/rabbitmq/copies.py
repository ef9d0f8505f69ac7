"""Copies of messages: published as they came, or kept with a reason until they are restored."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delaystore import text
from delaystore.text import DEFAULT_EXCHANGE, EXPIRATION, Address
from delaystore.transports.rabbitmq.raw import (
    MalformedPropertiesError,
    RawProperties,
    TableEntry,
    bytes_value,
    integer_value,
    text_of,
    text_value,
    with_entries,
)
from delaystore.transports.rabbitmq.topology import Binding, Queue


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that is published in a message's place; a `Publishable`."""

    address: Address
    properties: RawProperties
    body: bytes
    mandatory: bool = True
    requires: Sequence[Queue | Binding] = ()

    @property
    def message_id(self) -> str | None:
        """The message's own id; None: it has none."""
        return self.properties.message_id

    @property
    def suspect(self) -> bool:
        """Whether it has a property that the broker checks: a user, an expiration."""
        return not self.properties.fields.keys().isdisjoint(("user_id", "expiration"))

    def content_header(self, channel_number: int) -> bytes:
        """The frame that holds the properties."""
        return self.properties.content_header(channel_number, len(self.body))


_MOVED_HEADERS: Final = {"user_id": "delaystore.user-id", "expiration": EXPIRATION}
"""Properties that must not take effect again, and the headers that keep them."""
CARBON_COPIES: Final = {name.encode(): kept.encode() for name, kept in text.CARBON_COPIES.items()}
"""Headers that would have copies sent to other queues, and the headers that keep them."""
_MILLISECONDS: Final = re.compile(r"\+?[0-9]{1,20}")
_NAMES: Final = {kept: name for name, kept in CARBON_COPIES.items()}
_PERSISTENT: Final = {"delivery_mode": b"\x02"}
"""A copy's properties where it cannot have the message's: a queue that is no quorum queue keeps it as well."""
_MOST: Final = 112 * 1024
"""Bytes of properties that fit into a frame beside any text of an error."""


class PropertiesKeptAsBytesError(ValueError):
    """The properties were kept as bytes, in a header or before the body."""


def copy_with_reason(
    queue: str, properties: RawProperties, body: bytes, said: Sequence[TableEntry], whole: str
) -> Copy:
    """A copy that only people look at, with the headers `said`.

    Properties that the broker would act upon are kept in headers of other names: user_id, expiration, CC and BCC.
    Properties that cannot be read are kept whole in the header `whole`. Properties that leave no room for `said`
    stand before the body, and the header `whole` with `-size` behind it says how many bytes they are. A sender's own
    headers that begin as `whole` does, such as `delaystore.rejected-`, are left out: only delaystore says where a
    message was published to.
    """
    kept = _changed(properties, said, whole)
    if len(kept.encoded) > _MOST:
        size = TableEntry(_size_of(whole), integer_value(len(properties.encoded)))
        kept, body = RawProperties.of(_PERSISTENT).changed([*said, size]), properties.encoded + body
    return Copy(Address(DEFAULT_EXCHANGE, queue), kept, body)


def restored(properties: RawProperties, whole: str) -> RawProperties:
    """The properties that `copy_with_reason` was given, and the headers `said`. `whole`: as given there.

    user_id stays in its header: the broker takes it from that user alone. Raises PropertiesKeptAsBytesError, and
    MalformedPropertiesError.
    """
    found = dict(properties.headers)
    if not found.keys().isdisjoint({whole.encode(), _size_of(whole)}):
        raise PropertiesKeptAsBytesError(whole)
    expiration = _expiration_of(found)
    own = [
        TableEntry(_NAMES.get(name, name), value)
        for name, value in properties.headers
        if expiration is None or name != EXPIRATION.encode()
    ]
    before = properties.changed(own)
    if expiration is None:
        return before
    return RawProperties.of({**before.fields, "expiration": bytes((len(expiration),)) + expiration})


def _expiration_of(headers: dict[bytes, bytes]) -> bytes | None:
    """The expiration that a header keeps; None: there is none, or the header is a sender's own and no expiration."""
    text = text_of(headers.get(EXPIRATION.encode())) or ""
    return text.encode() if _MILLISECONDS.fullmatch(text) else None


def _size_of(whole: str) -> bytes:
    """The header that says how many bytes of properties stand before the body."""
    return f"{whole}-size".encode()


def _changed(properties: RawProperties, said: Sequence[TableEntry], whole: str) -> RawProperties:
    try:
        moved = [
            TableEntry(header.encode(), text_value(value))
            for name, header in _MOVED_HEADERS.items()
            if (value := properties.text(name)) is not None
        ]
        forged = whole.removesuffix("properties").encode()
        own = [
            TableEntry(CARBON_COPIES.get(name, name), value)
            for name, value in properties.headers
            if not name.startswith(forged)
        ]
        return properties.changed(with_entries(own, *moved, *said), without=list(_MOVED_HEADERS))
    except MalformedPropertiesError:
        return RawProperties.of(_PERSISTENT).changed(
            [*said, TableEntry(whole.encode(), bytes_value(properties.encoded))]
        )
