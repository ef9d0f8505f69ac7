"""Connections that leave a message's properties undecoded."""

import struct
from typing import Any, Final

import pika
from pika import exceptions, frame, spec

from delaystore.errors import TransportUnavailableError
from delaystore.transports.rabbitmq.logs import quiet_pika
from delaystore.transports.rabbitmq.moving.raw import RawProperties
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.reasons import reason_of

_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
"""Class, weight and body size, before the properties."""
_HEARTBEAT: Final = 60
"""Seconds. They are answered whenever messages are received."""


class RawConnection(pika.SelectConnection):  # type: ignore[misc] # pika's class is untyped here
    """A connection whose messages have `RawProperties`.

    pika reads a frame from the front of its buffer and copies the rest, for each frame; here the buffer is cut once.
    """

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


def open_raw(broker: Broker) -> Any:
    """A blocking connection whose messages have `RawProperties`; raises TransportUnavailableError."""
    try:
        with quiet_pika():
            return pika.BlockingConnection(broker.parameters(heartbeat=_HEARTBEAT), _impl_class=RawConnection)
    except (exceptions.AMQPError, OSError) as error:
        raise TransportUnavailableError(f"RabbitMQ at {broker.label} cannot be reached: {reason_of(error)}") from None
