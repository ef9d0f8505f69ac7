"""The table in which messages wait, as it is now; `migrations` has how it came to be."""

from sqlalchemy import Column, Index, MetaData, Table

from delaystore.message import MAX_MESSAGE_ID_BYTES
from delaystore.sql.columns import COLUMNS, KEY, in_order
from delaystore.sql.dialects import StoreDialect
from delaystore.sql.names import shelves_table_name
from delaystore.sql.types import ExactText, UtcDateTime


def delayed_table(name: str, schema: str | None, *, leases: bool) -> Table:
    """The table `schema.name`; with the columns of a lease where claims are not row locks.

    The index by position serves "due now" and `list`; it holds the message_id so that a position in it is exact even
    where many messages are due at once.
    """
    table = Table(
        name,
        MetaData(),
        *(column.in_table() for column in COLUMNS),
        *([Column("claimed_by", ExactText(36)), Column("claimed_until", UtcDateTime)] if leases else []),
        schema=schema,
        quote=True,
        quote_schema=True if schema else None,
    )
    Index(f"{name}_due", *in_order(table), _table=table)
    if leases:
        Index(f"{name}_claims", table.c.claimed_until, sqlite_where=table.c.claimed_by.is_not(None), _table=table)
    return table


def shelves_table(live: Table, dialect: StoreDialect) -> Table:
    """The table whose children are the shelves of `live`; it has no rows of its own."""
    return Table(
        shelves_table_name(live.name, dialect),
        MetaData(),
        Column(KEY, ExactText(MAX_MESSAGE_ID_BYTES), nullable=False),
        schema=live.schema,
        quote=True,
        quote_schema=True if live.schema else None,
    )
