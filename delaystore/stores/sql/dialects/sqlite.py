"""SQLite: one writer, no row locks, so claims are leases written in short transactions."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Integer,
    Select,
    Table,
    bindparam,
    cast,
    delete,
    func,
    select,
)
from sqlalchemy.dialects import sqlite

from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.sql.dialects.base import Change, Claiming, SqlDialect, outcome_of, row_with
from delaystore.stores.sql.types import JsonList, UtcDateTime


class SqliteDialect(SqlDialect):
    """SQLite 3.35 or newer (RETURNING)."""

    claiming = Claiming.LEASES
    transaction_isolation = None

    def clock(self) -> ColumnElement[datetime] | None:
        """SQLite runs in this process: the computer's clock is its clock, and has microseconds."""
        return None

    def bucket(self, column: ColumnElement[datetime], seconds: ColumnElement[int]) -> ColumnElement[int]:
        """Whole seconds since 1970, divided; the fraction is cut off, which strftime would round."""
        return cast(func.strftime("%s", func.substr(column, 1, 19)), Integer).op("/")(seconds)

    @contextmanager
    def setup_lock(self, connection: Connection, name: str) -> Iterator[None]:  # noqa: ARG002 - one lock for all
        """The write lock."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield

    def claimed(self, statement: Select[Any], table: Table) -> Select[Any]:
        """Only rows without a lease, or with one that has expired at the parameter `now`."""
        return statement.where(unclaimed(table))

    def among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        """One parameter: SQLite allows only so many."""
        values = func.json_each(bindparam(name, type_=JsonList())).table_valued("value")
        return column.in_(select(values.c.value))

    def remove_many(self, table: Table) -> Executable:
        """Only rows whose lease has not been lost to another."""
        return delete(table).where(self.among(table.c.message_id, "ids"), not_lost(table))

    def insert(self, table: Table) -> Insert:
        """Inserts nothing where the message_id exists."""
        return sqlite.insert(table).on_conflict_do_nothing()

    @contextmanager
    def savepoint(self, connection: Connection) -> Iterator[None]:
        """A savepoint inside a transaction: pysqlite begins none of its own for it, and its release would commit."""
        if not connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
            connection.exec_driver_sql("BEGIN")
        with connection.begin_nested():
            yield

    def if_free(
        self, connection: Connection, table: Table, change: Change, values: dict[str, Any], now: datetime
    ) -> ManagementOutcome:
        """The lease is part of the statement's predicate."""
        statement = change.where(row_with(table), unclaimed(table))
        return outcome_of(
            connection, table, values["id"], connection.execute(statement, values | {"now": now}).rowcount
        )


def not_lost(table: Table) -> ColumnElement[bool]:
    """Whether no claimer but the parameter `token` has a row."""
    return table.c.claimed_by.is_(None) | (table.c.claimed_by == bindparam("token", type_=table.c.claimed_by.type))


def unclaimed(table: Table) -> ColumnElement[bool]:
    """Whether nobody has a lease on a row at the parameter `now`."""
    return table.c.claimed_by.is_(None) | (table.c.claimed_until <= bindparam("now", type_=UtcDateTime))
