"""Messages as the bytes they came in: tables, properties and deliveries, decoded only as far as is asked for.

pika decodes floats to whole numbers, forgets how wide a number was, and fails for times beyond the year 9999.
Properties that are only moved are thus never decoded: a table is a list of entries, and a value stays as bytes.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Self

from pika import spec

_SIZES: Final = dict(zip(b"VtbBsuUIifDlLdT", (0, 1, 1, 1, 2, 2, 2, 4, 4, 4, 5, 8, 8, 8, 8), strict=True))
"""Bytes of a value by its type (AMQP 0-9-1 errata, 3)."""
_SIZED: Final = frozenset(b"SxAF")
"""The types that begin with their size."""
_LENGTH: Final = struct.Struct(">I")
_INTEGERS: Final = {ord(kind): struct.Struct(f">{code}") for kind, code in zip("bBsuIilL", "bBhHiIqq", strict=True)}
_LONG_STRING: Final = ord("S")


class MalformedTableError(ValueError):
    """Bytes that are no AMQP table."""


class TableEntry(NamedTuple):
    """One entry: its name, and its value with the type before it."""

    name: bytes
    value: bytes


def split_table(content: bytes) -> list[TableEntry]:
    """The entries of a table, given without its size; raises MalformedTableError."""
    entries = []
    at, end = 0, len(content)
    while at < end:
        named = at + 1 + content[at]
        after = _end_of_value(content, named)
        if after > end:
            raise MalformedTableError("an entry ends beyond the table's end")
        entries.append(TableEntry(content[at + 1 : named], content[named:after]))
        at = after
    return entries


def join_table(entries: Iterable[TableEntry]) -> bytes:
    """A table with its size."""
    content = b"".join([bytes((len(name),)) + name + value for name, value in entries])
    return _LENGTH.pack(len(content)) + content


def with_entries(entries: Iterable[TableEntry], *added: TableEntry) -> list[TableEntry]:
    """`entries` and `added`, which replace all entries of the same names: RabbitMQ keeps a name that comes twice."""
    names = dict(added)
    return [entry for entry in entries if entry.name not in names] + list(added)


def text_of(value: bytes | None) -> str | None:
    """A value that is a text; None: it is not."""
    if value is None or value[0] != _LONG_STRING:
        return None
    try:
        return value[5:].decode()
    except UnicodeDecodeError:
        return None


def integer_of(value: bytes | None) -> int | None:
    """A value that is a whole number of any width; None: it is not."""
    if value is None or value[0] not in _INTEGERS:
        return None
    number: int = _INTEGERS[value[0]].unpack_from(value, 1)[0]
    return number


def text_value(text: str) -> bytes:
    """A long string."""
    return _prefixed(b"S", text.encode())


def bytes_value(content: bytes) -> bytes:
    """A byte array."""
    return _prefixed(b"x", content)


def integer_value(number: int) -> bytes:
    """A signed number of 32 bits, or of 64 where it needs them."""
    return struct.pack(">ci", b"I", number) if -(2**31) <= number < 2**31 else struct.pack(">cq", b"l", number)


def _end_of_value(content: bytes, at: int) -> int:
    if at >= len(content):
        raise MalformedTableError("a name without a value")
    kind = content[at]
    if kind not in _SIZED:
        if kind not in _SIZES:
            raise MalformedTableError(f"a value of the unknown type {bytes((kind,))!r}")
        return at + 1 + _SIZES[kind]
    if at + 5 > len(content):
        raise MalformedTableError("a size that is cut off")
    size: int = _LENGTH.unpack_from(content, at + 1)[0]
    return at + 5 + size


def _prefixed(kind: bytes, content: bytes) -> bytes:
    return kind + _LENGTH.pack(len(content)) + content


_FLAGS: Final = struct.Struct(">H")
_HEADER: Final = struct.Struct(">BHIHHQ")
"""Frame type, channel, size; class, weight, body size."""
_FIXED_PAYLOAD: Final = 12
_END: Final = bytes([spec.FRAME_END])


class _PropertyField(NamedTuple):
    flag: int
    name: str
    size: int
    """In bytes; 0: a short string, -1: a table."""


_FIELDS: Final = tuple(
    _PropertyField(
        1 << 15 - position, name, {"headers": -1, "delivery_mode": 1, "priority": 1, "timestamp": 8}.get(name, 0)
    )
    for position, name in enumerate(
        (
            "content_type",
            "content_encoding",
            "headers",
            "delivery_mode",
            "priority",
            "correlation_id",
            "reply_to",
            "expiration",
            "message_id",
            "timestamp",
            "type",
            "user_id",
            "app_id",
            "cluster_id",
        )
    )
)
"""In the order in which they lie on the wire (AMQP 0-9-1, 4.2.6.1 and class basic)."""


class MalformedPropertiesError(ValueError):
    """Bytes that are no properties of AMQP's class basic."""


class RawProperties:
    """Properties undecoded. Requested values are found in the bytes; `changed` gives a copy with some replaced."""

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded
        self._fields: dict[str, bytes] | None = None
        self._headers: list[TableEntry] | None = None

    @classmethod
    def of(cls, fields: Mapping[str, bytes]) -> Self:
        """Make properties of these fields, each as on the wire."""
        set_here = [field for field in _FIELDS if field.name in fields]
        flags = sum(field.flag for field in set_here)
        return cls(_FLAGS.pack(flags) + b"".join(fields[field.name] for field in set_here))

    @property
    def message_id(self) -> str | None:
        """The message's id, as far as it is text; None: it has none, or its properties cannot be read."""
        try:
            return self.text("message_id")
        except MalformedPropertiesError:
            return None

    def text(self, name: str) -> str | None:
        """A short string, bytes that are no UTF-8 replaced; None: not set. Raises MalformedPropertiesError."""
        value = self.fields.get(name)
        return None if value is None else value[1:].decode(errors="replace")

    @property
    def fields(self) -> dict[str, bytes]:
        """The properties that are set, by name, each as on the wire. Raises MalformedPropertiesError."""
        if self._fields is None:
            self._fields = _split(self.encoded)
        return self._fields

    @property
    def headers(self) -> list[TableEntry]:
        """The headers' entries. Raises MalformedPropertiesError."""
        if self._headers is None:
            table = self.fields.get("headers")
            try:
                self._headers = [] if table is None else split_table(table[_LENGTH.size :])
            except MalformedTableError as error:
                raise MalformedPropertiesError(f"headers that cannot be read: {error}") from None
        return self._headers

    def changed(self, headers: Sequence[TableEntry], without: Sequence[str] = ()) -> Self:
        """A copy with other headers (none: the property is not set), and without the properties named."""
        fields = dict(self.fields)
        for name in without:
            fields.pop(name, None)
        if headers:
            fields["headers"] = join_table(headers)
        else:
            fields.pop("headers", None)
        return self.of(fields)

    def content_header(self, channel_number: int, body_size: int) -> bytes:
        """The frame that holds the properties."""
        size = _FIXED_PAYLOAD + len(self.encoded)
        start = _HEADER.pack(spec.FRAME_HEADER, channel_number, size, spec.BasicProperties.INDEX, 0, body_size)
        return start + self.encoded + _END


def _split(encoded: bytes) -> dict[str, bytes]:
    """Every property that is set."""
    if len(encoded) < _FLAGS.size:
        raise MalformedPropertiesError("properties without flags")
    flags, at, end = _FLAGS.unpack_from(encoded)[0], _FLAGS.size, len(encoded)
    found = {}
    for _, name, size in _fields_of(flags):
        if size > 0:
            after = at + size
        elif at + (_LENGTH.size if size else 1) > end:
            raise MalformedPropertiesError("a size that is cut off")
        else:
            after = at + (_LENGTH.size + _LENGTH.unpack_from(encoded, at)[0] if size else 1 + encoded[at])
        if after > end:
            raise MalformedPropertiesError(f"property {name} is cut off")
        found[name] = encoded[at:after]
        at = after
    return found


@lru_cache(maxsize=64)
def _fields_of(flags: int) -> tuple[_PropertyField, ...]:
    """The fields that flags say are set. Cached, as messages of one publisher have the same flags."""
    if flags & 3:
        raise MalformedPropertiesError(f"flags of unknown properties: {flags:016b}")
    return tuple(field for field in _FIELDS if flags & field.flag)


FRAME: Final = struct.Struct(">BHI")
"""Type, channel and size, before a frame's payload."""
CONTENT: Final = struct.Struct(">HHQ")
"""Class, weight and body size, before the properties."""
DELIVER: Final = struct.pack(">HH", spec.Basic.INDEX, spec.Basic.Deliver.INDEX & 0xFFFF)
"""How the payload of a basic.deliver begins."""
_TAG: Final = struct.Struct(">QB")
"""The delivery tag, and whether it is redelivered."""
INCOMPLETE: Final = -1
OTHERWISE: Final = -2


class RawDelivery(NamedTuple):
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


def delivery_in(data: bytes, start: int, header: int) -> RawDelivery:
    """Read the delivery of a basic.deliver at `start`, a header at `header` and the body behind it."""
    at = start + FRAME.size + len(DELIVER)
    exchange = at + 1 + data[at] + _TAG.size
    key = exchange + 1 + data[exchange]
    tag, redelivered = _TAG.unpack_from(data, exchange - _TAG.size)
    size = FRAME.unpack_from(data, header)[2]
    properties = data[header + FRAME.size + CONTENT.size : header + FRAME.size + size]
    body_size = CONTENT.unpack_from(data, header + FRAME.size)[2]
    body = header + FRAME.size + size + 1 + FRAME.size
    return RawDelivery(
        data[at + 1 : exchange - _TAG.size].decode(),
        tag,
        bool(redelivered & 1),
        _text(data[exchange + 1 : key]),
        _text(data[key + 1 : key + 1 + data[key]]),
        RawProperties(properties),
        data[body : body + body_size],
    )


def _text(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
