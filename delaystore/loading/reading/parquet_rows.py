"""The rows of a Parquet file, in the types that Spark reads them in."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet, types

from delaystore.errors import ConfigurationError
from delaystore.loading.conversion.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    Field,
    FractionalType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)
from delaystore.loading.reading.text_rows import BATCH

_INSTANT: Final = pa.timestamp("us", "UTC")
_LOCAL: Final = pa.timestamp("us")
_OLD_TIME: Final = "INT96"
"""A time as Impala and older Sparks write it: an instant, though it does not say so."""
_PER_UNIT: Final = {"s": 1_000_000, "ms": 1_000}
"""Microseconds in the units of times that may not fit into microseconds."""
_READ_AS: Final[Sequence[tuple[Callable[[pa.DataType], bool], pa.DataType]]] = (
    (types.is_large_string, pa.string()),
    (types.is_string_view, pa.string()),
    (types.is_large_binary, pa.binary()),
    (types.is_binary_view, pa.binary()),
    (types.is_fixed_size_binary, pa.binary()),
    (types.is_uint8, pa.int16()),
    (types.is_uint16, pa.int32()),
    (types.is_uint32, pa.int64()),
    (types.is_uint64, pa.decimal128(20, 0)),
    (types.is_float16, pa.float32()),
    (types.is_duration, pa.int64()),
    (types.is_date64, pa.date32()),
    (types.is_time, pa.time64("us")),
)
_SIMPLE: Final[Sequence[tuple[Callable[[pa.DataType], bool], DataType]]] = (
    (types.is_null, NullType("void")),
    (types.is_boolean, BooleanType("boolean")),
    (types.is_int8, IntegralType("tinyint")),
    (types.is_int16, IntegralType("smallint")),
    (types.is_int32, IntegralType("int")),
    (types.is_int64, IntegralType("bigint")),
    (types.is_float32, FractionalType("float")),
    (types.is_float64, FractionalType("double")),
    (types.is_string, StringType("string")),
    (types.is_binary, BinaryType("binary")),
    (types.is_date32, DateType("date")),
    (types.is_time64, TimeType("time(6)")),
)


def parquet_columns(path: Path) -> list[tuple[Field, pa.DataType]]:
    """Its columns, and the Arrow type in which each is read.

    ConfigurationError for a file that is none, and for one with two columns of one name.
    """
    with _opened(path) as file:
        names = file.schema_arrow.names
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(f"{str(path)!r} has two columns {name!r}; rename or drop one")
        old = {column.path for column in map(file.schema.column, range(len(file.schema)))
               if column.physical_type == _OLD_TIME}  # fmt: skip
        read = [
            (field.name, _INSTANT if field.name in old and types.is_timestamp(field.type) else read_as(field.type))
            for field in file.schema_arrow
        ]
        return [(Field(name, type_of(kind)), kind) for name, kind in read]


def parquet_batches(path: Path, names: Sequence[tuple[str, str]], kinds: Sequence[pa.DataType]) -> Iterator[pa.Array]:
    """Batches of the columns `names`, each with its new name, in these types."""
    with _opened(path) as file:
        for batch in file.iter_batches(BATCH):
            arrays = [_cast(batch.column(old), kind) for (old, _), kind in zip(names, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=[new for _, new in names])


def read_as(kind: pa.DataType) -> pa.DataType:
    """The type in which Spark's conversion has values that are written in `kind`."""
    if types.is_dictionary(kind):
        return read_as(kind.value_type)
    if types.is_timestamp(kind):
        return _LOCAL if kind.tz is None else _INSTANT
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, read_as(field.type), field.nullable) for field in kind])
    if types.is_map(kind):
        return pa.map_(read_as(kind.key_type), read_as(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(read_as(kind.value_type))
    return next((other for is_kind, other in _READ_AS if is_kind(kind)), kind)


def type_of(kind: pa.DataType) -> DataType:
    """The type by which columns are planned; a plain DataType for one that no message can hold."""
    if types.is_timestamp(kind):
        return TimestampNTZType("timestamp_ntz") if kind.tz is None else TimestampType("timestamp")
    if types.is_decimal(kind):
        return DecimalType(f"decimal({kind.precision},{kind.scale})")
    if types.is_struct(kind):
        fields = [Field(field.name, type_of(field.type)) for field in kind]
        return StructType(f"struct<{','.join(f'{field.name}:{field.type.name}' for field in fields)}>", fields)
    if types.is_map(kind):
        key, value = type_of(kind.key_type), type_of(kind.item_type)
        return MapType(f"map<{key.name},{value.name}>", key, value)
    if types.is_list(kind):
        element = type_of(kind.value_type)
        return ArrayType(f"array<{element.name}>", element)
    return next((found for is_kind, found in _SIMPLE if is_kind(kind)), DataType(str(kind)))


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Nanoseconds are cut off: no due time has them. Times that microseconds cannot hold stay beyond all due times."""
    if array.type == kind:
        return array
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not types.is_timestamp(kind):
        return array.cast(kind)
    if types.is_timestamp(array.type) and (factor := _PER_UNIT.get(array.type.unit)) is not None:
        farthest = (2**63 - 1) // factor
        numbers = pc.min_element_wise(array.cast(pa.int64()), farthest, skip_nulls=False)
        array = pc.max_element_wise(numbers, -farthest, skip_nulls=False).cast(array.type)
    return array.cast(kind, safe=False)


@contextmanager
def _opened(path: Path) -> Iterator[parquet.ParquetFile]:
    try:
        with parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        why = "is not a Parquet file" if isinstance(error, pa.ArrowInvalid) else f"cannot be read: {error}"
        raise ConfigurationError(f"the file {str(path)!r} {' '.join(why.split())}") from None
