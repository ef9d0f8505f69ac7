"""Connections that survive a message whose headers pika cannot read.

Anybody may have sent it, with a time in milliseconds, say, which no datetime holds. pika would end the connection, and
with it every look at the queue: nobody could see the other messages, or remove this one.
"""

import struct
from typing import Any, Final

import pika
from pika import data, exceptions, frame, spec
from typing_extensions import override

from delaystore.headers import UNREAD_HEADERS
from delaystore.transports.rabbitmq.delay_headers import COUNTED_BY_QUEUE

_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
"""Class, weight and body size, before the properties."""
_FLAGS: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")


class UnreadProperties(spec.BasicProperties):  # type: ignore[misc] # pika's class is untyped here
    """Properties with headers that pika cannot read.

    `headers` has only why, and how often the queue counts that the message was given back. Raises struct.error,
    IndexError for what are no properties at all.
    """

    def __init__(self, encoded: bytes, reason: str) -> None:
        super().__init__()
        others, table = _split(encoded)
        self.decode(others)
        self.headers = {UNREAD_HEADERS: reason, **_counts(table)}

    @override
    def encode(self) -> list[bytes]:
        """Raises ValueError: the headers would be missing."""
        raise ValueError("its headers cannot be read")


class LenientConnection(pika.SelectConnection):  # type: ignore[misc] # pika's class is untyped here
    """A connection whose messages have UnreadProperties where pika raises whatever it does."""

    @override
    def _read_frame(self) -> tuple[int, Any]:
        try:
            found: tuple[int, Any] = super()._read_frame()
        except exceptions.InvalidFrameError:
            raise
        except Exception as error:
            buffer: bytes = self._frame_buffer
            kind, channel, size = _FRAME.unpack_from(buffer)
            if kind != spec.FRAME_HEADER:
                raise
            _, _, body_size = _CONTENT.unpack_from(buffer, _FRAME.size)
            end = _FRAME.size + size
            properties = UnreadProperties(buffer[_FRAME.size + _CONTENT.size : end], _words(error))
            return end + 1, frame.Header(channel, body_size, properties)
        return found


def _split(encoded: bytes) -> tuple[bytes, bytes]:
    """The properties without headers, and the table of these."""
    (flags,) = _FLAGS.unpack_from(encoded)
    at = _FLAGS.size
    for flag in (spec.BasicProperties.FLAG_CONTENT_TYPE, spec.BasicProperties.FLAG_CONTENT_ENCODING):
        if flags & flag:
            at += 1 + encoded[at]
    if not flags & spec.BasicProperties.FLAG_HEADERS:
        return encoded, b""
    (length,) = _LENGTH.unpack_from(encoded, at)
    begin = at + _LENGTH.size
    flags &= ~spec.BasicProperties.FLAG_HEADERS
    return _FLAGS.pack(flags) + encoded[_FLAGS.size : at] + encoded[begin + length :], encoded[begin : begin + length]


def _counts(table: bytes) -> dict[str, int]:
    """What a queue has counted, as far as it is found."""
    counts: dict[str, int] = {}
    for name in COUNTED_BY_QUEUE:
        entry = bytes([len(name)]) + name.encode()
        at = table.rfind(entry)
        if at >= 0 and table[at + len(entry) : at + len(entry) + 1] in (b"l", b"I", b"i", b"u", b"U", b"b", b"B"):
            counts[name] = int(data.decode_value(table, at + len(entry))[0])
    return counts


def _words(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error) or type(error).__name__
