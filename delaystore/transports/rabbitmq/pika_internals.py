"""All our code that touches pika's private members. pika is pinned to a minor release for them.

What pika offers in public is not enough for these:

- `RawConnection`: pika decodes all properties, fails for some, and copies its buffer for each frame.
- `PunctualConnection`: pika waits forever for a broker that answers heartbeats, and not the request.
- Sockets: pika does not tell which bytes have not left this machine, and cannot let go of a forked parent's socket.
- `write_frames`: `Channel.basic_publish` writes each frame separately, which costs more than the broker's work.
- `server_properties`, `frames_of`, `closing_reason`, `end_stream`, `call_on_delivery`: pika knows, and has no public
  way to it for the kind of connection in question.
"""

import fcntl
import struct
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final

import pika
from pika import exceptions, frame, spec
from pika.channel import ContentFrameAssembler
from typing_extensions import override

from delaystore.transports.rabbitmq.nodes import Node
from delaystore.transports.rabbitmq.properties import decoded_properties
from delaystore.transports.rabbitmq.raw import (
    CONTENT,
    DELIVER,
    FRAME,
    INCOMPLETE,
    OTHERWISE,
    RawDelivery,
    RawProperties,
    delivery_in,
    end_of_content,
)

_READ_AT_ONCE: Final = 64 * 1024
"""Bytes. pika reads 4 KiB at a time, ten small messages or so."""
ANSWER: Final = 30.0
"""Seconds that a broker has for an answer, by default. Declaring a queue may take a busy one some."""
_NUMBER: Final = struct.Struct("i")


class SilenceError(exceptions.AMQPHeartbeatTimeout):  # type: ignore[misc] # pika's class is untyped here
    """A connection was ended because an answer did not come in time."""


class _BytesInParts(BytesIO):
    """The parts of a body that have come, with the methods of a list that pika uses. They are joined as they come."""

    append = BytesIO.write

    @override
    def __iter__(self) -> Iterator[bytes]:
        return iter((self.getvalue(),))  # its own buffer: no copy


class _Assembler(ContentFrameAssembler):  # type: ignore[misc] # pika's class is untyped here
    """Makes bodies of their parts within their own size; pika joins a list, which takes it twice."""

    def __init__(self) -> None:
        super().__init__()
        self._body_fragments = _BytesInParts()

    @override
    def _reset(self) -> None:
        super()._reset()
        self._body_fragments = _BytesInParts()


class RawConnection(pika.SelectConnection):  # type: ignore[misc] # pika's class is untyped here
    """A connection whose messages have `RawProperties`: it reads any properties that others have sent.

    pika copies the rest of its buffer for each frame that it reads; here the buffer is cut once. `on_delivery`, if it
    is set, is called at once with each message that has come whole and has one body frame. Larger messages go through
    pika's queue of events.
    """

    on_delivery: Callable[[RawDelivery], None] | None = None

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
            while at + FRAME.size <= len(data):
                kind, channel, size = FRAME.unpack_from(data, at)
                end = at + FRAME.size + size + 1
                if end > len(data):
                    break
                if (
                    kind == spec.FRAME_METHOD
                    and self.on_delivery is not None
                    and data.startswith(DELIVER, at + FRAME.size)
                ):
                    after = end_of_content(data, end, channel)
                    if after == INCOMPLETE:
                        break
                    if after != OTHERWISE:
                        start, at = at, after
                        self.on_delivery(delivery_in(data, start, end))
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
        body_size = CONTENT.unpack_from(data, FRAME.size)[2]
        raw = RawProperties(data[FRAME.size + CONTENT.size : -1])
        return frame.Header(channel, body_size, self._properties(raw))

    def _properties(self, raw: RawProperties) -> RawProperties | spec.BasicProperties:
        return raw


class DecodedConnection(RawConnection):
    """A connection whose messages have pika's properties, or `UnreadProperties` where pika cannot read the headers.

    pika would end the connection for those, and with it each look at a queue that has such a message.
    """

    @override
    def _properties(self, raw: RawProperties) -> RawProperties | spec.BasicProperties:
        return decoded_properties(raw)


class PunctualConnection(pika.BlockingConnection):  # type: ignore[misc] # pika's class is untyped here
    """A connection that ends, as after missed heartbeats, where an answer does not come within `answer` seconds.

    `answer` None: ANSWER. `node`: the one that it leads to. `decoded`: messages have pika's properties, and not
    `RawProperties`. Every wait of pika's passes `_flush_output`. A wait for messages may last longer, by as much as its
    caller says.
    """

    def __init__(
        self,
        parameters: pika.ConnectionParameters,
        node: Node,
        *,
        answer: float | None = None,
        decoded: bool = False,
    ) -> None:
        super().__init__(parameters, _impl_class=DecodedConnection if decoded else RawConnection)
        self.node = node
        self._answer = ANSWER if answer is None else answer
        self._asked_for = 0.0

    @override
    def process_data_events(self, time_limit: float | None = 0) -> None:
        self._asked_for = time_limit or 0.0
        try:
            super().process_data_events(time_limit)
        finally:
            self._asked_for = 0.0

    @override
    def _flush_output(self, *waiters: Callable[[], bool]) -> None:
        with answered_within(self, self._answer + self._asked_for):
            super()._flush_output(*waiters)


@contextmanager
def answered_within(connection: Any, seconds: float) -> Iterator[None]:
    """End `connection` (a BlockingConnection) unless the block ends within `seconds`."""
    if connection.is_closed:
        yield  # it has no clock any more; what the block asks of it raises pika's own error
        return
    inner = connection._impl
    silence = SilenceError(f"no answer within {seconds:g} s")
    timer = inner._adapter_call_later(seconds, lambda: _end(inner, silence))
    try:
        yield
    finally:
        if connection.is_open:
            inner._adapter_remove_timeout(timer)


def _end(inner: Any, reason: Exception) -> None:
    if inner._transport is not None:  # otherwise it is ending already
        end_stream(inner, reason)


def unsent_by_us(connection: Any) -> int:
    """Bytes that wait in pika's buffer for the socket to take them."""
    transport = connection._transport
    return 0 if transport is None else transport.get_write_buffer_size()


def unsent(connection: Any) -> int:
    """Bytes that the peer's machine has not acknowledged: in pika's buffer, and in the socket's where that is known."""
    return unsent_by_us(connection) + _in_socket(connection)


def _in_socket(connection: Any) -> int:
    transport = connection._transport
    if transport is None or transport._sock is None:
        return 0
    try:
        answer = fcntl.ioctl(transport._sock.fileno(), termios.TIOCOUTQ, bytes(_NUMBER.size))
    except (OSError, ValueError):
        return 0  # a system that does not tell
    number: int = _NUMBER.unpack(answer)[0]
    return number


def drop_socket(connection: Any) -> None:
    """Close the socket of `connection` without telling the broker."""
    transport = getattr(connection, "_transport", None)
    if transport is not None and transport._sock is not None:
        transport._sock.close()


def drop(connection: Any) -> None:
    """Give up a BlockingConnection, and its loop, without telling the broker."""
    drop_socket(connection._impl)
    connection._impl.ioloop.close()


def drop_socket_of(connection: Any) -> None:
    """Close the socket of a BlockingConnection without telling the broker."""
    drop_socket(connection._impl)


def end_stream(connection: Any, reason: Exception) -> None:
    """End a SelectConnection at once, as after missed heartbeats."""
    connection._terminate_stream(reason)


def write_frames(connection: Any, frames: Sequence[bytes | memoryview]) -> None:
    """Hand marshalled frames to the socket of a SelectConnection."""
    connection._output_marshaled_frames(frames)


def server_properties(channel: Any) -> Mapping[str, Any]:
    """The broker's own properties, as it sent them when the BlockingChannel's connection was opened."""
    properties: Mapping[str, Any] = channel.connection._impl.server_properties
    return properties


def virtual_host_of(channel: Any) -> str:
    """The virtual host of the BlockingChannel's connection."""
    return str(channel.connection._impl.params.virtual_host)


def frames_of(channel: Any) -> Any:
    """The channel inside a BlockingChannel: its methods send at once, and wait for no answer."""
    return channel._impl


def closing_reason(channel: Any) -> Exception:
    """Why a BlockingChannel that is closed was closed."""
    reason: Exception = channel._closing_reason
    return reason


def call_on_delivery(connection: PunctualConnection, on_delivery: Callable[[RawDelivery], None]) -> None:
    """Have `on_delivery` called at once with each message that comes in one body frame; see RawConnection."""
    connection._impl.on_delivery = on_delivery
