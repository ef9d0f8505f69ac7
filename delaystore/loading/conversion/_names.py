"""Where message ids and destinations come from.

An id may be derived from key columns: the same load and key give the same id, at every run and on every machine.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.loading.conversion._faults import Faults
from delaystore.loading.conversion._texts import check_destinations, check_keys, check_message_ids, readable
from delaystore.loading.conversion.columns import Column

_PERSON: Final = b"delaystore.id"
_COLON: Final = pa.scalar(b":")
_NOTHING: Final = pa.scalar(b"")


def given_ids(index: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column message_id, checked."""
    ids = readable(batch.column(index), "message_id", faults)
    check_message_ids(ids, faults)
    return ids


def given_keys(index: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column of keys, checked; null: the message has none."""
    keys = readable(batch.column(index), "key", faults)
    check_keys(keys, faults)
    return keys


def derived_ids(keys: Sequence[Column], load_id: str, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Ids in the shape of a UUID (RFC 9562, version 8); null where a key column is.

    Each is a blake2b digest of the key's values, salted with the load's id.
    """
    for key in keys:
        faults.add(batch.column(key.index).is_null(), f"key column {key.name} is null")
    encoded = [part for key in keys for part in _encoded(batch.column(key.index))]
    rows = pc.binary_join_element_wise(*encoded, _NOTHING)
    salt = blake2b(load_id.encode(), digest_size=16, person=_PERSON).digest()
    return pa.array([None if row is None else _id_of(row, salt) for row in rows.to_pylist()], pa.string())


def destinations(index: int | None, default: str | None, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column destination, if there is one, checked; `default`, which was checked, for rows that have none."""
    if index is None:
        return pa.repeat(default, batch.num_rows)
    given = batch.column(index)
    names = readable(given, "destination", faults)
    if default is not None:
        names = pc.if_else(given.is_null(), default, names)
    check_destinations(names, faults)
    return names


def _id_of(row: bytes, salt: bytes) -> str:
    digest = blake2b(row, digest_size=16, salt=salt, person=_PERSON).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:]}"


def _encoded(array: pa.Array) -> tuple[pa.Scalar, pa.Array, pa.Scalar, pa.Array]:
    """Each value as its type's letter, its length, a colon, and its bytes: no two keys share an encoding."""
    letter, values = _typed(array)
    lengths = pc.binary_length(values).cast(pa.string()).cast(pa.binary())
    return pa.scalar(letter), lengths, _COLON, values


def _typed(array: pa.Array) -> tuple[bytes, pa.Array]:
    """The value's bytes; integers of all widths are one type."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return b"s", array.cast(pa.binary())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b"x", array.cast(pa.binary())
    if pa.types.is_timestamp(kind):
        return (b"n" if kind.tz is None else b"t"), _text(array.cast(pa.int64()))
    if pa.types.is_date32(kind):
        return b"D", _text(array.cast(pa.int32()))
    if pa.types.is_boolean(kind):
        return b"b", _text(array)
    return (b"d" if pa.types.is_decimal(kind) else b"i"), _text(array)


def _text(array: pa.Array) -> pa.Array:
    return array.cast(pa.string()).cast(pa.binary())
