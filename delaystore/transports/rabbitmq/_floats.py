"""Headers with floats, which pika cannot write, and reads as whole numbers.

`send` refuses them for that. But other programs write them, and what an ingress took from one is forwarded as it came.
"""

import struct
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from pika import data, spec
from typing_extensions import override

from delaystore.transports.rabbitmq.raw.properties import RawProperties

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
            raise ValueError("RabbitMQ takes no infinity, and nothing that is no number; send it as text")
        return _DOUBLE.pack(b"d", value)
    if type(value) is dict:
        return b"F" + _table(value)
    if type(value) is list:
        content = b"".join(map(_encoded, value))
        return _ARRAY.pack(b"A", len(content)) + content
    pieces: list[bytes] = []
    data.encode_value(pieces, value)
    return b"".join(pieces)
