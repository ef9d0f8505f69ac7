"""The tables of delaystore's own SQL stores."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from sqlalchemy import ColumnElement, Inspector, Table
from sqlalchemy.types import TypeEngine

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.migrations.sources.sql.shape import Identity, TableShape
from delaystore.stores.sql.names import default_table_name
from delaystore.stores.sql.rows import message_columns, to_message
from delaystore.stores.sql.schema import delayed_table

_TABLE: Final = delayed_table("any", None, leases=True)
_READ: Final = [str(column.key) for column in message_columns(_TABLE)]
_SUFFIX: Final = default_table_name("")


class DelaystoreShape(TableShape):
    """`<endpoint>_delayed`, or the one `table` of a store that was given one.

    Headers, properties, failure count and next attempt come along, so that another store gets all of a message.
    """

    kind = "delaystore"
    columns: ClassVar[Mapping[str, str]] = {
        "message_id": "the message's id, the primary key",
        "destination": "where it goes",
        "due_time": "when it is due",
        "next_attempt": "when a dispatcher looks at it again",
        "failure_count": "how often forwarding it has failed",
        "headers": "its headers",
        "properties": "its AMQP properties",
        "body": "its body",
    }
    id_column = "message_id"
    time_column = "due_time"
    order_column = "next_attempt"
    destination_column = "destination"
    identity_columns = ("message_id", "destination", "due_time")

    def __init__(self, table: str | None = None) -> None:
        self._table = table

    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """Those that a store has set up; a table of a name of its own counts as the endpoint of that name."""
        names = set(inspector.get_table_names(schema=schema))
        if self._table is not None:
            return {self._table: self._table} if self._table in names else {}
        stores = sorted(name for name in names if name.endswith(_SUFFIX) and f"{name}_version" in names)
        return {name.removesuffix(_SUFFIX): name for name in stores if name != _SUFFIX}

    def table_name(self, endpoint: str) -> str:
        """The default name of a store's table."""
        return self._table or default_table_name(endpoint)

    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:  # noqa: ARG002 - a table is one endpoint's
        """All of the message, as a store would fetch it."""
        message = to_message(tuple(row[name] for name in _READ))  # type: ignore[arg-type] # it unpacks any sequence
        if isinstance(message, UnreadableMessage):
            raise InvalidMessageError(message.reason)
        return message

    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:  # noqa: ARG002 - a table is one endpoint's
        """Without a look at the rest."""
        return row["message_id"], row["destination"], row["due_time"]

    def free(self, table: Table, now: datetime) -> ColumnElement[bool] | None:
        """Where claims are leases (SQLite), those that nobody has, or that have ended."""
        if "claimed_by" not in table.c:
            return None
        return table.c.claimed_by.is_(None) | (table.c.claimed_until <= now)

    def types(self) -> Mapping[str, TypeEngine[Any]]:
        """Those of the store."""
        return {column.name: column.type for column in _TABLE.columns}
