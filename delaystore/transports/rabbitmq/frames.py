"""A publish as bytes on the wire.

pika marshals three objects a message and writes each to the socket by itself, which costs more than the broker's
work. A publish's method frame is the same for every message of a destination and the header of a plain message is a
handful of fields, so both are written here; everything else is left to pika's encoders.
"""

import struct
from typing import Final

from pika import frame, spec

from delaystore.message import DelayedMessage
from delaystore.transports.rabbitmq.address import Address
from delaystore.transports.rabbitmq.properties import PERSISTENT, amqp_properties

FRAME_OVERHEAD: Final = 8
"""Bytes around a frame's payload: type, channel, size, and the end mark (AMQP 0-9-1, 2.3.5)."""
_END: Final = bytes([spec.FRAME_END])
_FRAME: Final = struct.Struct(">BHI")
_PLAIN_HEADER: Final = struct.Struct(">BHIHHQHBB")
"""Frame type, channel, size; class, weight, body size, property flags; delivery mode, length of the message id."""
_PLAIN_FLAGS: Final = spec.BasicProperties.FLAG_DELIVERY_MODE | spec.BasicProperties.FLAG_MESSAGE_ID
_PLAIN_FIXED_SIZE: Final = _PLAIN_HEADER.size - _FRAME.size


def publish_method(channel_number: int, address: Address, *, mandatory: bool = True) -> bytes:
    """The frame that opens a publish to `address`."""
    method = spec.Basic.Publish(exchange=address.exchange, routing_key=address.routing_key, mandatory=mandatory)
    marshalled: bytes = frame.Method(channel_number, method).marshal()
    return marshalled


def content_header(channel_number: int, message: DelayedMessage) -> bytes:
    """The frame that holds a message's properties; UnsupportedMessageError if they cannot be encoded."""
    if message.headers or message.properties:
        marshalled: bytes = frame.Header(channel_number, len(message.body), amqp_properties(message)).marshal()
        return marshalled
    message_id = message.message_id.encode()
    size = _PLAIN_FIXED_SIZE + len(message_id)
    fields = _PLAIN_HEADER.pack(
        spec.FRAME_HEADER,
        channel_number,
        size,
        spec.BasicProperties.INDEX,
        0,
        len(message.body),
        _PLAIN_FLAGS,
        PERSISTENT,
        len(message_id),
    )
    return fields + message_id + _END


def body_frames(channel_number: int, body: bytes, frame_max: int) -> bytes:
    """The frames that hold `body`, none for an empty one; each at most `frame_max` bytes."""
    room = frame_max - FRAME_OVERHEAD
    if len(body) <= room:
        return _FRAME.pack(spec.FRAME_BODY, channel_number, len(body)) + body + _END if body else b""
    parts = (body[start : start + room] for start in range(0, len(body), room))
    return b"".join(_FRAME.pack(spec.FRAME_BODY, channel_number, len(part)) + part + _END for part in parts)
