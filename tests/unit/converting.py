"""Rows for the conversion: columns as Spark sends them, without Spark."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType, TimestampType

from delaystore.bulk.conversion import Conversion, ConvertedBatch, plan_conversion
from delaystore.bulk.options import WriteOptions
from delaystore.bulk.rejects import count_rejects
from delaystore.bulk.spark._columns import fields_of

BEGAN = datetime(2026, 11, 1, 12, tzinfo=UTC)
DUE = datetime(2026, 11, 30, 8, 0, 0, 1, tzinfo=UTC)
SESSION_ZONE = "Asia/Kathmandu"
Column = tuple[DataType, Any]


def plan(columns: Mapping[str, Column], load_id: str | None = None, **options: Any) -> Conversion:
    """For columns of these types."""
    given = WriteOptions(store="sqlite://", endpoint="sales", load_id=load_id, **options)
    return plan_conversion(fields_of(schema(columns)), given, BEGAN)


def schema(columns: Mapping[str, Column]) -> StructType:
    """Of columns with these types."""
    return StructType([StructField(name, kind) for name, (kind, _) in columns.items()])


def batch(columns: Mapping[str, Column]) -> pa.RecordBatch:
    """These values, or ready-made arrays."""
    types = to_arrow_schema(schema(columns), timezone=SESSION_ZONE)
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(values, field.type)
        for field, (_, values) in zip(types, columns.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=types)


def convert(columns: Mapping[str, Column], load_id: str | None = None, **options: Any) -> ConvertedBatch:
    """Planned, and done."""
    converted = plan(columns, load_id, **options).convert(batch(columns))
    converted.staged.validate(full=True)
    return converted


def rows(count: int = 1, **changed: Column) -> dict[str, Column]:
    """Good rows, but for the changed columns."""
    good: dict[str, Column] = {
        "message_id": (StringType(), [f"id-{number}" for number in range(count)]),
        "destination": (StringType(), ["sales"] * count),
        "due_time": (TimestampType(), [DUE] * count),
        "body": (BinaryType(), [b"hello"] * count),
    }
    return good | changed


def reasons(converted: ConvertedBatch) -> Sequence[str | None]:
    """Why rows were rejected, in their order; the same as was counted."""
    if converted.rejected is None:
        return []
    found: list[str] = converted.rejected.column(converted.rejected.num_columns - 1).to_pylist()
    assert {text: found.count(text) for text in found} == {
        text: reason.count for text, reason in count_rejects(converted.rejected).reasons.items()
    }
    return found


def instants(numbers: Sequence[int | None]) -> pa.Array:
    """Timestamps of microseconds after 1970, which Python may have no datetime for."""
    return pa.array(numbers, pa.int64()).view(pa.timestamp("us", SESSION_ZONE))


def not_utf8(*values: bytes) -> pa.Array:
    """A text column of any bytes, as Spark has them."""
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), binary.buffers())


def local(text: str) -> datetime:
    """A time without time zone."""
    return datetime.fromisoformat(text)
