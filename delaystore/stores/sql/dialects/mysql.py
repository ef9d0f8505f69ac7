"""MariaDB 10.6 and newer, MySQL 8 and newer: row locks under READ COMMITTED."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Select,
    Table,
    bindparam,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import IntegrityError, OperationalError

from delaystore.errors import StoreUnavailableError
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.sql.dialects.base import Change, Claiming, SqlDialect, row_with
from delaystore.stores.sql.names import quoted_name
from delaystore.stores.sql.types import JsonList, UtcDateTime

LOCKED: Final = frozenset({1205, 3572})
"""NOWAIT met a lock: MariaDB's number and MySQL's."""
DUPLICATE: Final = 1062
SETUP_TIMEOUT: Final = 60
"""Seconds to wait for another process's set-up."""


class MySqlDialect(SqlDialect):
    """MariaDB and MySQL."""

    claiming = Claiming.CANDIDATE_LOCKS

    def clock(self) -> ColumnElement[datetime] | None:
        """UTC whatever the session's time zone, with microseconds."""
        return func.utc_timestamp(6, type_=UtcDateTime())

    def bucket(self, column: ColumnElement[datetime], seconds: ColumnElement[int]) -> ColumnElement[int]:
        """Whole seconds since 1970, divided."""
        epoch = func.timestampdiff(literal_column("SECOND"), literal_column("'1970-01-01'"), column)
        return func.floor(epoch / seconds)

    @contextmanager
    def setup_lock(self, connection: Connection, name: str) -> Iterator[None]:
        """A named lock: DDL commits by itself there."""
        lock = "delaystore." + sha256(name.encode()).hexdigest()[:40]
        if connection.execute(select(func.get_lock(lock, SETUP_TIMEOUT))).scalar() != 1:
            raise StoreUnavailableError(
                f"another process has been setting up {name!r} for {SETUP_TIMEOUT} s; try again"
            )
        try:
            yield
            connection.commit()  # the version, which is a row, before others may look for it
        finally:
            connection.execute(select(func.release_lock(lock)))

    def behind(self, table: Table, time: str, message_id: str) -> ColumnElement[bool]:
        """A plain bound on the time first: these databases use no index for a comparison of tuples."""
        return (table.c.next_attempt >= bindparam(time, type_=UtcDateTime)) & super().behind(table, time, message_id)

    def claimed(self, statement: Select[Any], table: Table) -> Select[Any]:
        """By primary key alone: a scan of a small table would meet the locks of others."""
        return super().claimed(statement.with_hint(table, "FORCE INDEX (PRIMARY)"), table)

    def remove_many(self, table: Table) -> Executable:
        """By primary key alone: a scan of a small table would wait for the locks of others.

        An index hint does not keep the optimizer from scanning here; a join from the ids to the table does.
        """
        name = quoted_name(table, mysql.dialect()).replace(":", r"\:")
        ids = "JSON_TABLE(:ids, '$[*]' COLUMNS (id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS ids"
        join = f"{ids} STRAIGHT_JOIN {name} AS waiting ON waiting.message_id = CAST(ids.id AS BINARY)"
        return text(f"DELETE waiting FROM {join}").bindparams(bindparam("ids", type_=JsonList()))

    def is_duplicate(self, error: IntegrityError) -> bool:
        """By its number."""
        return error.orig is not None and error.orig.args[:1] == (DUPLICATE,)

    def if_free(
        self,
        connection: Connection,
        table: Table,
        change: Change,
        values: dict[str, Any],
        now: datetime,  # noqa: ARG002 - locks need no clock
    ) -> ManagementOutcome:
        """The row lock decides, and is not waited for."""
        claim = select(table.c.message_id).where(row_with(table)).with_for_update(nowait=True)
        try:
            if connection.execute(claim, {"id": values["id"]}).first() is None:
                return ManagementOutcome.NOT_FOUND
        except OperationalError as error:
            if error.orig is not None and error.orig.args and error.orig.args[0] in LOCKED:
                return ManagementOutcome.BEING_DISPATCHED
            raise
        connection.execute(change.where(row_with(table)), values)
        return ManagementOutcome.DONE
