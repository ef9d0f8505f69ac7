"""PostgreSQL: COPY from Arrow's memory into an unlogged table."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import psycopg
import pyarrow as pa
from sqlalchemy import Connection, Insert, Select, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from delaystore.spark.options import OnDuplicate
from delaystore.spark.staging.sql.binary_copy import COLUMNS, copy_stream
from delaystore.spark.staging.sql.dialects.base import StagingDialect, plain_insert, run
from delaystore.stores.sql.names import quoted_name

DROP_PATIENCE: Final = "2s"
"""How long a drop waits for an attempt that still writes."""
_DUPLICATE: Final = frozenset({"23505", "21000"})
"""A unique key that exists, and one that a replacing insert meets twice."""
_CONFLICT: Final = frozenset({"40001", "40P01"})
_HELD: Final = frozenset({"55P03"})


class PostgreSqlStaging(StagingDialect):
    """PostgreSQL. An unlogged table is emptied by a crash of the server, which the promotion notices."""

    prefixes: ClassVar[Sequence[str]] = ("UNLOGGED",)
    replaces_twice: ClassVar[bool] = False

    def take_time(self, connection: Connection) -> None:
        """The role's limits are made for other work."""
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")

    def create(self, connection: Connection, staging: Table) -> None:
        """Nothing is compressed, or looked at by autovacuum, on the way."""
        super().create(connection, staging)
        name = quoted_name(staging, connection.dialect)
        storage = ", ".join(f"ALTER COLUMN {column} SET STORAGE EXTERNAL" for column in ("headers", "body"))
        run(connection, f"ALTER TABLE {name} SET (autovacuum_enabled = off), {storage}")

    def drop(self, connection: Connection, name: str) -> None:
        """Waits briefly."""
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{DROP_PATIENCE}'")
        run(connection, f"DROP TABLE IF EXISTS {name}")

    def empty(self, connection: Connection, name: str) -> None:
        """Waits briefly."""
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{DROP_PATIENCE}'")
        run(connection, f"TRUNCATE {name}")

    def is_held(self, error: DBAPIError) -> bool:
        """By the lock's timeout."""
        return _state(error) in _HELD

    def copy(self, connection: Connection, staging: Table, attempt: int, rows: pa.RecordBatch) -> None:
        """Binary COPY."""
        name = quoted_name(staging, connection.dialect)
        statement = f"COPY {name} ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)"
        cursor: psycopg.Cursor[Any] = connection.connection.cursor()  # type: ignore[assignment]
        try:
            with cursor, cursor.copy(statement.encode()) as copy:
                for piece in copy_stream(rows, attempt):
                    copy.write(piece)
        except psycopg.Error as error:
            raise DBAPIError.instance(statement, {}, error, psycopg.Error, dialect=connection.dialect) from None

    def promoting(self, live: Table, names: Sequence[str], staged: Select[Any], on_duplicate: OnDuplicate) -> Insert:
        """An insert that replaces waits for the row locks of dispatchers."""
        if on_duplicate is OnDuplicate.ERROR:
            return plain_insert(live, names, staged)
        statement = postgresql.insert(live).from_select(list(names), staged, include_defaults=False)
        if on_duplicate is OnDuplicate.IGNORE:
            return statement.on_conflict_do_nothing()
        changed = {name: statement.excluded[name] for name in names if name != "message_id"}
        return statement.on_conflict_do_update(index_elements=["message_id"], set_=changed)

    def is_duplicate(self, error: DBAPIError) -> bool:
        """By SQLSTATE."""
        return _state(error) in _DUPLICATE

    def is_conflict(self, error: DBAPIError) -> bool:
        """A deadlock, or a failed serialization."""
        return _state(error) in _CONFLICT


def _state(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)
