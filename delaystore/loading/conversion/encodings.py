"""Arrow values as JSON texts, column-wise: tagged as the store's codec writes headers, or plain as people read it."""

import math
from abc import ABC, abstractmethod
from base64 import b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from delaystore.errors import InvalidMessageError
from delaystore.loading.conversion._faults import Unfit, each
from delaystore.loading.conversion._texts import not_utf8
from delaystore.loading.conversion._values import Unreadable, values
from delaystore.message import check_headers
from delaystore.sql.codec import encode_mapping

_NEEDS_ESCAPING: Final = r"[^ !#-\[\]-~]"
_EMPTY_NAME: Final = len('{"":')


class Encoding(ABC):
    """How values become JSON."""

    def texts(self, array: pa.Array) -> tuple[pa.Array, pa.Array | None]:
        """The JSON text of each value (null for null), and a mask of the values that have none. None: all have one."""
        kind = array.type
        if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind):
            return array.cast(pa.string()), None
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return (self._strings(array), None) if not_utf8(array) is None else self._one_by_one(array)
        if pa.types.is_floating(kind):
            return self._floats(array), None
        return self._one_by_one(array)

    @abstractmethod
    def quoted(self, text: str) -> str:
        """The JSON text of a string."""

    @abstractmethod
    def text(self, value: Any) -> str:
        """The JSON text of one of `values.values`; Unfit if it has none."""

    def _strings(self, array: pa.Array) -> pa.Array:
        array = array.cast(pa.string())
        if pc.any(pc.match_substring_regex(array, _NEEDS_ESCAPING)).as_py():
            quoted = self.quoted
            return pa.array([None if text is None else quoted(text) for text in array.to_pylist()], pa.string())
        return pc.binary_join_element_wise('"', array, '"', "")

    def _floats(self, array: pa.Array) -> pa.Array:
        text = self.text
        return pa.array([None if value is None else text(value) for value in array.to_pylist()], pa.string())

    def _one_by_one(self, array: pa.Array) -> tuple[pa.Array, pa.Array | None]:
        texts, reasons = each(values(array), self.text)
        unfit = pa.array([reason is not None for reason in reasons]) if any(reasons) else None
        return pa.array(texts, pa.string()), unfit


class Tagged(Encoding):
    """As `codec.encode_mapping` writes what `message.check_headers` allows; ASCII."""

    @override
    def quoted(self, text: str) -> str:
        return encode_basestring_ascii(text)

    @override
    def text(self, value: Any) -> str:
        header = {"": value}
        try:
            check_headers(header)
            encoded = encode_mapping(header)
        except (InvalidMessageError, RecursionError):
            raise Unfit("a value no header can hold") from None
        assert encoded is not None
        return encoded[_EMPTY_NAME:-1]

    @override
    def _floats(self, array: pa.Array) -> pa.Array:
        """Encodes all as one text, and splits it: its only commas are those between numbers."""
        encoded = encode_mapping({"": array.to_pylist()})
        assert encoded is not None
        texts = pa.array(encoded[_EMPTY_NAME + 1 : -2].split(",") if len(array) else [], pa.string())
        return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


class Carried(Tagged):
    """As Tagged, but in the types that every transport carries unchanged, at the price of being text.

    Numbers with a fraction are texts such as 1.5, and times ISO 8601 in UTC: AMQP's times have no fractions of a second
    and its decimals 32 bits, and of its floats clients in Python make whole numbers.
    """

    @override
    def text(self, value: Any) -> str:
        return super().text(_carried(value))

    @override
    def _floats(self, array: pa.Array) -> pa.Array:
        return pa.array([None if value is None else f'"{_shown(value)}"' for value in values(array)], pa.string())


class Plain(Encoding):
    """As people and programs in other languages read it.

    Bytes are base64, times ISO 8601 (instants in UTC), intervals seconds, decimals numbers, and NaN and the infinities
    strings, as Spark's own to_json has them. `lenient`: what has no text is described instead.
    """

    def __init__(self, *, lenient: bool = False) -> None:
        self._lenient = lenient

    @override
    def quoted(self, text: str) -> str:
        """As json.dumps, and not limited to ASCII."""
        return encode_basestring(text)

    @override
    def text(self, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | Decimal):
            return str(value)
        if isinstance(value, float):
            return _shown(value) if math.isfinite(value) else self.quoted(_shown(value))
        if isinstance(value, timedelta):
            return repr(value.total_seconds())
        if isinstance(value, dict):
            return "{" + ",".join(f"{self._name(name)}:{self._nested(item)}" for name, item in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._nested, value)) + "]"
        return self.quoted(self._written(value))

    def _nested(self, value: Any) -> str:
        return "null" if value is None else self.text(value)

    def _name(self, name: Any) -> str:
        text = self.text(name)
        return text if text.startswith('"') else self.quoted(text)

    def _written(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bytes):
            return b64encode(value).decode()
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, Unreadable) and not self._lenient:
            raise Unfit("a value no JSON can hold")
        return value.text if isinstance(value, Unreadable) else str(value)


def _shown(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _carried(value: Any) -> Any:
    if isinstance(value, float):
        return _shown(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _carried(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_carried(item) for item in value]
    return value
