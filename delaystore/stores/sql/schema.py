"""The table in which messages wait, as it is now; `migrations` has how it came to be."""

from collections.abc import Sequence

from sqlalchemy import Column, Index, Integer, MetaData, Table

from delaystore.message import MAX_ADDRESS_BYTES, MAX_MESSAGE_ID_BYTES
from delaystore.stores.sql.types import Body, ExactText, Json, UtcDateTime


def delayed_table(name: str, schema: str | None, *, leases: bool) -> Table:
    """The table `schema.name`; with the columns of a lease where claims are not row locks.

    `next_attempt` is when the message wants attention: its due time, or later after a failure. Its index serves
    "due now" and `list`, and holds the message_id so that a place in it is exact even where many are due at once.
    """
    table = Table(
        name,
        MetaData(),
        Column("message_id", ExactText(MAX_MESSAGE_ID_BYTES), primary_key=True),
        Column("destination", ExactText(MAX_ADDRESS_BYTES), nullable=False),
        Column("due_time", UtcDateTime, nullable=False),
        Column("next_attempt", UtcDateTime, nullable=False),
        Column("failure_count", Integer, nullable=False, server_default="0"),
        Column("headers", Json),
        Column("properties", Json),
        Column("body", Body, nullable=False),
        *_lease_columns(leases),
        schema=schema,
        quote=True,
        quote_schema=True if schema else None,
    )
    Index(f"{name}_due", table.c.next_attempt, table.c.message_id, _table=table)
    if leases:
        Index(f"{name}_claims", table.c.claimed_until, sqlite_where=table.c.claimed_by.is_not(None), _table=table)
    return table


def _lease_columns(leases: bool) -> Sequence[Column[object]]:
    return [Column("claimed_by", ExactText(36)), Column("claimed_until", UtcDateTime)] if leases else []
