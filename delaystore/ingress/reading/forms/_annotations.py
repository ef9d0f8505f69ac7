"""AMQP 1.0's message annotations, as RabbitMQ 3 hands them to consumers of AMQP 0-9-1: a section in a header."""

import struct
from collections.abc import Iterator
from typing import Final

_DESCRIPTORS: Final = (b"\x00\x53\x72", b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x72")
"""Of the section message-annotations: as a small number, and as a long one (AMQP 1.0, 3.2.3)."""
_MAP_8, _MAP_32 = 0xC1, 0xD1
_TEXTS: Final = frozenset({0xA1, 0xA3, 0xB1, 0xB3})
"""Strings and symbols."""
_CONSTANTS: Final = {0x43: 0, 0x44: 0}
_NUMBERS: Final = {
    code: struct.Struct(f">{kind}")
    for code, kind in {
        0x50: "B",
        0x51: "b",
        0x52: "B",
        0x53: "B",
        0x54: "b",
        0x55: "b",
        0x60: "H",
        0x61: "h",
        0x70: "I",
        0x71: "i",
        0x80: "Q",
        0x81: "q",
        0x83: "q",
    }.items()
}
"""Whole numbers, and timestamps in milliseconds, by their constructor (AMQP 1.0, 1.6)."""
_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
"""Bytes of a value, by the first half of its constructor."""
_SIZED: Final = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
"""Bytes of a value's size, by its type."""


def read_annotations(section: bytes) -> dict[str, int | str]:
    """Read annotations that are whole numbers, timestamps (in milliseconds since 1970) or texts, by name.

    Raises ValueError for bytes that are no such section.
    """
    for descriptor in _DESCRIPTORS:
        if section.startswith(descriptor):
            values = [*_values(section, *_inside_map(section, len(descriptor)))]
            pairs = zip(values[::2], values[1::2], strict=True)
            return {name: value for name, value in pairs if isinstance(name, str) and value is not None}
    raise ValueError("no section of message annotations")


def _inside_map(section: bytes, at: int) -> tuple[int, int]:
    """Where the first key of the map at `at` begins, and where the map ends."""
    width = {_MAP_8: 1, _MAP_32: 4}.get(_byte(section, at))
    if width is None:
        raise ValueError("annotations that are no map")
    begin = at + 1 + width
    end = begin + _size(section, at + 1, width)
    if end > len(section):
        raise ValueError("a map that is cut off")
    return begin + width, end


def _values(section: bytes, at: int, end: int) -> Iterator[int | str | None]:
    """Keys and values in turn; None for those of other types."""
    while at < end:
        code = section[at]
        begin, after = _extent(section, at, code)
        if after > end:
            raise ValueError("a value that is cut off")
        yield _value(code, section, begin, after)
        at = after


def _value(code: int, section: bytes, begin: int, after: int) -> int | str | None:
    if code in _TEXTS:
        return section[begin:after].decode()
    if code in _CONSTANTS:
        return _CONSTANTS[code]
    number = _NUMBERS.get(code)
    return None if number is None else int(number.unpack_from(section, begin)[0])


def _extent(section: bytes, at: int, code: int) -> tuple[int, int]:
    """Beginning and end of the value behind the constructor at `at`, its size not counted."""
    fixed = _FIXED.get(code >> 4)
    if fixed is not None:
        return at + 1, at + 1 + fixed
    width = _SIZED.get(code >> 4)
    if width is None:
        raise ValueError(f"a value of the unknown type {code:#x}")
    begin = at + 1 + width
    return begin, begin + _size(section, at + 1, width)


def _size(section: bytes, at: int, width: int) -> int:
    if at + width > len(section):
        raise ValueError("a size that is cut off")
    return int.from_bytes(section[at : at + width])


def _byte(section: bytes, at: int) -> int:
    return section[at] if at < len(section) else -1
