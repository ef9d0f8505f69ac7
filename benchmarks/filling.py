"""Millions of waiting messages, made within PostgreSQL: ten million in about a minute."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import psycopg
from psycopg import sql

DESTINATION: Final = "waiting"
"""Where they would go, so that what is sent besides can be told from them."""
FROM_IN: Final = timedelta(days=30)
OVER: Final = timedelta(days=365)
"""When the waiting messages are due: over so long, from then on."""
_MEMORY: Final = "1GB"
"""What sorting for an index may take; just for the session that fills."""


@dataclass(frozen=True)
class Due:
    """Every so-many-th message, and where it goes."""

    queue: str
    each: int


def fill(connection: psycopg.Connection, table: str, count: int, body_bytes: int, due: Due | None = None) -> None:
    """`insert_waiting` into an empty table, whose indexes are made afterwards."""
    connection.execute(sql.SQL("SET maintenance_work_mem = {}").format(_MEMORY))
    with _without_indexes(connection, table):
        insert_waiting(connection, table, count, body_bytes, due)
    connection.execute("RESET maintenance_work_mem")


def insert_waiting(
    connection: psycopg.Connection, table: str, count: int, body_bytes: int, due: Due | None = None
) -> None:
    """Insert rows as a store writes them, in no order: random ids, due at random moments of OVER, FROM_IN from now.

    `due`: which of them are due at once instead; None: none.
    """
    statement = sql.SQL(
        "INSERT INTO {table} (message_id, destination, due_time, next_attempt, failure_count, body) "
        "SELECT gen_random_uuid()::text, CASE WHEN is_due THEN {queue} ELSE {elsewhere} END, due, due, 0, "
        "decode(repeat('78', {body_bytes}), 'hex') "
        "FROM (SELECT is_due, now() + CASE WHEN is_due THEN interval '0' "
        "ELSE {from_in} + random() * {over} END AS due "
        "FROM (SELECT number % {each} = 0 AS is_due FROM generate_series(1, {count}) AS number) AS numbered) AS rows"
    )
    due = due or Due(DESTINATION, count + 1)
    rows = {"elsewhere": DESTINATION, "from_in": FROM_IN, "over": OVER, "body_bytes": body_bytes, "count": count}
    connection.execute(statement.format(table=sql.Identifier(table), queue=due.queue, each=due.each, **rows))


@contextmanager
def _without_indexes(connection: psycopg.Connection, table: str) -> Iterator[None]:
    """Drop the table's indexes, the primary key's too, and make them anew behind the block."""
    name = sql.Identifier(table)
    keys = _definitions(
        connection,
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'p'",
        table,
    )
    indexes = _definitions(
        connection,
        "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index "
        "WHERE indrelid = %s::regclass AND NOT indisprimary",
        table,
    )
    for key in keys:
        connection.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(name, sql.Identifier(key)))
    for index in indexes:
        connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(index)))
    yield
    for key, definition in keys.items():
        add = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} ").format(name, sql.Identifier(key))
        connection.execute(add + sql.SQL(definition))
    for definition in indexes.values():
        connection.execute(sql.SQL(definition))


def _definitions(connection: psycopg.Connection, query: str, table: str) -> dict[str, str]:
    """Names, and the SQL that makes what they name."""
    return dict(connection.execute(query.encode(), (table,)).fetchall())
