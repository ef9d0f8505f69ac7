"""SQL Server, from which messages are only taken. Compiled in the tests, not run against a server."""

from datetime import datetime
from typing import Any, ClassVar, Final

from sqlalchemy import ColumnElement, Connection, Select, Table, collate, func, text
from typing_extensions import override

from delaystore.stores.sql.codec import UtcDateTime
from delaystore.stores.sql.dialects.base import Pair, Release, SqlDialect

_CLAIM: Final = "WITH (READPAST, UPDLOCK, ROWLOCK)"
"""Lock the rows, pass over locked ones, and lock no page; SQLAlchemy writes no such hint."""
_PAST: Final = "WITH (READPAST)"
_LOCK: Final = text(
    "DECLARE @taken int; EXEC @taken = sp_getapplock @Resource = :lock, @LockMode = 'Exclusive', "
    "@LockOwner = 'Session', @LockTimeout = 0; SELECT @taken"
)
_UNLOCK: Final = text("EXEC sp_releaseapplock @Resource = :lock, @LockOwner = 'Session'")


class SqlServerDialect(SqlDialect):
    """SQL Server."""

    max_identifier_bytes: ClassVar[int] = 128

    @override
    def clock(self) -> ColumnElement[datetime] | None:
        return func.sysutcdatetime(type_=UtcDateTime())

    @override
    def limited(self, statement: Select[Any], limit: int) -> Select[Any]:
        """By TOP: SQLAlchemy would number the rows of a subquery, and the hints would lock all of them."""
        return statement.prefix_with(text(f"TOP ({limit:d})"))

    @override
    def behind(self, columns: Pair, position: Pair) -> ColumnElement[bool]:
        """SQL Server cannot compare tuples."""
        (time, id_), (instant, last_id) = columns, position
        return (time >= instant) & ((time > instant) | (id_ > last_id))

    @override
    def lock_free(self, statement: Select[Any], table: Table) -> Select[Any]:
        """READPAST: a plain read would wait for locked rows."""
        return statement.with_hint(table, _PAST, "mssql")

    @override
    def locked(self, statement: Select[Any], table: Table) -> Select[Any]:
        return statement.with_hint(table, _CLAIM, "mssql")

    @override
    def bytewise(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Most collations treat upper and lower case as equal."""
        return collate(column, "Latin1_General_100_BIN2")

    @override
    def take_lock(self, connection: Connection, name: str, owner: str) -> Release | None:
        """An application lock, of this database."""
        lock = {"lock": f"delaystore {name}"[:255]}
        if connection.execute(_LOCK, lock).scalar_one() < 0:
            return None
        return lambda: connection.execute(_UNLOCK, lock).close()

    @override
    def lock_owner(self, connection: Connection, name: str) -> str | None:
        """The server tells only administrators."""
        return None
