"""Messages as rows of a DataFrame."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType

from delaystore.errors import InvalidMessageError
from delaystore.loading.columns import STAGED, UNREADABLE
from delaystore.message import DelayedMessage
from delaystore.spark._dataframes import arrow_column
from delaystore.stores.sql.rows import to_row

_NAMES: Final = ("message_id", "destination", "due_time", "body", "headers", "properties")
_ROW: Final = pa.struct(
    [*(STAGED.field(name).with_nullable(True) for name in _NAMES), pa.field(UNREADABLE, pa.string())]
)
"""`headers` and `properties` are JSON objects as the codec of stores writes them. The last column says why a row could
not be read; null: it could."""

Read = Callable[[Mapping[str, Any]], DelayedMessage]
"""From a record to its message; raises InvalidMessageError."""


def messages_in(frame: DataFrame, column: Column, read: Callable[[Any], Iterable[Mapping[str, Any]]]) -> DataFrame:
    """The messages that `read` finds in each value of `column`, as rows. Runs in Spark's Python workers."""

    def found(values: pa.Array) -> pa.Array:
        return pa.array([list(read(value)) for value in values.to_pylist()], pa.list_(_ROW))

    return frame.select(sf.inline(arrow_column(found, column, ArrayType(from_arrow_type(_ROW)))))


def row(read: Read, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of the record's message, by column; where there is none, a row that the writer rejects, and why."""
    try:
        return to_row(read(record))
    except InvalidMessageError as error:
        return unreadable(str(error), json.dumps(record, default=_plain, ensure_ascii=False))


def unreadable(reason: str, raw: str) -> Mapping[str, Any]:
    """A row that the writer rejects for `reason`; its body is `raw`, what could not be read."""
    return {"body": _bytes(raw), UNREADABLE: _bytes(reason).decode()}


def _bytes(text: str) -> bytes:
    """Of any text, also of one that UTF-8 cannot have."""
    return text.encode(errors="backslashreplace")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
