"""A message's properties as the bytes they came in."""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Self

from pika import spec

from delaystore.transports.rabbitmq.raw.tables import Entry, MalformedTableError, join_table, split_table

_FLAGS: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")
_HEADER: Final = struct.Struct(">BHIHHQ")
"""Frame type, channel, size; class, weight, body size."""
_FIXED_PAYLOAD: Final = 12
_END: Final = bytes([spec.FRAME_END])


class _Field(NamedTuple):
    flag: int
    name: str
    size: int
    """In bytes; 0: a short string, -1: a table."""


_FIELDS: Final = tuple(
    _Field(1 << 15 - position, name, {"headers": -1, "delivery_mode": 1, "priority": 1, "timestamp": 8}.get(name, 0))
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
    """Properties undecoded. What is asked for is found in the bytes; `changed` gives a copy with some replaced."""

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded
        self._fields: dict[str, bytes] | None = None
        self._headers: list[Entry] | None = None

    @classmethod
    def of(cls, fields: Mapping[str, bytes]) -> Self:
        """Those that are set, by name, each as on the wire."""
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
    def headers(self) -> list[Entry]:
        """The headers' entries. Raises MalformedPropertiesError."""
        if self._headers is None:
            table = self.fields.get("headers")
            try:
                self._headers = [] if table is None else split_table(table[_LENGTH.size :])
            except MalformedTableError as error:
                raise MalformedPropertiesError(f"headers that cannot be read: {error}") from None
        return self._headers

    def changed(self, headers: Sequence[Entry], without: Sequence[str] = ()) -> Self:
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
    flags, at = _FLAGS.unpack_from(encoded)[0], _FLAGS.size
    found = {}
    for _, name, size in _fields_of(flags):
        after = at + (size if size > 0 else _sized(encoded, at, table=size < 0))
        if after > len(encoded):
            raise MalformedPropertiesError(f"property {name} is cut off")
        found[name] = encoded[at:after]
        at = after
    return found


@lru_cache(maxsize=64)
def _fields_of(flags: int) -> tuple[_Field, ...]:
    """Those that are set; messages of one publisher have the same, and it is asked for each."""
    if flags & 3:
        raise MalformedPropertiesError(f"flags of unknown properties: {flags:016b}")
    return tuple(field for field in _FIELDS if flags & field.flag)


def _sized(encoded: bytes, at: int, *, table: bool) -> int:
    """The size of the short string or table at `at`, its length field included."""
    if at + (_LENGTH.size if table else 1) > len(encoded):
        raise MalformedPropertiesError("a size that is cut off")
    if not table:
        return 1 + encoded[at]
    length: int = _LENGTH.unpack_from(encoded, at)[0]
    return _LENGTH.size + length
