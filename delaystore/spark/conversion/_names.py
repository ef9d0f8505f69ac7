"""Where message ids and destinations come from.

An id may be derived from key columns: the same load and key give the same id, at every run and on every machine.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.spark.conversion._faults import Faults
from delaystore.spark.conversion._texts import check_destinations, check_message_ids, readable

_PERSON: Final = b"delaystore.id"
_COLON: Final = pa.scalar(b":")
_NOTHING: Final = pa.scalar(b"")


@dataclass(frozen=True, slots=True)
class GivenIds:
    """The column message_id."""

    index: int

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Text, checked."""
        ids = readable(batch.column(self.index), "message_id", faults)
        check_message_ids(ids, faults)
        return ids


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that ids are derived from, and what errors call it."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class DerivedIds:
    """A blake2b digest of the key's values, salted with the load's id, in the shape of a UUID (RFC 9562, version 8)."""

    keys: tuple[KeyColumn, ...]
    salt: bytes

    @staticmethod
    def of_load(keys: tuple[KeyColumn, ...], load_id: str) -> "DerivedIds":
        """Those of the load `load_id`."""
        return DerivedIds(keys, blake2b(load_id.encode(), digest_size=16, person=_PERSON).digest())

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Text; null where a key column is."""
        for key in self.keys:
            faults.add(batch.column(key.index).is_null(), f"key column {key.name} is null")
        encoded = [part for key in self.keys for part in _encoded(batch.column(key.index))]
        rows = pc.binary_join_element_wise(*encoded, _NOTHING)
        salt = self.salt
        return pa.array([None if row is None else _id_of(row, salt) for row in rows.to_pylist()], pa.string())


@dataclass(frozen=True, slots=True)
class Destinations:
    """The column destination, if there is one, and the option for rows that have none."""

    index: int | None
    default: str | None

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Text, checked; the option was checked when it was read."""
        if self.index is None:
            return pa.repeat(self.default, batch.num_rows)
        given = batch.column(self.index)
        names = readable(given, "destination", faults)
        if self.default is not None:
            names = pc.if_else(given.is_null(), self.default, names)
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
