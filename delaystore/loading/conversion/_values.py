"""Arrow values as the Python values that message headers and JSON are made of, whatever is in the memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from delaystore.loading.conversion.local import EPOCH, MICROSECOND


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that Python has no value for: bytes that are no UTF-8, a time out of its range; `text` shows it."""

    text: str


def values(array: pa.Array) -> list[Any]:
    """By row; None for null. Instants are in UTC; a struct's fields that are null are left out, a map's are kept."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(array)
    if pa.types.is_timestamp(kind):
        return _times(array, EPOCH if kind.tz is not None else EPOCH.replace(tzinfo=None))
    if pa.types.is_time64(kind):
        return list(array.cast(pa.time64("us"), safe=False).to_pylist())
    if pa.types.is_date32(kind):
        return list(array.cast(pa.string()).to_pylist())
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        keys, items = values(array.keys), values(array.items)
        return [span if span is None else {keys[i]: items[i] for i in span} for span in _spans(array)]
    if pa.types.is_list(kind):
        items = values(array.values)
        return [span if span is None else items[span.start : span.stop] for span in _spans(array)]
    if pa.types.is_float32(kind):
        array = array.cast(pa.string()).cast(pa.float64())  # 0.1 stays 0.1
    return list(array.to_pylist())


def _texts(array: pa.Array) -> list[Any]:
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:
        return [None if value is None else _text(value) for value in array.cast(pa.large_binary()).to_pylist()]


def _text(value: bytes) -> str | Unreadable:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Unreadable(value.decode(errors="replace"))


def _times(array: pa.Array, epoch: datetime) -> list[Any]:
    found: list[Any] = []
    for value in array.cast(pa.int64()).to_pylist():
        try:
            found.append(None if value is None else epoch + value * MICROSECOND)
        except OverflowError:
            found.append(Unreadable(f"{value} microseconds after 1970"))
    return found


def _structs(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [values(child) for child in array.flatten()]
    rows = zip(*columns, strict=True) if columns else (() for _ in range(len(array)))
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None} if valid else None
        for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)
    ]


def _spans(array: pa.Array) -> Iterator[range | None]:
    """Which of its children each row has."""
    offsets = array.offsets.to_pylist()
    for row, valid in enumerate(array.is_valid().to_pylist()):
        yield range(offsets[row], offsets[row + 1]) if valid else None
