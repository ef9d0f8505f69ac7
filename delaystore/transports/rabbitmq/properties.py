"""A message's headers and properties as AMQP properties, there and back, and checked that they arrive unchanged.

Headers with floats pika cannot write, and reads as whole numbers. `send` refuses them for that. But other programs
write them, and a message that an ingress took from one is forwarded as it came.
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Any, Final

from pika import data, exceptions, spec
from pika.compat import long
from typing_extensions import override

from delaystore.errors import UnsupportedMessageError
from delaystore.message import FAR_TIMESTAMPS, PROPERTY_TYPES, DelayedMessage
from delaystore.text import UNREAD_HEADERS, parse_address
from delaystore.transports.rabbitmq.delay_headers import COUNTED_BY_QUEUE
from delaystore.transports.rabbitmq.raw import MalformedPropertiesError, RawProperties, integer_of

_DOUBLE: Final = struct.Struct(">cd")
_ARRAY: Final = struct.Struct(">cI")
_LENGTH: Final = struct.Struct(">I")


class ExactProperties(spec.BasicProperties):  # type: ignore[misc] # pika's class is untyped here
    """Properties whose headers may hold floats: AMQP has them as doubles."""

    @override
    def encode(self) -> list[bytes]:
        headers: Any = self.headers  # type: ignore[has-type] # pika does not say
        if not headers or not holds_float(headers):
            encoded: list[bytes] = super().encode()
            return encoded
        self.headers = None
        try:
            others = b"".join(super().encode())
        finally:
            self.headers = headers
        fields = RawProperties(others).fields
        return [RawProperties.of({**fields, "headers": _table(headers)}).encoded]


def holds_float(value: Any) -> bool:
    """Whether it is a float, or a list or mapping in which there is one."""
    kind = type(value)
    if kind is str or kind is int:
        return False
    if kind is list:
        return any(map(holds_float, value))
    return kind is float or (isinstance(value, Mapping) and any(map(holds_float, value.values())))


def _table(values: Mapping[str, Any]) -> bytes:
    """A table with its size."""
    pieces: list[bytes] = []
    for name, value in values.items():
        data.encode_short_string(pieces, name)
        pieces.append(_encoded(value))
    content = b"".join(pieces)
    return _LENGTH.pack(len(content)) + content


def _encoded(value: Any) -> bytes:
    """A value with its type before it; raises what pika's encoders raise."""
    if type(value) is float:
        if not isfinite(value):
            raise ValueError("RabbitMQ accepts neither infinity nor NaN; send it as text")
        return _DOUBLE.pack(b"d", value)
    if type(value) is dict:
        return b"F" + _table(value)
    if type(value) is list:
        content = b"".join(map(_encoded, value))
        return _ARRAY.pack(b"A", len(content)) + content
    pieces: list[bytes] = []
    data.encode_value(pieces, value)
    return b"".join(pieces)


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
"""Errors of pika's encoders for a value that AMQP cannot hold."""


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
    """The headers as they were given, without the headers that a quorum queue added to a redelivered message."""
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
    """The content header's bytes for `message`; UnsupportedMessageError if AMQP cannot hold it."""
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
    """Pika's properties; UnreadProperties where pika raises any error."""
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
        raise ValueError("RabbitMQ's times have whole seconds; send it as text")
    if isinstance(value, Decimal) and value.normalize() != value:
        raise ValueError("RabbitMQ's decimals have 32 bits; send it as text")
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


MAX_ENCODED_BYTES: Final = 112 * 1024
"""Headers and properties must fit one frame, 128 KiB by default; the rest is room for the error queue's headers."""
MAX_EXPIRATION_MS: Final = 2**32 - 1
"""RabbitMQ's limit for a time to live, in milliseconds (rabbit_misc, MAX_EXPIRY_TIMER)."""
_ALWAYS_SAME: Final = frozenset({str, bytes, bool, int, type(None)})
"""Types whose values pika decodes as they were encoded, if it encodes them at all."""
_DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"


def check_message(message: DelayedMessage) -> None:
    """Raise UnsupportedMessageError, naming the culprit, unless `message` would arrive as it is."""
    parse_address(message.destination)
    if not message.headers and not message.properties:
        return
    _check_broker_rules(message)
    encoded = encoded_properties(message)
    if len(encoded) > MAX_ENCODED_BYTES:
        raise UnsupportedMessageError(
            f"headers and properties take {len(encoded)} bytes; at most {MAX_ENCODED_BYTES} fit; "
            "move large values into the body"
        )
    if _ALWAYS_SAME.issuperset(map(type, message.headers.values())) and "timestamp" not in message.properties:
        return
    _refuse_floats(message.headers)
    decoded = spec.BasicProperties().decode(encoded)
    _compare("header", message.headers, read_headers(decoded))
    _compare("property", {"delivery_mode": decoded.delivery_mode, **message.properties}, read_properties(decoded))


def _refuse_floats(headers: Mapping[str, Any]) -> None:
    for name, value in headers.items():
        if holds_float(value):
            raise UnsupportedMessageError(
                f"header {name!r} ({type(value).__name__}) holds a float, which pika reads as a whole number; send it "
                "as text or as a Decimal"
            )


def _compare(kind: str, given: Mapping[str, Any], decoded: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if not _same(value, decoded.get(name)):
            raise UnsupportedMessageError(
                f"{kind} {name!r} would arrive as {_short(decoded.get(name))} instead of {_short(value)}; "
                "AMQP as pika writes it has whole seconds in times, and decimals of 32 bits"
            )


def _same(given: Any, decoded: Any) -> bool:
    if isinstance(given, Mapping):
        return (
            isinstance(decoded, dict)
            and given.keys() == decoded.keys()
            and all(_same(value, decoded[name]) for name, value in given.items())
        )
    if isinstance(given, list):
        return isinstance(decoded, list) and len(given) == len(decoded) and all(map(_same, given, decoded))
    if isinstance(given, datetime):
        return isinstance(decoded, datetime) and given == decoded
    return type(given) is type(decoded) and bool(given == decoded)


def _check_broker_rules(message: DelayedMessage) -> None:
    """Refuse properties that the broker would remove, or close the channel for."""
    if "BCC" in message.headers:
        raise UnsupportedMessageError("header 'BCC' is removed by RabbitMQ; send a message to each destination")
    carbon = message.headers.get("CC", [])
    if type(carbon) is not list or any(type(key) is not str for key in carbon):
        raise UnsupportedMessageError("header 'CC' must be a list of routing keys: RabbitMQ delivers to each of them")
    properties = message.properties
    expiration = properties.get("expiration", "0")
    if not (expiration.isascii() and expiration.isdigit()) or int(expiration[:300]) > MAX_EXPIRATION_MS:
        raise UnsupportedMessageError(
            f"property expiration {expiration[:40]!r} must be whole milliseconds as text, at most {MAX_EXPIRATION_MS}"
        )
    if properties.get("reply_to") == _DIRECT_REPLY:
        raise UnsupportedMessageError(
            f"property reply_to {_DIRECT_REPLY!r} works only on the connection that waits for the reply; name a queue"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
