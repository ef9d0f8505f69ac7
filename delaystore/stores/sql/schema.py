"""The table in which messages wait, as it is now; `migrations` has how it came to be."""

from sqlalchemy import Column, Index, MetaData, Table

from delaystore.message import MAX_MESSAGE_ID_BYTES
from delaystore.sql.columns import COLUMNS, FAILURES, FAILURES_OF, KEY, MESSAGE_KEY, in_order, key_columns
from delaystore.sql.dialects import StoreDialect
from delaystore.sql.names import shelves_table_name
from delaystore.sql.types import INNODB, ExactText, Json, UtcDateTime


def delayed_table(name: str, schema: str | None, *, leases: bool, keys: bool = False) -> Table:
    """The table `schema.name`; with the columns of a lease where claims are not row locks.

    `keys`: with the columns of keys, which the statements about other messages do not name. Their index holds only
    messages with a key where the database can do that; elsewhere it takes any number of NULLs.

    The index by position serves "due now" and `list`; it holds the message_id so that a position in it is exact even
    where many messages are due at once.
    """
    table = Table(
        name,
        MetaData(),
        *(column.in_table() for column in COLUMNS),
        *([Column("claimed_by", ExactText(36)), Column("claimed_until", UtcDateTime)] if leases else []),
        *(key_columns() if keys else []),
        schema=schema,
        quote=True,
        quote_schema=True if schema else None,
        **INNODB,
    )
    Index(f"{name}_due", *in_order(table), _table=table)
    if leases:
        Index(f"{name}_claims", table.c.claimed_until, sqlite_where=table.c.claimed_by.is_not(None), _table=table)
    if keys:
        key = table.c[MESSAGE_KEY]
        has_key = key.is_not(None)
        Index(f"{name}_keys", key, unique=True, postgresql_where=has_key, sqlite_where=has_key, _table=table)
    return table


def with_keys(table: Table) -> Table:
    """The same table with the columns of keys."""
    return delayed_table(table.name, table.schema, leases="claimed_by" in table.c, keys=True)


def whole_table(table: Table, dialect: StoreDialect) -> Table:
    """The same table with all its columns, also that of failures; those about sending and dispatching name it not.

    The index of what has failed before holds nothing else, so that storing a message costs nothing more; where the
    database cannot do that, it is of a column that is NULL for all the others.
    """
    whole = with_keys(table)
    whole.append_column(Column(FAILURES, Json()))
    whole.append_column(Column(FAILURES_OF, ExactText(MAX_MESSAGE_ID_BYTES)))
    for column in dialect.failing_columns():
        whole.append_column(column)
    where = dialect.is_failing(whole)
    order = dialect.failing_order(whole)
    Index(f"{table.name}_failing", *order, postgresql_where=where, sqlite_where=where, _table=whole)
    return whole


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
