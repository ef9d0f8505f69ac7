"""The table of a file's lines."""

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Inspector, Table
from sqlalchemy.types import TypeEngine
from typing_extensions import override

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations._checksum import Identity
from delaystore.migrations.sources._file.state import MESSAGES
from delaystore.migrations.sources._sql.shape import TableShape
from delaystore.sql.columns import completed
from delaystore.stores.sql.rows import to_readable_message


class LinesShape(TableShape):
    """A file's lines. `by_endpoint`: each names its endpoint. False: all belong to whichever endpoint is asked for."""

    kind: ClassVar[str] = "a file's lines"
    columns: ClassVar[Mapping[str, str]] = {column.name: f"the line's {column.name}" for column in MESSAGES.columns}
    id_column: ClassVar[str] = "line"
    time_column: ClassVar[str] = "due_time"
    destination_column: ClassVar[str] = "destination"
    identity_columns = ("message_id", "destination", "due_time")

    def __init__(self, *, by_endpoint: bool) -> None:
        self._by_endpoint = by_endpoint

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """Empty: the file itself tells its endpoints."""
        return {}

    @override
    def table_name(self, endpoint: str) -> str:
        return MESSAGES.name

    @override
    def of_endpoint(self, table: Table, endpoint: str) -> ColumnElement[bool] | None:
        return table.c.endpoint == endpoint if self._by_endpoint else None

    @override
    def row_id(self, row: Mapping[str, Any]) -> str:
        return f"line {row['line']}"

    @override
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        """As the line was read. Raises InvalidMessageError for a line that could not be read."""
        if row["error"] is not None:
            raise InvalidMessageError(row["error"])
        return to_readable_message(completed(row, int))

    @override
    def destination(self, value: Any) -> str:
        return value or ""

    @override
    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        return row["message_id"], row["destination"], row["due_time"]

    @override
    def types(self) -> Mapping[str, TypeEngine[Any]]:
        return {column.name: column.type for column in MESSAGES.columns}
