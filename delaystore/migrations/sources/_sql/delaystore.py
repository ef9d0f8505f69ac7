"""The tables of delaystore's own SQL stores."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final

from sqlalchemy import ColumnElement, Connection, Inspector, Table, inspect
from sqlalchemy.types import TypeEngine
from typing_extensions import override

from delaystore.message import DelayedMessage
from delaystore.migrations._checksum import Identity
from delaystore.migrations.sources._sql.shape import TableShape
from delaystore.migrations.sources._sql.source import SqlSource, url_parameter
from delaystore.sql.columns import MESSAGE_KEY, NAMES
from delaystore.sql.dialects import store_dialect_of
from delaystore.sql.errors import configuration_errors
from delaystore.sql.names import default_table_name
from delaystore.sql.urls import database_url
from delaystore.stores.sql.rows import to_readable_message
from delaystore.stores.sql.schema import delayed_table, shelves_table

_TABLE: Final = delayed_table("any", None, leases=True, keys=True)
_SUFFIX: Final = default_table_name("")


class DelaystoreShape(TableShape):
    """`<endpoint>_delayed`, or the one `table` of a store that was given one.

    Headers, properties, failure count, next attempt and key come along, so that another store gets all of a message;
    tables of releases before keys have none.
    """

    kind = "delaystore"
    columns: ClassVar[Mapping[str, str]] = {name: f"the message's {name}" for name in NAMES}
    missing_column_advice = " If an older release made it, run `delaystore setup` on the source first"
    id_column = "message_id"
    time_column = "due_time"
    order_column = "next_attempt"
    destination_column = "destination"
    identity_columns = ("message_id", "destination", "due_time")

    def __init__(self, table: str | None = None) -> None:
        self._table = table

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """The tables that stores have set up; a given `table` is listed as the endpoint of its own name."""
        names = set(inspector.get_table_names(schema=schema))
        if self._table is not None:
            return {self._table: self._table} if self._table in names else {}
        stores = sorted(name for name in names if name.endswith(_SUFFIX) and f"{name}_version" in names)
        return {name.removesuffix(_SUFFIX): name for name in stores if name != _SUFFIX}

    @override
    def table_name(self, endpoint: str) -> str:
        return self._table or default_table_name(endpoint)

    @override
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        """All of the message, as a store would fetch it; what is parked is shown: nobody may look for it elsewhere."""
        message = to_readable_message([row[name] for name in NAMES], row.get(MESSAGE_KEY))
        return replace(message, next_attempt=message.due_time) if message.is_parked else message

    @override
    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        return row["message_id"], row["destination"], row["due_time"]

    @override
    def free(self, table: Table, now: datetime) -> ColumnElement[bool] | None:
        """Where claims are leases (SQLite): the rows without a lease, or whose lease has ended."""
        if "claimed_by" not in table.c:
            return None
        return table.c.claimed_by.is_(None) | (table.c.claimed_until <= now)

    @override
    def shelves(self, connection: Connection, source: Table) -> Table | None:
        dialect = store_dialect_of(connection)
        if not dialect.has_shelves:
            return None
        shelves = shelves_table(source, dialect)
        return shelves if inspect(connection).has_table(shelves.name, schema=shelves.schema) else None

    @override
    def types(self) -> Mapping[str, TypeEngine[Any]]:
        return {column.name: column.type for column in _TABLE.columns}


def open_delaystore_source(url: str) -> SqlSource:
    """The delaystore SQL store at `url`; `?schema=NAME` and `?table=NAME` where they are not the defaults."""
    with configuration_errors():
        parsed = database_url(url)
    return SqlSource(parsed.difference_update_query(["table"]), DelaystoreShape(url_parameter(parsed, "table")))
