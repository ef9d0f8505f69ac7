"""Messages in Arrow's memory, in the columns of the store."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import Integer
from sqlalchemy.types import TypeEngine

from delaystore.message import MAX_KEY_BYTES
from delaystore.sql.columns import COLUMNS, MESSAGE_KEY, SENT, MessageColumn
from delaystore.sql.types import Body, ExactText, Json, UtcDateTime

_TYPES: Final[Mapping[type[TypeEngine[Any]], pa.DataType]] = {
    ExactText: pa.string(),
    Json: pa.string(),
    UtcDateTime: pa.timestamp("us", "UTC"),
    Integer: pa.int32(),
    Body: pa.binary(),
}


def _schema(columns: Iterable[MessageColumn]) -> pa.Schema:
    return pa.schema([pa.field(column.name, _TYPES[type(column.type)], column.nullable) for column in columns])


MESSAGES: Final = _schema(COLUMNS)
"""Messages as they wait. `headers` and `properties` are text as the SQL store's codec writes it; null: none."""
STAGED: Final = _schema((*SENT, MessageColumn(MESSAGE_KEY, ExactText(MAX_KEY_BYTES), nullable=True)))
"""New messages, checked, on their way from Spark to a store; their keys last, null: none."""
