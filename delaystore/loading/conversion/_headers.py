"""Headers from a map, a struct, JSON, or columns of their own, as the store's codec writes them.

A null value is kept where somebody wrote it: in a map or in JSON. A struct, and so a row of columns, has all of its
fields in every row: there null means that the header is absent. What is in JSON stays of the type that is written
there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.errors import InvalidMessageError
from delaystore.loading.conversion._faults import Faults, Unfit, by_value
from delaystore.loading.conversion._texts import readable
from delaystore.loading.conversion.columns import Column
from delaystore.loading.conversion.encodings import Carried, Encoding, Tagged
from delaystore.loading.conversion.objects import any_of_row, braced, joined, of_columns, of_maps
from delaystore.message import check_headers
from delaystore.sql.codec import encode_mapping, untagged
from delaystore.strict_json import AmbiguousJsonError, DeepJsonError, parse_json

Entries = Callable[[pa.RecordBatch, Faults], pa.Array]
"""Where headers (or properties) come from: their entries, as in `objects`."""
_ENCODINGS: Final[Mapping[str, Encoding]] = {"headers": Carried(), "properties": Tagged()}
"""How values of Spark's types are written: properties are made to fit AMQP's types later."""


def absent(batch: pa.RecordBatch, _: Faults) -> pa.Array:
    """No message has any."""
    return pa.nulls(batch.num_rows, pa.string())


def headers(sources: Sequence[Entries], batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The headers from all of their sources, as text; null for none."""
    return braced(joined([entries(batch, faults) for entries in sources]))


def map_entries(index: int, name: str, reserved: Sequence[str], batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of a map column, null values among them. `name`: what faults call the whole; it may hold no name `reserved`."""
    column = batch.column(index)
    entries, unfit = of_maps(column, _ENCODINGS[name])
    faults.add(unfit, _unfit(name))
    if reserved:
        taken = pc.is_in(column.keys, pa.array(reserved, column.keys.type))
        if taken.true_count:
            faults.add(any_of_row(column, taken), f"{name} and a column hold the same name")
    return entries


def struct_entries(index: int, name: str, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of a struct column, without null values."""
    column = batch.column(index)
    names = [field.name for field in column.type]
    return _of_fields(names, column.flatten(), name, faults) if names else absent(batch, faults)


def column_entries(columns: Sequence[Column], name: str, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of columns of their own, without null values."""
    values = [batch.column(column.index) for column in columns]
    return _of_fields([column.name for column in columns], values, name, faults)


def json_entries(index: int, name: str, reserved: Sequence[str], batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of a column of JSON objects, null values among them; the tags of the store's codec mean what they mean there."""

    def entry(text: str) -> str | None:
        mapping = decoded(text, name)
        try:
            check_headers(mapping)
        except InvalidMessageError:
            raise Unfit(_unfit(name)) from None
        if not mapping.keys().isdisjoint(reserved):
            raise Unfit(f"{name} and a column hold the same name")
        encoded = encode_mapping(mapping)
        return None if encoded is None else f",{encoded[1:-1]}"

    return by_value(readable(batch.column(index), name, faults), entry, pa.string(), faults)


def decoded(text: str, name: str) -> Mapping[str, Any]:
    """The JSON object in `text`; Unfit, calling it `name`, for what is none."""
    try:
        mapping = parse_json(text)
        if type(mapping) is not dict:
            raise TypeError("not a JSON object")
        return untagged(mapping)
    except DeepJsonError:
        raise Unfit(f"{name} is nested too deep") from None
    except AmbiguousJsonError:
        raise Unfit(f"{name} has a name twice in one object") from None
    except (ValueError, TypeError):
        raise Unfit(f"{name} is not a JSON object, or holds a tag (a name with $) that does not fit") from None


def _unfit(name: str) -> str:
    return f"{name} holds a name or value that no message can"


def _of_fields(names: Sequence[str], columns: Sequence[pa.Array], name: str, faults: Faults) -> pa.Array:
    entries, unfit = of_columns(names, columns, _ENCODINGS[name], nulls=False)
    faults.add(unfit, _unfit(name))
    return entries
