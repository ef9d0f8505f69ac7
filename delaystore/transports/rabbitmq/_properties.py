"""A message's headers and properties as AMQP properties, there and back."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Any, Final

from pika import exceptions, spec
from pika.compat import long
from typing_extensions import override

from delaystore.errors import UnsupportedMessageError
from delaystore.headers import UNREAD_HEADERS
from delaystore.message import FAR_TIMESTAMPS, PROPERTY_TYPES, DelayedMessage
from delaystore.transports.rabbitmq._floats import ExactProperties
from delaystore.transports.rabbitmq.delay_headers import COUNTED_BY_QUEUE
from delaystore.transports.rabbitmq.raw.properties import MalformedPropertiesError, RawProperties
from delaystore.transports.rabbitmq.raw.tables import integer_of

PERSISTENT: Final = 2
"""The delivery mode that survives a broker's restart, and the one used where none is given."""
UNENCODABLE: Final = (
    AssertionError,
    AttributeError,
    ArithmeticError,
    StructError,
    TypeError,
    UnicodeError,
    ValueError,
    exceptions.ShortStringTooLong,
    exceptions.UnsupportedAMQPFieldException,
)
"""What pika's encoders raise for a value AMQP cannot hold."""


def amqp_properties(message: DelayedMessage) -> spec.BasicProperties:
    """The AMQP properties of `message`: its headers, properties and id; persistent unless it says otherwise.

    A timestamp becomes whole seconds; a header that would be rounded is one of UNENCODABLE, and others are checked
    when they are encoded.
    """
    fields = dict(message.properties)
    timestamp = fields.get("timestamp")
    if isinstance(timestamp, datetime):
        fields["timestamp"] = int(timestamp.timestamp())
    fields.setdefault("delivery_mode", PERSISTENT)
    headers = _plain(message.headers) if message.headers else None
    return ExactProperties(message_id=message.message_id, headers=headers, **fields)


def read_headers(properties: spec.BasicProperties, *, redelivered: bool = False) -> dict[str, Any]:
    """The headers as they were given, without what a quorum queue added to a redelivered message."""
    headers = _plain(properties.headers or {})
    if redelivered:
        for name in COUNTED_BY_QUEUE:
            headers.pop(name, None)
    assert isinstance(headers, dict)
    return headers


def read_properties(properties: spec.BasicProperties) -> dict[str, Any]:
    """The properties that were set, of those in `PROPERTY_TYPES`."""
    found = {name: getattr(properties, name) for name in PROPERTY_TYPES}
    timestamp = found["timestamp"]
    if timestamp is not None and timestamp not in FAR_TIMESTAMPS:
        found["timestamp"] = datetime.fromtimestamp(timestamp, UTC)
    return {name: value for name, value in found.items() if value is not None}


def encoded_properties(message: DelayedMessage) -> bytes:
    """What the content header holds of `message`; UnsupportedMessageError if AMQP cannot hold it."""
    with encoding_errors(message):
        pieces: list[bytes] = amqp_properties(message).encode()
    return b"".join(pieces)


class UnreadProperties(spec.BasicProperties):  # type: ignore[misc] # pika's class is untyped here
    """Properties with headers that pika cannot read.

    Any program may have sent them, with a time in milliseconds, say, which no datetime holds. `headers` has only why,
    and how often the queue counts that the message was given back.
    """

    def __init__(self, raw: RawProperties, reason: str) -> None:
        super().__init__()
        try:
            self.decode(raw.changed(()).encoded)
            counted = {entry.name: integer_of(entry.value) for entry in raw.headers}
        except MalformedPropertiesError:
            counted = {}
        counts = {name: counted.get(name.encode()) for name in COUNTED_BY_QUEUE}
        self.headers = {
            UNREAD_HEADERS: reason,
            **{name: count for name, count in counts.items() if count is not None},
        }

    @override
    def encode(self) -> list[bytes]:
        """Raises ValueError: the headers would be missing."""
        raise ValueError("its headers cannot be read")


def decoded_properties(raw: RawProperties) -> spec.BasicProperties:
    """Pika's properties; UnreadProperties where pika raises whatever it does."""
    try:
        return spec.BasicProperties().decode(raw.encoded)
    except Exception as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error) or type(error).__name__
        return UnreadProperties(raw, reason)


@contextmanager
def encoding_errors(message: DelayedMessage) -> Iterator[None]:
    """Raise what pika's encoders raise for `message` as UnsupportedMessageError, which names the culprit."""
    try:
        yield
    except UNENCODABLE as error:
        raise UnsupportedMessageError(f"AMQP cannot hold {_culprit(message)}: {_words(error)}") from None


def _plain(value: Any) -> Any:
    """`value` with mappings as dict, which pika's encoder wants, and its own 64-bit integers as int, on all levels.

    Raises ValueError for what pika would round.
    """
    if type(value) is str:
        return value
    if type(value) is long:
        return int(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if type(value) is list:
        return [_plain(item) for item in value]
    if isinstance(value, datetime) and value.microsecond:
        raise ValueError("times have whole seconds there; send it as text")
    if isinstance(value, Decimal) and value.normalize() != value:
        raise ValueError("decimals have 32 bits there; send it as text")
    return value


def _culprit(message: DelayedMessage) -> str:
    """The header or property that cannot be encoded, by name."""
    for name, value in message.headers.items():
        try:
            ExactProperties(headers={name: _plain(value)}).encode()
        except UNENCODABLE:
            return f"header {name[:80]!r} ({_kind(value)})"
    return "the properties"


def _kind(value: Any) -> str:
    return f"Decimal {value}" if type(value) is Decimal else type(value).__name__


def _words(error: Exception) -> str:
    if isinstance(error, exceptions.ShortStringTooLong):
        return "names and properties may have at most 255 bytes"
    if isinstance(error, exceptions.UnsupportedAMQPFieldException):
        return "pika has no encoding for this type; send it as text or as a Decimal"
    if isinstance(error, StructError | ArithmeticError):
        return "it is beyond AMQP's range; send it as text"
    return str(error) or type(error).__name__
