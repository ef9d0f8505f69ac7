"""SQLite: one writer at a time, in short transactions; claims are leases."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Insert, Select, Table, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError

from delaystore.spark.options import OnDuplicate
from delaystore.spark.staging.sql.binary_copy import COLUMNS
from delaystore.spark.staging.sql.dialects.base import StagingDialect, plain_insert, python_rows, run
from delaystore.stores.sql.names import quoted_name


class SqliteStaging(StagingDialect):
    """SQLite; every task writes into the one file."""

    def begin(self, connection: Connection) -> None:
        """Become the writer at once: a reader that turns writer fails where another has written meanwhile."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def drop(self, connection: Connection, name: str) -> None:
        """Waits for writers, whose transactions are short."""
        run(connection, f"DROP TABLE IF EXISTS {name}")

    def empty(self, connection: Connection, name: str) -> None:
        """SQLite frees all pages at once where there is no condition."""
        run(connection, f"DELETE FROM {name}")  # noqa: S608 - the name is quoted

    def is_held(self, error: DBAPIError) -> bool:
        """By its text."""
        return "locked" in str(error.orig)

    def copy(self, connection: Connection, staging: Table, attempt: int, rows: pa.RecordBatch) -> None:
        """One prepared statement."""
        name = quoted_name(staging, connection.dialect)
        values = ", ".join("?" * len(COLUMNS))
        statement = f"INSERT INTO {name} ({', '.join(COLUMNS)}) VALUES ({values})"  # noqa: S608 - names are quoted
        times = pc.strftime(rows.column("due_time"), "%Y-%m-%d %H:%M:%S")
        connection.exec_driver_sql(statement, list(python_rows(rows, attempt, times)))

    def promoting(self, live: Table, names: Sequence[str], staged: Select[Any], on_duplicate: OnDuplicate) -> Insert:
        """A replaced row has no claim: `is_claimed` was asked before, in the same transaction."""
        if on_duplicate is OnDuplicate.ERROR:
            return plain_insert(live, names, staged)
        statement = sqlite.insert(live).from_select(list(names), staged, include_defaults=False)
        if on_duplicate is OnDuplicate.IGNORE:
            return statement.on_conflict_do_nothing()
        changed: dict[str, Any] = {name: statement.excluded[name] for name in names if name != "message_id"}
        free = {"claimed_by": None, "claimed_until": None}
        return statement.on_conflict_do_update(index_elements=["message_id"], set_=changed | free)

    def is_duplicate(self, error: DBAPIError) -> bool:
        """By its kind and text."""
        return isinstance(error, IntegrityError) and "UNIQUE" in str(error.orig)

    def is_claimed(self, connection: Connection, live: Table, staged: Select[Any], now: datetime) -> bool:
        """By a lease that has not ended."""
        rows = staged.subquery("staged")
        claimed = live.c.claimed_by.is_not(None) & (live.c.claimed_until > now)
        found = select(live.c.message_id).where(claimed, live.c.message_id.in_(select(rows.c.message_id))).limit(1)
        return connection.execute(found).first() is not None
