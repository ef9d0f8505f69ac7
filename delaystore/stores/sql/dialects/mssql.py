"""SQL Server: the statements of NServiceBus' own store (seed 003). Compiled in the tests, not run against a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    Table,
    bindparam,
    func,
    literal_column,
    text,
)
from sqlalchemy.exc import IntegrityError

from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.sql.dialects.base import Change, SqlDialect, outcome_of, row_with
from delaystore.stores.sql.types import UtcDateTime

CLAIM: Final = "WITH (READPAST, UPDLOCK, ROWLOCK)"
"""Lock the rows, pass over locked ones, and lock no page; SQLAlchemy writes no such hint by itself."""


class SqlServerDialect(SqlDialect):
    """SQL Server."""

    def clock(self) -> ColumnElement[datetime] | None:
        """UTC."""
        return func.sysutcdatetime(type_=UtcDateTime())

    def bucket(self, column: ColumnElement[datetime], seconds: ColumnElement[int]) -> ColumnElement[int]:
        """Whole seconds since 1970, divided."""
        epoch = func.datediff_big(literal_column("second"), literal_column("'1970-01-01'"), column)
        return func.floor(epoch / seconds)

    @contextmanager
    def setup_lock(self, connection: Connection, name: str) -> Iterator[None]:
        """An application lock that the transaction's end releases."""
        statement = text("EXEC sp_getapplock @Resource = :name, @LockMode = 'Exclusive', @LockOwner = 'Transaction'")
        connection.execute(statement, {"name": f"delaystore {name}"[:255]})
        yield

    def claimed(self, statement: Select[Any], table: Table) -> Select[Any]:
        """The hints of NServiceBus' store."""
        return statement.with_hint(table, CLAIM, "mssql")

    def limited(self, statement: Select[Any]) -> Select[Any]:
        """TOP: SQLAlchemy would number the rows of a subquery, and the hints would lock all of them."""
        return statement.prefix_with(text("TOP (:limit)").bindparams(bindparam("limit", type_=Integer)))

    def behind(self, table: Table, time: str, message_id: str) -> ColumnElement[bool]:
        """There is no comparison of tuples."""
        place = bindparam(time, type_=UtcDateTime)
        later_id = table.c.message_id > bindparam(message_id, type_=table.c.message_id.type)
        return (table.c.next_attempt >= place) & ((table.c.next_attempt > place) | later_id)

    def is_duplicate(self, error: IntegrityError) -> bool:
        """By its numbers, which the driver puts into the text."""
        return any(f"({number})" in str(error.orig) for number in (2601, 2627))

    def if_free(
        self,
        connection: Connection,
        table: Table,
        change: Change,
        values: dict[str, Any],
        now: datetime,  # noqa: ARG002 - locks need no clock
    ) -> ManagementOutcome:
        """Passes over a locked row."""
        changed = connection.execute(unless_locked(change, table), values).rowcount
        return outcome_of(connection, table, values["id"], changed)


def unless_locked(change: Change, table: Table) -> Change:
    """`change` for the row of the parameter `id`, passing over it where it is locked."""
    return change.with_hint("WITH (READPAST, ROWLOCK)", dialect_name="mssql").where(row_with(table))
