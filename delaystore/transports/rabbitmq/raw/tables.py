"""AMQP tables as bytes, taken apart and put together.

pika decodes floats to whole numbers, forgets how wide a number was, and fails for times beyond the year 9999. So what
is only moved is never decoded: a table is a list of entries, and a value stays as bytes.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

_SIZES: Final = dict(zip(b"VtbBsuUIifDlLdT", (0, 1, 1, 1, 2, 2, 2, 4, 4, 4, 5, 8, 8, 8, 8), strict=True))
"""Bytes of a value by its type (AMQP 0-9-1 errata, 3)."""
_SIZED: Final = frozenset(b"SxAF")
"""The types that begin with their size."""
_LENGTH: Final = struct.Struct(">I")
_INTEGERS: Final = {ord(kind): struct.Struct(f">{code}") for kind, code in zip("bBsuIilL", "bBhHiIqq", strict=True)}
_LONG_STRING: Final = ord("S")


class MalformedTableError(ValueError):
    """Bytes that are no AMQP table."""


class Entry(NamedTuple):
    """One entry: its name, and its value with the type before it."""

    name: bytes
    value: bytes


def split_table(content: bytes) -> list[Entry]:
    """The entries of a table, given without its size; raises MalformedTableError."""
    entries = []
    at, end = 0, len(content)
    while at < end:
        named = at + 1 + content[at]
        after = _end_of_value(content, named)
        if after > end:
            raise MalformedTableError("an entry ends beyond the table's end")
        entries.append(Entry(content[at + 1 : named], content[named:after]))
        at = after
    return entries


def join_table(entries: Iterable[Entry]) -> bytes:
    """A table with its size."""
    content = b"".join([bytes((len(name),)) + name + value for name, value in entries])
    return _LENGTH.pack(len(content)) + content


def with_entries(entries: Iterable[Entry], *added: Entry) -> list[Entry]:
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
    """A value that is a whole number of whatever width; None: it is not."""
    if value is None or value[0] not in _INTEGERS:
        return None
    number: int = _INTEGERS[value[0]].unpack_from(value, 1)[0]
    return number


def text_value(text: str) -> bytes:
    """A long string."""
    return _sized(b"S", text.encode())


def bytes_value(content: bytes) -> bytes:
    """A byte array."""
    return _sized(b"x", content)


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


def _sized(kind: bytes, content: bytes) -> bytes:
    return kind + _LENGTH.pack(len(content)) + content
