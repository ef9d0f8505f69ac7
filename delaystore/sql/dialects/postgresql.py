"""PostgreSQL 13 and newer, through psycopg 3: row locks, COPY, NOTIFY."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar, Final

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Integer,
    Table,
    any_,
    bindparam,
    exists,
    func,
    select,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.types import TypeEngine
from typing_extensions import override

from delaystore.errors import ConfigurationError, DuplicateMessageError
from delaystore.sql.dialects.base import CONNECT_TIMEOUT, Change, Release, StoreDialect, driver_errors, row_with
from delaystore.sql.faults import Code, Fault, code_of
from delaystore.sql.quoting import quoted_name
from delaystore.sql.types import Body, ExactText, Json, UtcDateTime

_WIRE_TYPES: Final[Mapping[type[TypeEngine[Any]], str]] = {
    ExactText: "text",
    UtcDateTime: "timestamptz",
    Integer: "int4",
    Json: "text",
    Body: "bytea",
}
"""What COPY sends."""
_OWNER: Final = text(
    "SELECT s.pid, s.usename, s.client_addr::text, s.backend_start::text FROM pg_locks l JOIN pg_stat_activity s "
    "ON s.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND l.classid::bigint = :high AND l.objid::bigint = :low"
)
_STAY_OPEN: Final = text("SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'")
"""The session that has the lock is idle while a batch is being sent; the setting is new in PostgreSQL 14."""
_SWITCHED_OFF: Final = (
    "enable_sort",
    "enable_seqscan",
    "enable_bitmapscan",
    "enable_hashjoin",
    "enable_mergejoin",
    "jit",
)
_BY_INDEX: Final = select(*(func.set_config(name, "off", True) for name in _SWITCHED_OFF))
_OUTAGES: Final = frozenset({"08", "40", "53", "55", "57", "58"})
"""Connections, serialization, resources, locks, operators, the system (PostgreSQL manual, appendix A)."""
_READ_ONLY: Final = "25006"


class PostgreSqlDialect(StoreDialect):
    """PostgreSQL."""

    connect_arguments: ClassVar[Mapping[str, Any]] = {
        "client_encoding": "utf8",
        "connect_timeout": CONNECT_TIMEOUT,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }
    max_identifier_bytes: ClassVar[int] = 63
    folds_names: ClassVar[bool] = True
    single_statement_isolation: ClassVar[str | None] = "AUTOCOMMIT"
    exports_snapshots: ClassVar[bool] = True
    has_notifications: ClassVar[bool] = True
    faults: ClassVar[Mapping[Code, Fault]] = {
        **dict.fromkeys(("28000", "28P01"), Fault.LOGIN),
        "42501": Fault.PERMISSION,
        **dict.fromkeys(("42P01", "42703", "3F000"), Fault.MISSING),
        **dict.fromkeys(("23505", "21000"), Fault.DUPLICATE),  # the latter: a replacing insert has a key twice
        "55P03": Fault.LOCKED,
        "57014": Fault.CANCELLED,
        **dict.fromkeys(("40001", "40P01"), Fault.CONFLICT),
    }

    @override
    def check_driver(self, driver: str) -> None:
        if driver != "psycopg":
            raise ConfigurationError(
                f"the PostgreSQL driver {driver} is not supported; use psycopg 3, as in postgresql+psycopg://"
            )

    @override
    def prepare(self, connection: Any) -> None:
        """ISO dates: psycopg reads no others. The server has said which it writes, so that mostly nothing is to do."""
        if not (connection.info.parameter_status("DateStyle") or "").startswith("ISO"):
            connection.autocommit = True
            connection.execute("SET datestyle = 'ISO'")
            connection.autocommit = False

    @override
    def socket_of(self, connection: Any) -> int | None:
        return None if connection.closed else connection.fileno()

    @override
    def cancellation(self, connection: Any) -> Callable[[float], object] | None:
        """A commit that waits for a synchronous standby ends no other way: the server would keep its process for it."""
        from psycopg import capabilities

        if not capabilities.has_cancel_safe():
            return None  # with an older libpq the request itself has no time limit
        return lambda seconds: _cancel(connection, seconds)

    @override
    def clock(self) -> ColumnElement[datetime] | None:
        """The time of the statement, not of the transaction."""
        return func.clock_timestamp(type_=UtcDateTime())

    @override
    def read_only(self) -> ColumnElement[bool] | None:
        """A standby's transactions are read-only, and so are those of default_transaction_read_only."""
        return func.current_setting("transaction_read_only") == "on"

    @override
    def bucket(self, column: ColumnElement[datetime], seconds: ColumnElement[int]) -> ColumnElement[int]:
        return func.floor(func.extract("epoch", column) / seconds)

    @override
    @contextmanager
    def setup_lock(self, connection: Connection, name: str) -> Iterator[None]:
        """An advisory lock that the transaction's end releases."""
        connection.execute(select(func.pg_advisory_xact_lock(_lock_number(f"setup {name}"))))
        yield

    @override
    def take_lock(self, connection: Connection, name: str, owner: str) -> Release | None:
        """An advisory lock, of this database. A pooler must keep a session for a connection."""
        number = _lock_number(name)
        if not connection.execute(select(func.pg_try_advisory_lock(number))).scalar_one():
            return None
        connection.execute(_STAY_OPEN)
        return lambda: connection.execute(select(func.pg_advisory_unlock(number))).close()

    @override
    def lock_owner(self, connection: Connection, name: str) -> str | None:
        """The server process, and where its client is."""
        number = _lock_number(name) % 2**64
        row = connection.execute(_OWNER, {"high": number >> 32, "low": number % 2**32}).first()
        if row is None:
            return None
        return f"the client of server process {row[0]} ({row[1]} from {row[2] or 'a local socket'}, since {row[3]})"

    @override
    def prefer_indexes(self, connection: Connection) -> None:
        """Without fresh statistics the planner sorts or scans all that is left, once for each batch."""
        connection.execute(_BY_INDEX)

    @override
    def may_create(self, connection: Connection, schema: str | None) -> bool:
        named = func.coalesce(schema, func.current_schema())
        return bool(connection.execute(select(func.has_schema_privilege(named, "CREATE"))).scalar())

    @override
    def among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        """One array parameter: the statement's text stays the same for any number."""
        return column == any_(bindparam(name, type_=ARRAY(column.type)))

    @override
    def insert(self, table: Table) -> Insert:
        """Inserts nothing where the key exists; an error would end the caller's transaction."""
        return postgresql.insert(table).on_conflict_do_nothing()

    @override
    def insert_many(self, connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> int:
        """COPY: one statement, so that it is all or none by itself; the savepoint is for the caller's transaction."""
        names = ", ".join(column.name for column in table.columns)
        statement = f"COPY {quoted_name(table, connection.dialect)} ({names}) FROM STDIN (FORMAT BINARY)"
        cursor: Any = connection.connection.cursor()
        count = 0
        try:
            with (
                self.savepoint(connection),
                driver_errors(connection, statement),
                cursor,
                cursor.copy(statement.encode()) as copy,
            ):
                copy.set_types([_WIRE_TYPES[type(column.type)] for column in table.columns])
                for row in rows:
                    copy.write_row(tuple(row.values()))
                    count += 1
        except IntegrityError as error:
            if self.fault(error) is not Fault.DUPLICATE:
                raise
            diagnostics: Any = getattr(error.orig, "diag", None)
            found = re.search(r"\(message_id\)=\((.*)\)", diagnostics.message_detail or "", re.DOTALL)
            raise DuplicateMessageError([found[1]] if found else []) from None
        return count

    @override
    def change_unclaimed(
        self, connection: Connection, table: Table, change: Change, values: dict[str, Any], now: datetime
    ) -> bool | None:
        """One statement: lock the row unless it is locked, change what was locked, and say what was there."""
        free = select(table.c.message_id).where(row_with(table)).with_for_update(skip_locked=True).cte("free")
        is_free = table.c.message_id.in_(select(free.c.message_id))
        changed = change.where(is_free).returning(table.c.message_id).cte("changed")
        done = exists(select(changed.c.message_id)).label("done")
        there = exists(select(table.c.message_id).where(row_with(table))).label("there")
        row = connection.execute(select(done, there), values).one()
        return bool(row.done) if row.done or row.there else None

    @override
    def time_checks(self) -> Sequence[str]:
        """A CHECK; infinity is such a time."""
        times = " AND ".join(
            f"{name} BETWEEN '0001-01-02 00:00+00' AND '9999-12-31 00:00+00'" for name in ("due_time", "next_attempt")
        )
        return (f"ALTER TABLE {{table}} ADD CHECK ({times})",)

    @override
    def storage_options(self) -> Sequence[str]:
        """Vacuum by the number of deleted rows, not by their share of the table."""
        return ("ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000)",)

    @override
    def insert_and_notify(self, table: Table) -> Executable:
        """NOTIFY in the insert's own statement; nothing is returned, and nobody woken, for a message_id that exists."""
        values = {column.name: bindparam(f"new_{column.name}", type_=column.type) for column in table.columns}
        stored = self.insert(table).values(values).returning(table.c.message_id).cte("stored")
        notified = func.pg_notify(bindparam("channel"), bindparam("payload"))
        return select(stored.c.message_id, notified)

    @override
    def notify(self, connection: Connection, channel: str, payload: str) -> None:
        """NOTIFY; PostgreSQL sends it when the transaction commits."""
        connection.execute(select(func.pg_notify(channel, payload)))

    @override
    def limit_lock_wait(self, connection: Connection, seconds: float) -> str | None:
        limit = {"limit": f"{max(1, int(seconds * 1000))}ms"}
        connection.execute(text("SELECT set_config('lock_timeout', :limit, true)"), limit)
        return None

    @override
    def is_outage(self, error: DBAPIError) -> bool:
        code = code_of(error)
        return code[:2] in _OUTAGES or code == _READ_ONLY if isinstance(code, str) else super().is_outage(error)


def _cancel(connection: Any, seconds: float) -> None:
    with suppress(Exception):  # it may be answered, closed or unreachable by now; then the wait is cut
        connection.cancel_safe(timeout=seconds)


def _lock_number(name: str) -> int:
    return int.from_bytes(sha256(f"delaystore {name}".encode()).digest()[:8], signed=True)
