"""Deliveries as consumers get them, found in the bytes of a connection without decoding their properties."""

import struct
from typing import Final, NamedTuple

from pika import spec

from delaystore.transports.rabbitmq.raw.properties import RawProperties

FRAME: Final = struct.Struct(">BHI")
"""Type, channel and size, before a frame's payload."""
CONTENT: Final = struct.Struct(">HHQ")
"""Class, weight and body size, before the properties."""
_DELIVER: Final = struct.pack(">HH", spec.Basic.INDEX, spec.Basic.Deliver.INDEX & 0xFFFF)
_TAG: Final = struct.Struct(">QB")
"""The delivery tag, and whether it is redelivered."""
INCOMPLETE: Final = -1
OTHERWISE: Final = -2


class Delivery(NamedTuple):
    """A message as a consumer gets it. `exchange`, `routing_key`: bytes where they are no UTF-8."""

    consumer: str
    tag: int
    redelivered: bool
    exchange: str | bytes
    routing_key: str | bytes
    properties: RawProperties
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of its body and of its properties, headers too."""
        return len(self.body) + len(self.properties.encoded)


def begins_delivery(data: bytes, at: int) -> bool:
    """Whether the method frame at `at` is a basic.deliver."""
    return data.startswith(_DELIVER, at + FRAME.size)


def end_of_content(data: bytes, at: int, channel: int) -> int:
    """The end of the header that begins at `at` and of the one body frame after it; or INCOMPLETE, or OTHERWISE."""
    if at + FRAME.size > len(data):
        return INCOMPLETE
    kind, its_channel, size = FRAME.unpack_from(data, at)
    if kind != spec.FRAME_HEADER or its_channel != channel:
        return OTHERWISE
    end: int = at + FRAME.size + size + 1
    if end > len(data):
        return INCOMPLETE
    body_size = CONTENT.unpack_from(data, at + FRAME.size)[2]
    if not body_size:
        return end
    if end + FRAME.size > len(data):
        return INCOMPLETE
    kind, its_channel, size = FRAME.unpack_from(data, end)
    if kind != spec.FRAME_BODY or its_channel != channel or size != body_size:
        return OTHERWISE
    end += FRAME.size + size + 1
    return end if end <= len(data) else INCOMPLETE


def delivery_in(data: bytes, start: int, header: int) -> Delivery:
    """What a basic.deliver at `start`, a header at `header` and the body behind it say."""
    at = start + FRAME.size + len(_DELIVER)
    consumer, at = _short(data, at)
    tag, redelivered = _TAG.unpack_from(data, at)
    exchange, at = _short(data, at + _TAG.size)
    key, at = _short(data, at)
    size = FRAME.unpack_from(data, header)[2]
    properties = data[header + FRAME.size + CONTENT.size : header + FRAME.size + size]
    body_size = CONTENT.unpack_from(data, header + FRAME.size)[2]
    body = header + FRAME.size + size + 1 + FRAME.size
    return Delivery(
        consumer.decode(),
        tag,
        bool(redelivered & 1),
        _text(exchange),
        _text(key),
        RawProperties(properties),
        data[body : body + body_size],
    )


def _short(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end], end


def _text(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
