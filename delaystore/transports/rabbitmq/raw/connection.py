"""Connections that leave a message's properties undecoded."""

import struct
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, Final, NamedTuple

import pika
from pika import exceptions, frame, spec
from pika.channel import ContentFrameAssembler
from typing_extensions import override

from delaystore.transports.rabbitmq.opening import open_connection
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.raw.properties import RawProperties

_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
"""Class, weight and body size, before the properties."""
_DELIVER: Final = struct.pack(">HH", spec.Basic.INDEX, spec.Basic.Deliver.INDEX & 0xFFFF)
_TAG: Final = struct.Struct(">QB")
"""The delivery tag, and whether it is redelivered."""
_INCOMPLETE: Final = -1
_OTHERWISE: Final = -2
_READ_AT_ONCE: Final = 64 * 1024
"""Bytes. pika reads 4 KiB at a time, ten small messages or so."""
_HEARTBEAT: Final = 60
"""Seconds. Heartbeats are answered whenever messages are received."""


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


class _Parts(BytesIO):
    """The parts of a body that have come: of pika's list of them, what it uses. They are joined as they come."""

    append = BytesIO.write

    @override
    def __iter__(self) -> Iterator[bytes]:
        return iter((self.getvalue(),))  # its own buffer: no copy


class _Assembler(ContentFrameAssembler):  # type: ignore[misc] # pika's class is untyped here
    """Makes bodies of their parts within their own size; pika joins a list, which takes it twice."""

    def __init__(self) -> None:
        super().__init__()
        self._body_fragments = _Parts()

    @override
    def _reset(self) -> None:
        super()._reset()
        self._body_fragments = _Parts()


class RawConnection(pika.SelectConnection):  # type: ignore[misc] # pika's class is untyped here
    """A connection whose messages have `RawProperties`.

    pika copies the rest of its buffer for each frame that it reads; here the buffer is cut once. `on_delivery`, if it
    is set, is called at once with each message that has come whole and has one body frame. Larger messages go through
    pika's queue of events.
    """

    on_delivery: Callable[[Delivery], None] | None = None

    @override
    def _proto_connection_made(self, transport: Any) -> None:
        transport._MAX_RECV_BYTES = _READ_AT_ONCE
        super()._proto_connection_made(transport)

    @override
    def _create_channel(self, channel_number: int, on_open_callback: Any) -> Any:
        channel = super()._create_channel(channel_number, on_open_callback)
        channel._content_assembler = _Assembler()
        return channel

    @override
    def _on_data_available(self, data_in: bytes) -> None:
        if not self.is_open:
            super()._on_data_available(data_in)
            return
        data: bytes = self._frame_buffer + data_in  # type: ignore[has-type] # pika does not say
        at = 0
        try:
            while at + _FRAME.size <= len(data):
                kind, channel, size = _FRAME.unpack_from(data, at)
                end = at + _FRAME.size + size + 1
                if end > len(data):
                    break
                if kind == spec.FRAME_METHOD and self.on_delivery is not None and data.startswith(_DELIVER, at + 7):
                    after = _end_of_content(data, end, channel)
                    if after == _INCOMPLETE:
                        break
                    if after != _OTHERWISE:
                        start, at = at, after
                        self.on_delivery(_delivery(data, start, end))
                        continue
                value = self._decoded(kind, channel, data[at:end])
                at = end
                self._process_frame(value)
        finally:
            self._frame_buffer = data[at:]
            self.bytes_received += at

    def _decoded(self, kind: int, channel: int, data: bytes) -> Any:
        if kind != spec.FRAME_HEADER:
            return frame.decode_frame(data)[1]
        if data[-1] != spec.FRAME_END:
            raise exceptions.InvalidFrameError("Invalid FRAME_END marker")
        body_size = _CONTENT.unpack_from(data, _FRAME.size)[2]
        return frame.Header(channel, body_size, RawProperties(data[_FRAME.size + _CONTENT.size : -1]))


def _end_of_content(data: bytes, at: int, channel: int) -> int:
    """The end of the header that begins at `at` and of the one body frame after it; or _INCOMPLETE, or _OTHERWISE."""
    if at + _FRAME.size > len(data):
        return _INCOMPLETE
    kind, its_channel, size = _FRAME.unpack_from(data, at)
    if kind != spec.FRAME_HEADER or its_channel != channel:
        return _OTHERWISE
    end: int = at + _FRAME.size + size + 1
    if end > len(data):
        return _INCOMPLETE
    body_size = _CONTENT.unpack_from(data, at + _FRAME.size)[2]
    if not body_size:
        return end
    if end + _FRAME.size > len(data):
        return _INCOMPLETE
    kind, its_channel, size = _FRAME.unpack_from(data, end)
    if kind != spec.FRAME_BODY or its_channel != channel or size != body_size:
        return _OTHERWISE
    end += _FRAME.size + size + 1
    return end if end <= len(data) else _INCOMPLETE


def _delivery(data: bytes, start: int, header: int) -> Delivery:
    """What a basic.deliver at `start`, a header at `header` and the body behind it say."""
    at = start + _FRAME.size + len(_DELIVER)
    consumer, at = _short(data, at)
    tag, redelivered = _TAG.unpack_from(data, at)
    exchange, at = _short(data, at + _TAG.size)
    key, at = _short(data, at)
    size = _FRAME.unpack_from(data, header)[2]
    properties = data[header + _FRAME.size + _CONTENT.size : header + _FRAME.size + size]
    body_size = _CONTENT.unpack_from(data, header + _FRAME.size)[2]
    body = header + _FRAME.size + size + 1 + _FRAME.size
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


def open_raw(broker: Broker) -> Any:
    """A blocking connection whose messages have `RawProperties`; raises TransportUnavailableError."""
    return open_connection(broker, heartbeat=_HEARTBEAT, impl_class=RawConnection)
