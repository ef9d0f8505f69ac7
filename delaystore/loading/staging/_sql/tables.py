"""The tables of loads: the registry, and one for each run of a load."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table

from delaystore.loading.options import MAX_LOAD_ID_BYTES
from delaystore.message import MAX_KEY_BYTES
from delaystore.sql.columns import COLUMNS, MESSAGE_KEY
from delaystore.sql.dialects import SqlDialect
from delaystore.sql.names import TOKEN_LENGTH, load_table_name, loads_table_name
from delaystore.sql.types import INNODB, ExactText, UtcDateTime

ATTEMPT: Final = "attempt"
"""The staging's column for the task attempt that wrote a row."""


def registry_table(live: Table, dialect: SqlDialect) -> Table:
    """A row for each load, or stream. `batch`, `finished_at`, `stored`, `skipped` are of what was finished last.

    `token` names the run that has the load now, until `lease_until` unless it shows a sign of life; NULL: none has.
    """
    return table_beside(
        live,
        loads_table_name(live.name, dialect),
        Column("load_id", ExactText(MAX_LOAD_ID_BYTES), primary_key=True),
        Column("is_stream", Integer, nullable=False),
        Column("batch", BigInteger),
        Column("token", ExactText(TOKEN_LENGTH)),
        Column("host", ExactText(255), nullable=False),
        Column("pid", Integer, nullable=False),
        Column("place", ExactText(255)),
        Column("process_started", BigInteger),
        Column("began", UtcDateTime, nullable=False),
        Column("heartbeat", UtcDateTime, nullable=False),
        Column("lease_until", UtcDateTime, nullable=False),
        Column("finished_at", UtcDateTime),
        Column("stored", BigInteger),
        Column("skipped", BigInteger),
    )


def staging_table(live: Table, token: str, dialect: SqlDialect, prefixes: Sequence[str] = ()) -> Table:
    """The columns of messages, their keys, and `attempt`. Rows lie in the order in which they came.

    Where a server may refuse tables without a primary key, it is a number that the database gives.
    """
    number = [Column("number", BigInteger, primary_key=True, autoincrement=True)] if dialect.needs_primary_key else []
    return table_beside(
        live,
        load_table_name(live.name, token, dialect),
        *number,
        Column(ATTEMPT, BigInteger, nullable=False),
        *(Column(column.name, column.type, nullable=column.nullable) for column in COLUMNS),
        Column(MESSAGE_KEY, ExactText(MAX_KEY_BYTES)),
        prefixes=list(prefixes),
    )


def table_beside(live: Table, name: str, *columns: Column[Any], **options: Any) -> Table:
    """A table of that name, always quoted, in the schema of `live`."""
    options |= {"schema": live.schema, "quote": True, "quote_schema": True if live.schema else None}
    return Table(name, MetaData(), *columns, **INNODB, **options)
