"""An incoming message as it came, the values of its headers, and why it may be rejected."""

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final, NamedTuple

from delaystore.message import MAX_HEADER_DEPTH
from delaystore.transports.rabbitmq.raw import MalformedTableError, RawProperties


@dataclass(frozen=True, slots=True)
class SagaCleared:
    """An NServiceBus saga has ended: its waiting timeouts are to be cancelled.

    `id_prefix`: how the message ids of these timeouts begin; see MessageFilter.
    """

    id_prefix: str


_LONGEST: Final = 500
"""Characters of a reason: it may cite a header of the publisher, and has to fit a header itself."""


class RejectedMessageError(Exception):
    """An incoming message that cannot be stored. The text says why, in one sentence of at most 500 characters.

    It goes to the rejected queue, with this text in a header.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}...")


class IncomingMessage(NamedTuple):
    """A message as it came, not yet acknowledged.

    `queue`: the queue that it was read from. `exchange`, `routing_key`: where it was published to; bytes where they are
    no UTF-8. `properties`: undecoded, headers too. `tag`: by which its channel knows it.
    """

    queue: str
    exchange: str | bytes
    routing_key: str | bytes
    properties: RawProperties
    body: bytes
    redelivered: bool
    tag: int


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LENGTH: Final = struct.Struct(">I")
_FIXED: Final = {
    ord(kind): struct.Struct(f">{layout}")
    for kind, layout in zip("IlLbBsuUitfdTDV", (*"iqqbBhHhI?fdQ", "Bi", ""), strict=True)
}
"""Layouts of values of fixed size, by their types (AMQP 0-9-1 errata, 3)."""
_TEXT, _BYTES, _LIST, _DECIMAL, _NOTHING = b"SxADV"
_CONVERTED: Final = frozenset(b"TDVfd")
_FLOATS: Final = frozenset(b"fd")
_SIZED: Final = frozenset(b"xAF")

_Read = tuple[Any, int, str | None]
"""A value, where it ends, and why it cannot be carried; None: it can."""


def read_table(content: bytes, at: int, end: int, depth: int = 0) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of the table that lies from `at` to `end`, by name; and by name why some cannot be carried unchanged.

    Whole numbers of any width are int, floats float; texts str, or bytes where they are no UTF-8; byte arrays bytes;
    times aware datetimes; tables and arrays dict and list. Values that cannot be carried are there as far as Python
    has them. Raises MalformedTableError for bytes that are no table, and for names that are no UTF-8 or come twice.
    """
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    count = 0
    while at < end:
        named = at + 1 + content[at]
        try:
            name = content[at + 1 : named].decode()
        except UnicodeDecodeError:
            raise MalformedTableError("a name that is no UTF-8") from None
        values[name], at, problem = _read(content, named, end, depth)
        if problem is not None:
            problems[name] = problem
        count += 1
    if len(values) != count:
        raise MalformedTableError("a name that comes twice")
    return values, problems


def _read(content: bytes, at: int, end: int, depth: int) -> _Read:
    if at >= end:
        raise MalformedTableError("a name without a value")
    kind = content[at]
    if kind == _TEXT:
        after = _end_of_sized(content, at, end)
        text = content[at + 5 : after]
        try:
            return text.decode(), after, None
        except UnicodeDecodeError:
            return text, after, None
    layout = _FIXED.get(kind)
    if layout is None:
        return _read_sized(kind, content, at, end, depth)
    after = at + 1 + layout.size
    if after > end:
        raise MalformedTableError("a value that is cut off")
    found = layout.unpack_from(content, at + 1)
    return _converted(kind, found, after) if kind in _CONVERTED else (found[0], after, None)


def _converted(kind: int, found: tuple[Any, ...], after: int) -> _Read:
    if kind == _NOTHING:
        return None, after, None
    if kind == _DECIMAL:
        places, digits = found
        return Decimal(digits).scaleb(-places), after, None
    if kind in _FLOATS:
        return found[0], after, None if isfinite(found[0]) else "is no finite number, and RabbitMQ takes no other"
    try:
        return EPOCH + timedelta(seconds=found[0]), after, None
    except OverflowError:
        return found[0], after, "is a time beyond the year 9999: AMQP has seconds, perhaps it was given milliseconds"


def _read_sized(kind: int, content: bytes, at: int, end: int, depth: int) -> _Read:
    if kind not in _SIZED:
        raise MalformedTableError(f"a value of the unknown type {bytes((kind,))!r}")
    after = _end_of_sized(content, at, end)
    if kind == _BYTES:
        return content[at + 5 : after], after, None
    if depth >= MAX_HEADER_DEPTH:
        raise MalformedTableError(f"values nested deeper than {MAX_HEADER_DEPTH} levels")
    if kind == _LIST:
        return _read_list(content, at + 5, after, depth + 1)
    values, problems = read_table(content, at + 5, after, depth + 1)
    for name, problem in problems.items():
        return values, after, f"has an entry {name!r} that {problem}"
    return values, after, None


def _read_list(content: bytes, at: int, end: int, depth: int) -> _Read:
    values: list[Any] = []
    found = None
    while at < end:
        value, at, problem = _read(content, at, end, depth)
        values.append(value)
        found = found or (problem and f"has an item that {problem}")
    return values, end, found


def _end_of_sized(content: bytes, at: int, end: int) -> int:
    if at + 5 > end:
        raise MalformedTableError("a size that is cut off")
    after: int = at + 5 + _LENGTH.unpack_from(content, at + 1)[0]
    if after > end:
        raise MalformedTableError("a value that ends beyond its table")
    return after
