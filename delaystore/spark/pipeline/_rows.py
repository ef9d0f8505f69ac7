"""Messages as rows of a DataFrame."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType, TimestampType

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.spark.conversion.columns import UNREADABLE
from delaystore.sql.codec import encode_mapping

MESSAGE: Final = StructType(
    [
        StructField("message_id", StringType()),
        StructField("destination", StringType()),
        StructField("due_time", TimestampType()),
        StructField("body", BinaryType()),
        StructField("headers", StringType()),
        StructField("properties", StringType()),
        StructField(UNREADABLE, StringType()),
    ]
)
"""`headers` and `properties` are JSON objects as the codec of stores writes them. The last column says why a row could
not be read; null: it could."""
_ARROW: Final = pa.list_(
    pa.struct(
        [
            ("message_id", pa.string()),
            ("destination", pa.string()),
            ("due_time", pa.timestamp("us", "UTC")),
            ("body", pa.binary()),
            ("headers", pa.string()),
            ("properties", pa.string()),
            (UNREADABLE, pa.string()),
        ]
    )
)

Read = Callable[[Mapping[str, Any]], DelayedMessage]
"""From a record to its message; raises InvalidMessageError."""


def messages_in(frame: DataFrame, column: Column, read: Callable[[Any], Iterator[Mapping[str, Any]]]) -> DataFrame:
    """The rows, of type MESSAGE, that `read` finds in each value of `column`. Runs in Spark's Python workers."""

    # The annotations tell Spark what kind of function it is. It is no mapInArrow, which asks for pandas.
    def found(values: pa.Array) -> pa.Array:
        return pa.array([list(read(value)) for value in values.to_pylist()], _ARROW)

    rows = sf.arrow_udf(found, ArrayType(MESSAGE))(column)  # type: ignore[attr-defined]  # its home is a star import
    return frame.select(sf.inline(rows))


def row(read: Read, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of the record's message; where there is none, a row that the writer rejects, and why."""
    try:
        message = read(record)
    except InvalidMessageError as error:
        return unreadable(str(error), json.dumps(record, default=_plain, ensure_ascii=False))
    return {
        "message_id": message.message_id,
        "destination": message.destination,
        "due_time": message.due_time,
        "body": message.body,
        "headers": encode_mapping(message.headers),
        "properties": encode_mapping(message.properties),
        UNREADABLE: None,
    }


def unreadable(reason: str, raw: str) -> Mapping[str, Any]:
    """A row that the writer rejects for `reason`; its body is `raw`, what could not be read."""
    nothing = dict.fromkeys(MESSAGE.names)
    return {**nothing, "body": _bytes(raw), UNREADABLE: _bytes(reason).decode()}


def _bytes(text: str) -> bytes:
    """Of any text, also of one that UTF-8 cannot have."""
    return text.encode(errors="backslashreplace")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
