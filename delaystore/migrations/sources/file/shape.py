"""The table of a file's lines."""

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Inspector, Table
from sqlalchemy.types import TypeEngine

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations.sources.file.state import MESSAGES
from delaystore.migrations.sources.sql.shape import Identity, TableShape
from delaystore.stores.sql.codec import decode_mapping


class LinesShape(TableShape):
    """A file's lines; `by_endpoint`: each says its endpoint, else all are of any endpoint that is asked for."""

    kind: ClassVar[str] = "a file's lines"
    columns: ClassVar[Mapping[str, str]] = {column.name: f"the line's {column.name}" for column in MESSAGES.columns}
    id_column: ClassVar[str] = "line"
    time_column: ClassVar[str] = "due_time"
    destination_column: ClassVar[str] = "destination"
    identity_columns = ("message_id", "destination", "due_time")

    def __init__(self, *, by_endpoint: bool) -> None:
        self._by_endpoint = by_endpoint

    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:  # noqa: ARG002 - the contract's
        """The file knows its endpoints."""
        return {}

    def table_name(self, endpoint: str) -> str:  # noqa: ARG002 - the contract's
        """The one there is."""
        return MESSAGES.name

    def of_endpoint(self, table: Table, endpoint: str) -> ColumnElement[bool] | None:
        """Those that say so."""
        return table.c.endpoint == endpoint if self._by_endpoint else None

    def row_id(self, row: Mapping[str, Any]) -> str:
        """Its number."""
        return f"line {row['line']}"

    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:  # noqa: ARG002 - the contract's
        """As it was read; what could not be read, again."""
        if row["error"] is not None:
            raise InvalidMessageError(row["error"])
        return DelayedMessage(
            message_id=row["message_id"],
            destination=row["destination"],
            due_time=row["due_time"],
            body=row["body"],
            headers=decode_mapping(row["headers"]),
            properties=decode_mapping(row["properties"]),
        )

    def destination(self, value: Any) -> str:
        """Empty: none."""
        return value or ""

    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:  # noqa: ARG002 - the contract's
        """Without a look at the rest."""
        return row["message_id"], row["destination"], row["due_time"]

    def types(self) -> Mapping[str, TypeEngine[Any]]:
        """Those it was made with."""
        return {column.name: column.type for column in MESSAGES.columns}
