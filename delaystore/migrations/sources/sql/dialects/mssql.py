"""SQL Server: application locks of a session, hints that pass over locked rows. Compiled, not run, in the tests."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, Table, collate, literal, text

from delaystore.migrations.sources.sql.dialects.base import (
    MigrationDialect,
    Release,
    name_of,
    name_of_column,
    names_of_columns,
)
from delaystore.migrations.sources.sql.tables import BATCH, REJECTED, RunTables

_CLAIM: Final = "WITH (READPAST, UPDLOCK, ROWLOCK)"
_PAST: Final = "WITH (READPAST)"
_HOLD: Final = text(
    "DECLARE @taken int; EXEC @taken = sp_getapplock @Resource = :lock, @LockMode = 'Exclusive', "
    "@LockOwner = 'Session', @LockTimeout = 0; SELECT @taken"
)
_RELEASE: Final = text("EXEC sp_releaseapplock @Resource = :lock, @LockOwner = 'Session'")


class SqlServerMigration(MigrationDialect):
    """SQL Server."""

    def hold(self, connection: Connection, key: str, holder: str) -> Release | None:  # noqa: ARG002 - the signature is given
        """An application lock, of this database."""
        lock = {"lock": f"delaystore migration {key}"[:255]}
        if connection.execute(_HOLD, lock).scalar_one() < 0:
            return None
        return lambda: connection.execute(_RELEASE, lock).close()

    def holder(self, connection: Connection, key: str) -> str | None:  # noqa: ARG002 - the signature is given
        """The server tells only administrators."""
        return None

    def creating(self, connection: Connection, tables: RunTables) -> Sequence[str]:
        """In one transaction; ISNULL makes a column that can be of a primary key."""
        side = name_of(tables.side, connection)
        key = name_of_column(tables.shape.id_column, connection)
        return [
            f"SELECT {names_of_columns(tables, connection)}, ISNULL(CAST(0 AS int), 0) AS {BATCH}, "  # noqa: S608 - all names are quoted
            f"CAST(NULL AS nvarchar(max)) AS {REJECTED} INTO {side} "
            f"FROM {name_of(tables.source, connection)} WHERE 1 = 0",
            f"ALTER TABLE {side} ADD PRIMARY KEY ({BATCH}, {key})",
        ]

    def behind(self, source: Table, order: str, key: str, place: tuple[datetime, Any]) -> ColumnElement[bool]:
        """There is no comparison of tuples."""
        time, id_ = source.c[order], source.c[key]
        later = (time > literal(place[0], time.type)) | (id_ > literal(place[1], id_.type))
        return (time >= literal(place[0], time.type)) & later

    def limited(self, statement: Select[Any], limit: int) -> Select[Any]:
        """TOP: SQLAlchemy would number the rows of a subquery."""
        return statement.prefix_with(text(f"TOP ({limit:d})"))

    def passing(self, statement: Select[Any], source: Table) -> Select[Any]:
        """READPAST: a plain read would wait for locked rows."""
        return statement.with_hint(source, _PAST, "mssql")

    def locked(self, statement: Select[Any], source: Table) -> Select[Any]:
        """By hints."""
        return statement.with_hint(source, _CLAIM, "mssql")

    def exact(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Collations fold."""
        return collate(column, "Latin1_General_100_BIN2")
