"""The columns that a read returns."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from delaystore.errors import ConfigurationError
from delaystore.loading.columns import MESSAGES

SCHEMA: Final = from_arrow_schema(MESSAGES)
"""`headers` and `properties` are JSON objects, for `from_json` or `get_json_object`; null: none.

Values that JSON has no type for are objects with one key, such as {"$bytes": "AP8="} or {"$datetime": "2026-..."}.
"""


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
    return pa.schema([MESSAGES.field(field.name).with_nullable(field.nullable) for field in schema.fields])
