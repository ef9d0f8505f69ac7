"""Incoming messages, with values of every AMQP type."""

import struct
from collections.abc import Mapping
from typing import Any, Final

from pika import spec

from delaystore.ingress.reading.incoming import IncomingMessage
from delaystore.transports.rabbitmq.raw import RawProperties, TableEntry, bytes_value, join_table, text_value

_LAYOUTS: Final = dict(zip("IlLbBsuUitfdTDV", (*"iqqbBhHhI?fdQ", "Bi", ""), strict=True))


def typed(kind: str, *value: Any) -> bytes:
    """A value of AMQP's type `kind` that is fixed in size."""
    return struct.pack(f">c{_LAYOUTS[kind]}", kind.encode(), *value)


def table(entries: Mapping[str, bytes]) -> bytes:
    """A nested table."""
    return b"F" + join_table(TableEntry(name.encode(), value) for name, value in entries.items())


def array(*values: bytes) -> bytes:
    """An array."""
    content = b"".join(values)
    return struct.pack(">cI", b"A", len(content)) + content


def raw_text(content: bytes) -> bytes:
    """A long string that may be no UTF-8."""
    return struct.pack(">cI", b"S", len(content)) + content


def incoming_message(
    headers: Mapping[str, bytes | str | int] | None = None,
    *,
    routing_key: str | bytes = "key",
    body: bytes = b"body",
    queue: str = "E.ingress",
    redelivered: bool = False,
    **properties: Any,
) -> IncomingMessage:
    """A message that arrived: headers as `typed` values, texts or numbers; properties as pika has them."""
    entries = [TableEntry(name.encode(), _value(value)) for name, value in (headers or {}).items()]
    plain = RawProperties(b"".join(spec.BasicProperties(**properties).encode()))
    return IncomingMessage(queue, "E", routing_key, plain.changed(entries), body, redelivered, 1)


def _value(value: bytes | str | int) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return text_value(value)
    return typed("I", value) if -(2**31) <= value < 2**31 else typed("l", value)


__all__ = ["array", "bytes_value", "incoming_message", "raw_text", "table", "text_value", "typed"]
