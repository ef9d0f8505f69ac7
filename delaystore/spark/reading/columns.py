"""The columns that a read returns."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType, TimestampType

from delaystore.errors import ConfigurationError

SCHEMA: Final = StructType(
    [
        StructField("message_id", StringType(), nullable=False),
        StructField("destination", StringType(), nullable=False),
        StructField("due_time", TimestampType(), nullable=False),
        StructField("next_attempt", TimestampType(), nullable=False),
        StructField("failure_count", IntegerType(), nullable=False),
        StructField("headers", StringType()),
        StructField("properties", StringType()),
        StructField("body", BinaryType(), nullable=False),
    ]
)
"""`headers` and `properties` are JSON objects, for `from_json` or `get_json_object`; null: none.

Values that JSON has no type for are objects with one key, such as {"$bytes": "AP8="} or {"$datetime": "2026-..."}.
"""
ARROW_TYPES: Final = {
    "message_id": pa.string(),
    "destination": pa.string(),
    "due_time": pa.timestamp("us", "UTC"),
    "next_attempt": pa.timestamp("us", "UTC"),
    "failure_count": pa.int32(),
    "headers": pa.string(),
    "properties": pa.string(),
    "body": pa.binary(),
}


def check_columns(schema: StructType) -> Sequence[str]:
    """The names in `schema`, if they are ours with our types: a user's own schema reads just these columns.

    Raises ConfigurationError.
    """
    known = {field.name: field.dataType for field in SCHEMA.fields}
    for field in schema.fields:
        if field.name not in known:
            raise ConfigurationError(f"there is no column {field.name!r}; known are {', '.join(known)}")
        if field.dataType != known[field.name]:
            expected, given = known[field.name].simpleString(), field.dataType.simpleString()
            raise ConfigurationError(f"the column {field.name} is of type {expected}, not {given}")
    return schema.fieldNames()


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects for `schema`."""
    return pa.schema([pa.field(field.name, ARROW_TYPES[field.name], field.nullable) for field in schema.fields])
