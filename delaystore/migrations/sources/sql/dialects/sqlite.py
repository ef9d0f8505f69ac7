"""SQLite: one writer, leases in place of row locks, a file beside the database as the lock of a run."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Executable, Select, Table, delete, select

from delaystore.errors import StorePermissionError
from delaystore.migrations.sources.sql.dialects.base import (
    MigrationDialect,
    Release,
    name_of,
    name_of_column,
    names_of_columns,
)
from delaystore.migrations.sources.sql.tables import BATCH, REJECTED, RunTables


class SqliteMigration(MigrationDialect):
    """SQLite 3.35 or newer."""

    rights = "write access"
    isolation = None

    def hold(self, connection: Connection, key: str, holder: str) -> Release | None:
        """An flock of a file that names the holder; it is gone when nobody holds it."""
        path = _lock_file(connection, key)
        while True:
            handle = _opened(path)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            if _is_there(path, handle):
                break
            os.close(handle)  # its last holder has deleted it between our opening and our locking
        os.truncate(handle, 0)
        os.write(handle, holder.encode(errors="replace"))

        def release() -> None:
            path.unlink(missing_ok=True)
            os.close(handle)

        return release

    def holder(self, connection: Connection, key: str) -> str | None:
        """What the file says."""
        try:
            return _lock_file(connection, key).read_text(errors="replace") or None
        except OSError:
            return None

    @contextmanager
    def writing(self, connection: Connection) -> Iterator[None]:
        """The write lock first: a transaction that has read cannot always write."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield

    def creating(self, connection: Connection, tables: RunTables) -> Sequence[str]:
        """The affinities are the source's, so that no value changes."""
        side = name_of(tables.side, connection)
        index = connection.dialect.identifier_preparer.quote_identifier(f"{tables.side.name}_key")
        key = name_of_column(tables.shape.id_column, connection)
        return [
            f"CREATE TABLE {side} AS SELECT {names_of_columns(tables, connection)}, "  # noqa: S608 - all names are quoted
            f"CAST(0 AS INTEGER) AS {BATCH}, CAST(NULL AS TEXT) AS {REJECTED} "
            f"FROM {name_of(tables.source, connection)} WHERE 0",
            f"CREATE UNIQUE INDEX {index} ON {name_of(tables.side, connection)} ({BATCH}, {key})",
        ]

    def locked(self, statement: Select[Any], source: Table) -> Select[Any]:  # noqa: ARG002 - the signature is given
        """There is but one writer."""
        return statement

    def removing(self, tables: RunTables, number: int, ids: Sequence[Any]) -> Executable:  # noqa: ARG002 - they are in the side table
        """By what has been copied."""
        key = tables.shape.id_column
        moved = select(tables.side.c[key]).where(tables.side.c[BATCH] == number)
        return delete(tables.source).where(tables.source.c[key].in_(moved))

    def dropping(self, connection: Connection, tables: Sequence[Table]) -> Sequence[str]:
        """One statement each, in one transaction."""
        return [f"DROP TABLE IF EXISTS {name_of(table, connection)}" for table in tables]


def _lock_file(connection: Connection, key: str) -> Path:
    (path,) = [row[2] for row in connection.exec_driver_sql("PRAGMA database_list") if row[1] == "main"]
    return Path(f"{path}.{quote(key, safe='')}.migration-lock")


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorePermissionError(
            f"the lock file {str(path)!r} cannot be written: {error.strerror}; allow writing beside the database"
        ) from None


def _is_there(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
