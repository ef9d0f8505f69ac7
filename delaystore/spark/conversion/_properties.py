"""Properties from a map, a struct or JSON, in the types that AMQP gives them.

A null value means that the property is absent. Text becomes a number or a time where the property is one.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from delaystore.errors import InvalidMessageError
from delaystore.message import PROPERTY_TYPES, check_properties
from delaystore.spark.conversion._faults import Faults, Unfit, by_value
from delaystore.spark.conversion._headers import Entries, decoded
from delaystore.spark.conversion._texts import readable
from delaystore.spark.conversion.objects import braced
from delaystore.sql.codec import encode_mapping

_KINDS: Final = {str: "text", int: "a whole number", datetime: "a time with its offset"}


@dataclass(frozen=True, slots=True)
class NoProperties:
    """No message has properties."""

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:  # noqa: ARG002 - the signature is given
        """Nulls."""
        return pa.nulls(batch.num_rows, pa.string())


@dataclass(frozen=True, slots=True)
class NamedProperties:
    """A map or struct column."""

    source: Entries

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Text; null for none."""
        return _normal(braced(self.source.entries(batch, "properties", faults)), faults)


@dataclass(frozen=True, slots=True)
class JsonProperties:
    """A column of JSON objects."""

    index: int

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Text; null for none."""
        return _normal(readable(batch.column(self.index), "properties", faults), faults)


def _normal(texts: pa.Array, faults: Faults) -> pa.Array:
    return by_value(texts, _properties, pa.string(), faults)


def _properties(text: str) -> str | None:
    given = decoded(text, "properties")
    return encode_mapping({name: _checked(name, value) for name, value in given.items() if value is not None})


def _checked(name: str, value: Any) -> Any:
    expected = PROPERTY_TYPES.get(name)
    if expected is None:
        raise Unfit("properties holds a name that is no property")
    try:
        if type(value) is str and expected is not str:
            value = _whole(value) if expected is int else datetime.fromisoformat(value)
        check_properties({name: value})
    except (ValueError, InvalidMessageError):
        raise Unfit(f"property {name} is out of range or not {_KINDS[expected]}") from None
    return value


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)
