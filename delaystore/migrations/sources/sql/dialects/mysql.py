"""MariaDB and MySQL: named locks, row locks by primary key."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Executable,
    LargeBinary,
    Select,
    Table,
    cast,
    event,
    func,
    literal,
    select,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import DBAPIConnection

from delaystore.migrations.sources.sql.dialects.base import (
    MigrationDialect,
    Release,
    name_of,
    name_of_column,
    names_of_columns,
)
from delaystore.migrations.sources.sql.tables import BATCH, REFLECTED, REJECTED, RunTables
from delaystore.stores.sql.names import quoted_name

_HOLDER: Final = text("SELECT id, user, host FROM information_schema.processlist WHERE id = IS_USED_LOCK(:lock)")
_BY_KEY: Final = "FORCE INDEX (PRIMARY)"
"""A scan of a small table would meet the locks of others."""


class MySqlMigration(MigrationDialect):
    """MariaDB 10.6 and newer, MySQL 8 and newer."""

    def prepare_engine(self, engine: Engine) -> None:
        """UTC for columns of type TIMESTAMP, which the session's time zone would shift."""
        event.listen(engine, "connect", _speak_utc)

    def hold(self, connection: Connection, key: str, holder: str) -> Release | None:  # noqa: ARG002 - the signature is given
        """A named lock of the server; the key names the database."""
        lock = _lock_name(key)
        if connection.execute(select(func.get_lock(lock, 0))).scalar() != 1:
            return None
        connection.execute(text("SET SESSION wait_timeout = 604800"))  # it is idle while a batch is being sent
        return lambda: connection.execute(select(func.release_lock(lock))).close()

    def holder(self, connection: Connection, key: str) -> str | None:
        """The connection, and where its client is."""
        row = connection.execute(_HOLDER, {"lock": _lock_name(key)}).first()
        return f"the client of connection {row[0]} ({row[1]} from {row[2]})" if row is not None else None

    def creating(self, connection: Connection, tables: RunTables) -> Sequence[str]:
        """One statement, since each commits itself; the primary key keeps a batch's rows together."""
        key = name_of_column(tables.shape.id_column, connection)
        return [
            f"CREATE TABLE IF NOT EXISTS {name_of(tables.side, connection)} ({BATCH} INT NOT NULL DEFAULT 0, "  # noqa: S608 - all names are quoted
            f"{REJECTED} LONGTEXT CHARACTER SET utf8mb4, PRIMARY KEY ({BATCH}, {key})) ENGINE=InnoDB AS "
            f"SELECT {names_of_columns(tables, connection)} FROM {name_of(tables.source, connection)} WHERE 1 = 0"
        ]

    def behind(self, source: Table, order: str, key: str, place: tuple[datetime, Any]) -> ColumnElement[bool]:
        """Two ranges of an index: these databases use none for a comparison of tuples."""
        time, id_ = source.c[order], source.c[key]
        same = (time == literal(place[0], time.type)) & (id_ > literal(place[1], id_.type))
        return (time > literal(place[0], time.type)) | same

    def locked(self, statement: Select[Any], source: Table) -> Select[Any]:
        """By primary key."""
        return super().locked(self.of_source(statement, source), source)

    def of_source(self, statement: Select[Any], source: Table) -> Select[Any]:
        """By primary key."""
        return statement.with_hint(source, _BY_KEY)

    def exact(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Collations fold."""
        return cast(column, LargeBinary)

    def removing(self, tables: RunTables, number: int, ids: Sequence[Any]) -> Executable:  # noqa: ARG002 - they are in the side table
        """By primary key: no hint keeps the optimizer from scanning here, but a join from the side table does."""
        key = mysql.dialect().identifier_preparer.quote_identifier(tables.shape.id_column).replace("%%", "%")
        side, source = (quoted_name(table, mysql.dialect()) for table in (tables.side, tables.source))
        join = f"{side} AS moved STRAIGHT_JOIN {source} AS waiting ON waiting.{key} = moved.{key}"
        return text(f"DELETE waiting FROM {join}".replace(":", r"\:") + f" WHERE moved.{BATCH} = {number:d}")

    def kept(self, tables: RunTables) -> dict[str, Any]:
        """A TIMESTAMP may be of the kind that every update sets to the present."""
        stamps = [c.name for c in tables.source.columns if isinstance(c.info[REFLECTED], mysql.TIMESTAMP)]
        return {name: tables.side.c[name] for name in stamps}


def _lock_name(key: str) -> str:
    return "delaystore." + sha256(f"migration {key}".encode()).hexdigest()[:40]


def _speak_utc(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("SET time_zone = '+00:00'")
    cursor.close()
