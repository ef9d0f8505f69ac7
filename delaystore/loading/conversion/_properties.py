"""Properties from a map, a struct or JSON, in the types that AMQP gives them.

A null value means that the property is absent. Text becomes a number or a time where the property is one.
"""

from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from delaystore.errors import InvalidMessageError
from delaystore.loading.conversion._faults import Faults, Unfit, by_value
from delaystore.loading.conversion._headers import Entries, decoded
from delaystore.loading.conversion._texts import readable
from delaystore.loading.conversion.objects import braced
from delaystore.message import PROPERTY_TYPES, check_properties
from delaystore.sql.codec import encode_mapping
from delaystore.times import parse_time

_KINDS: Final = {str: "text", int: "a whole number", datetime: "a time with its offset"}


def named_properties(entries: Entries, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of a map or struct column, as text; null for none."""
    return by_value(braced(entries(batch, faults)), _properties, pa.string(), faults)


def json_properties(index: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of a column of JSON objects, as text; null for none."""
    return by_value(readable(batch.column(index), "properties", faults), _properties, pa.string(), faults)


def _properties(text: str) -> str | None:
    given = decoded(text, "properties")
    return encode_mapping({name: _checked(name, value) for name, value in given.items() if value is not None})


def _checked(name: str, value: Any) -> Any:
    expected = PROPERTY_TYPES.get(name)
    if expected is None:
        raise Unfit("properties holds a name that is no property")
    try:
        if type(value) is str and expected is not str:
            value = _whole(value) if expected is int else parse_time(value)
        check_properties({name: value})
    except (ValueError, InvalidMessageError):
        raise Unfit(f"property {name} is out of range or not {_KINDS[expected]}") from None
    return value


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)
