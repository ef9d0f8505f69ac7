"""PostgreSQL: advisory locks of a session, row locks."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Integer,
    Select,
    any_,
    bindparam,
    delete,
    func,
    literal,
    null,
    select,
    text,
)

from delaystore.migrations.sources.sql.dialects.base import (
    Hidden,
    MigrationDialect,
    Release,
    name_of,
    name_of_column,
    names_of_columns,
)
from delaystore.migrations.sources.sql.tables import BATCH, REJECTED, RunTables

_HOLDER: Final = text(
    "SELECT s.pid, s.usename, s.client_addr::text, s.backend_start::text FROM pg_locks l JOIN pg_stat_activity s "
    "ON s.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND l.classid::bigint = :high AND l.objid::bigint = :low"
)
_STAY_OPEN: Final = text("SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'")
"""The session that holds the lock is idle while a batch is being sent; the setting is new in PostgreSQL 14."""

_SWITCHED_OFF: Final = (
    "enable_sort",
    "enable_seqscan",
    "enable_bitmapscan",
    "enable_hashjoin",
    "enable_mergejoin",
    "jit",
)
_BY_INDEX: Final = select(*(func.set_config(name, "off", True) for name in _SWITCHED_OFF))


class PostgreSqlMigration(MigrationDialect):
    """PostgreSQL. A pooler between us and it must keep a session for a connection, not for each transaction."""

    def hold(self, connection: Connection, key: str, holder: str) -> Release | None:  # noqa: ARG002 - the signature is given
        """An advisory lock, of this database."""
        number = _number(key)
        if not connection.execute(select(func.pg_try_advisory_lock(number))).scalar_one():
            return None
        connection.execute(_STAY_OPEN)
        return lambda: connection.execute(select(func.pg_advisory_unlock(number))).close()

    def holder(self, connection: Connection, key: str) -> str | None:
        """The server process, and where its client is."""
        number = _number(key) % 2**64
        row = connection.execute(_HOLDER, {"high": number >> 32, "low": number % 2**32}).first()
        if row is None:
            return None
        return f"the client of server process {row[0]} ({row[1]} from {row[2] or 'a local socket'}, since {row[3]})"

    def creating(self, connection: Connection, tables: RunTables) -> Sequence[str]:
        """In one transaction."""
        side = name_of(tables.side, connection)
        key = name_of_column(tables.shape.id_column, connection)
        return [
            f"CREATE TABLE {side} AS SELECT {names_of_columns(tables, connection)}, "  # noqa: S608 - all names are quoted
            f"CAST(0 AS integer) AS {BATCH}, CAST(NULL AS text) AS {REJECTED} "
            f"FROM {name_of(tables.source, connection)} WITH NO DATA",
            f"ALTER TABLE {side} ADD PRIMARY KEY ({BATCH}, {key})",
        ]

    def by_index(self, connection: Connection) -> None:
        """Without fresh statistics the planner sorts or scans all that is left, once for each batch."""
        connection.execute(_BY_INDEX)

    def hide(
        self,
        connection: Connection,
        tables: RunTables,
        number: int,
        search: Select[Any],
        wanted: ColumnElement[bool],  # noqa: ARG002 - a locking search looks again at what it has locked
    ) -> Hidden | None:
        """In one statement."""
        source, key = tables.source, tables.shape.id_column
        found = self.locked(search, source).cte("found")
        place = (found.c[0], found.c[1])
        gone = delete(source).where(source.c[key] == place[1]).returning(*(source.c[name] for name in tables.names))
        removed = gone.cte("removed")
        copied = select(*(removed.c[name] for name in tables.names), literal(number, Integer), null())
        moved = (
            tables.side.insert().from_select([*tables.names, BATCH, REJECTED], copied).returning(tables.side.c[BATCH])
        )
        numbers = [select(func.count()).select_from(part).scalar_subquery() for part in (found, moved.cte("moved"))]
        row = connection.execute(select(*place, *numbers).order_by(*(c.desc() for c in place)).limit(1)).first()
        return None if row is None else Hidden((row[0], row[1]), row[2], row[2], row[3])

    def among(self, column: ColumnElement[Any], ids: Sequence[Any]) -> ColumnElement[bool]:
        """One array parameter: the statement's text stays the same for any number."""
        return column == any_(bindparam("ids", list(ids), type_=ARRAY(column.type), unique=True))

    def may_create(self, connection: Connection, schema: str | None) -> bool:
        """By the right to the schema."""
        named = func.coalesce(schema, func.current_schema())
        return bool(connection.execute(select(func.has_schema_privilege(named, "CREATE"))).scalar())


def _number(key: str) -> int:
    return int.from_bytes(sha256(f"delaystore migration {key}".encode()).digest()[:8], signed=True)
