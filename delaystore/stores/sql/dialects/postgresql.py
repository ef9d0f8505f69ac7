"""PostgreSQL 13 and newer, through psycopg 3: row locks, COPY, LISTEN and NOTIFY."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from typing import Any

import psycopg
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Insert,
    Table,
    any_,
    bindparam,
    exists,
    func,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from delaystore.errors import ConfigurationError, DuplicateMessageError
from delaystore.stores.abc import ManagementOutcome, WakeUpCallback, WakeUpSubscription
from delaystore.stores.sql.dialects.base import Change, SqlDialect, row_with
from delaystore.stores.sql.listener import PostgreSqlListener
from delaystore.stores.sql.names import quoted_name
from delaystore.stores.sql.types import UtcDateTime


class PostgreSqlDialect(SqlDialect):
    """PostgreSQL."""

    single_statement_isolation = "AUTOCOMMIT"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        if engine.driver != "psycopg":
            raise ConfigurationError(
                f"the PostgreSQL driver {engine.driver} is not supported; use psycopg 3, as in postgresql+psycopg://"
            )

    def clock(self) -> ColumnElement[datetime] | None:
        """The time of the statement, not of the transaction."""
        return func.clock_timestamp(type_=UtcDateTime())

    def bucket(self, column: ColumnElement[datetime], seconds: ColumnElement[int]) -> ColumnElement[int]:
        """Seconds since 1970, divided."""
        return func.floor(func.extract("epoch", column) / seconds)

    @contextmanager
    def setup_lock(self, connection: Connection, name: str) -> Iterator[None]:
        """An advisory lock that the transaction's end releases."""
        key = int.from_bytes(sha256(f"delaystore setup {name}".encode()).digest()[:8], signed=True)
        connection.execute(select(func.pg_advisory_xact_lock(key)))
        yield

    def among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        """One array parameter: the statement's text stays the same for any number."""
        return column == any_(bindparam(name, type_=ARRAY(column.type)))

    def insert(self, table: Table) -> Insert:
        """Inserts nothing where the message_id exists; an error would end the caller's transaction."""
        return postgresql.insert(table).on_conflict_do_nothing()

    def insert_many(self, connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> int:
        """COPY: one statement, so that it is all or none by itself; the savepoint is for the caller's transaction."""
        name = quoted_name(table, connection.dialect)
        statement = f"COPY {name} ({', '.join(COPIED)}) FROM STDIN (FORMAT BINARY)"
        cursor: psycopg.Cursor[Any] = connection.connection.cursor()  # type: ignore[assignment]
        count = 0
        try:
            with self.savepoint(connection), cursor, cursor.copy(statement.encode()) as copy:
                copy.set_types(list(COPIED.values()))
                for row in rows:
                    copy.write_row(tuple(row.values()))
                    count += 1
        except psycopg.errors.UniqueViolation as error:
            found = re.search(r"\(message_id\)=\((.*)\)", error.diag.message_detail or "", re.DOTALL)
            raise DuplicateMessageError([found[1]] if found else []) from None
        except psycopg.Error as error:
            raise DBAPIError.instance(statement, {}, error, psycopg.Error, dialect=connection.dialect) from None
        return count

    def if_free(
        self,
        connection: Connection,
        table: Table,
        change: Change,
        values: dict[str, Any],
        now: datetime,  # noqa: ARG002 - locks need no clock
    ) -> ManagementOutcome:
        """One statement: lock the row unless it is locked, change what was locked, and say what was there."""
        free = select(table.c.message_id).where(row_with(table)).with_for_update(skip_locked=True).cte("free")
        is_free = table.c.message_id.in_(select(free.c.message_id))
        changed = change.where(is_free).returning(table.c.message_id).cte("changed")
        done = exists(select(changed.c.message_id)).label("done")
        there = exists(select(table.c.message_id).where(row_with(table))).label("there")
        row = connection.execute(select(done, there), values).one()
        if row.done:
            return ManagementOutcome.DONE
        return ManagementOutcome.BEING_DISPATCHED if row.there else ManagementOutcome.NOT_FOUND

    def storage_options(self) -> Sequence[str]:
        """A queue's table is vacuumed by what was deleted, not by the share of what waits.

        And it holds no time that Python has not, such as infinity: one such row would spoil every fetch.
        """
        times = " AND ".join(f"{name} BETWEEN '0001-01-02 00:00+00' AND '9999-12-31 00:00+00'" for name in TIMES)
        return (
            f"ALTER TABLE {{table}} ADD CHECK ({times})",
            "ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000)",
        )

    def insert_and_notify(self, table: Table) -> Executable | None:
        """NOTIFY in the insert's own statement; nothing is returned, and nobody woken, for a message_id that exists."""
        values = {name: bindparam(f"new_{name}", type_=table.c[name].type) for name in COPIED}
        stored = self.insert(table).values(values).returning(table.c.message_id).cte("stored")
        notified = func.pg_notify(bindparam("channel"), bindparam("payload"))
        return select(stored.c.message_id, notified)

    def notify(self, connection: Connection, channel: str, payload: str) -> None:
        """NOTIFY; PostgreSQL sends it when the transaction commits."""
        connection.execute(select(func.pg_notify(channel, payload)))

    def listen(self, engine: Engine, channel: str, on_wake_up: WakeUpCallback) -> WakeUpSubscription | None:
        """LISTEN on a connection of its own."""
        return PostgreSqlListener(engine, channel, on_wake_up)


TIMES = ("due_time", "next_attempt")
COPIED = {
    "message_id": "text",
    "destination": "text",
    "due_time": "timestamptz",
    "next_attempt": "timestamptz",
    "failure_count": "int4",
    "headers": "text",
    "properties": "text",
    "body": "bytea",
}
"""The columns that COPY fills, in the order of `to_row`, and their types on the wire."""
