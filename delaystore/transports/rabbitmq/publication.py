"""Publications, and their bytes on the wire.

pika marshals three objects a message and writes each to the socket separately, which costs more than the broker's
work. A publish's method frame is the same for every message of a destination and the header of a plain message is a
handful of fields, so both are written here; everything else is left to pika's encoders.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pika import frame, spec

from delaystore.errors import UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.text import Address, parse_address
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.properties import PERSISTENT, amqp_properties, encoding_errors
from delaystore.transports.rabbitmq.topology import Binding, DestinationKind, Queue

FRAME_OVERHEAD: Final = 8
"""Bytes around a frame's payload: type, channel, size, and the end mark (AMQP 0-9-1, 2.3.5)."""
_END: Final = bytes([spec.FRAME_END])
_FRAME: Final = struct.Struct(">BHI")
_PLAIN_HEADER: Final = struct.Struct(">BHIHHQHBB")
"""Frame type, channel, size; class, weight, body size, property flags; delivery mode, length of the message id."""
_PLAIN_FLAGS: Final = spec.BasicProperties.FLAG_DELIVERY_MODE | spec.BasicProperties.FLAG_MESSAGE_ID
_PLAIN_FIXED_SIZE: Final = _PLAIN_HEADER.size - _FRAME.size


class Publishable(Protocol):
    """A message that can be published, and its address."""

    @property
    def address(self) -> Address:
        """The exchange and routing key."""

    @property
    def message_id(self) -> str | None:
        """The message's id, which identifies it when the broker returns it; None: it has none."""

    @property
    def body(self) -> bytes:
        """The content."""

    @property
    def mandatory(self) -> bool:
        """Whether the broker returns it if no queue takes it."""

    @property
    def requires(self) -> Sequence[Queue | Binding]:
        """Queues that must exist and bindings that are made, right before it is published."""

    @property
    def suspect(self) -> bool:
        """Whether the broker may close a channel for its properties or headers."""

    def content_header(self, channel_number: int) -> bytes:
        """The frame that holds the properties; raises UnsupportedMessageError if they cannot be encoded."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A message, and the address it is published to."""

    message: DelayedMessage
    address: Address
    mandatory: bool = True
    """Whether the broker returns it if no queue takes it."""
    requires: Sequence[Queue | Binding] = ()
    """Queues that must exist and bindings that are made, right before it is published."""

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self.message.message_id

    @property
    def body(self) -> bytes:
        """The message's body."""
        return self.message.body

    @property
    def suspect(self) -> bool:
        """Whether it has an expiration, or carbon copies, which may be malformed."""
        return "expiration" in self.message.properties or "CC" in self.message.headers

    def content_header(self, channel_number: int) -> bytes:
        """The frame that holds the message's properties; raises UnsupportedMessageError."""
        message = self.message
        if message.headers or message.properties:
            with encoding_errors(message):
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


def publication_of(message: DelayedMessage) -> Publication | Outcome:
    """The publication of `message` to its destination; UNROUTABLE if that is no address."""
    try:
        return Publication(message, parse_address(message.destination))
    except UnsupportedMessageError as error:
        return Outcome(OutcomeKind.UNROUTABLE, str(error))


def requirement(channel_number: int, part: Queue | Binding) -> bytes:
    """The frame that looks a queue up, or makes a binding. The broker answers only by closing the channel.

    404: the queue is missing, or the binding's exchange.
    """
    if isinstance(part, Queue):
        method = spec.Queue.Declare(queue=part.name, passive=True, nowait=True)
    elif part.kind is DestinationKind.QUEUE:
        method = spec.Queue.Bind(
            queue=part.destination, exchange=part.source, routing_key=part.routing_key, nowait=True
        )
    else:
        method = spec.Exchange.Bind(
            destination=part.destination, source=part.source, routing_key=part.routing_key, nowait=True
        )
    marshalled: bytes = frame.Method(channel_number, method).marshal()
    return marshalled


def publish_method(channel_number: int, address: Address, *, mandatory: bool = True) -> bytes:
    """The frame that opens a publish to `address`."""
    method = spec.Basic.Publish(exchange=address.exchange, routing_key=address.routing_key, mandatory=mandatory)
    marshalled: bytes = frame.Method(channel_number, method).marshal()
    return marshalled


def body_frames(channel_number: int, body: bytes, frame_max: int) -> bytes:
    """The frames that hold `body`, none for an empty one; each at most `frame_max` bytes."""
    room = frame_max - FRAME_OVERHEAD
    if len(body) <= room:
        return _FRAME.pack(spec.FRAME_BODY, channel_number, len(body)) + body + _END if body else b""
    parts = (body[start : start + room] for start in range(0, len(body), room))
    return b"".join(_FRAME.pack(spec.FRAME_BODY, channel_number, len(part)) + part + _END for part in parts)


def body_pieces(channel_number: int, body: bytes, frame_max: int) -> Iterator[bytes | memoryview]:
    """The bytes of `body_frames`, one piece after the other, without a copy of the body. For bodies of many frames."""
    room = frame_max - FRAME_OVERHEAD
    whole = memoryview(body)
    end = b""
    for start in range(0, len(body), room):
        part = whole[start : start + room]
        yield end + _FRAME.pack(spec.FRAME_BODY, channel_number, len(part))
        yield part
        end = _END
    yield end
