"""PostgreSQL 13 and newer: row locks, COPY, NOTIFY."""

import logging
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import cache, lru_cache, partial
from hashlib import sha256
from itertools import islice
from typing import Any, ClassVar, Final

from sqlalchemy import (
    ARRAY,
    CTE,
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Integer,
    Interval,
    Table,
    Text,
    TextClause,
    any_,
    bindparam,
    case,
    cast,
    column,
    exists,
    func,
    inspect,
    literal,
    literal_column,
    null,
    select,
    text,
    true,
)
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.types import TypeEngine
from typing_extensions import override

from delaystore.errors import (
    NAMED_DUPLICATES,
    ConfigurationError,
    DuplicateMessageError,
    DurabilityUnknownError,
    MessageBeingStoredError,
    StoreUnavailableError,
)
from delaystore.message import time_left
from delaystore.processes import pause
from delaystore.stores.sql.codec import (
    FAILURES,
    FAILURES_OF,
    FIRST_SENT,
    KEY,
    MESSAGE_KEY,
    NAMES,
    Body,
    ExactText,
    Json,
    TupleId,
    UtcDateTime,
)
from delaystore.stores.sql.dialects.base import (
    CONNECT_TIMEOUT,
    LONGEST_IDLE,
    PREPARED,
    BulkTables,
    Change,
    Changes,
    Defect,
    KeyUpserts,
    LocatedRows,
    Notifications,
    Release,
    StoreDialect,
    driver_errors,
    give_up,
    made_by_setup,
    row_with,
)
from delaystore.stores.sql.drivers import DRIVERS, Driver, driver_of
from delaystore.stores.sql.drivers.base import PostgreSqlDriver
from delaystore.stores.sql.faults import (
    Code,
    Fault,
    HostsInTurn,
    TableSize,
    as_it_stands,
    code_of,
    escaped,
    execute_as_it_stands,
    quoted_name,
    quoted_table,
)

log = logging.getLogger("delaystore.stores.sql")

PATIENCE: Final = 5.0
"""Seconds for which the insert of a message waits for another transaction, which may be its own caller's."""
_LOCK_TIMEOUT: Final = literal_column("'lock_timeout'", Text)
_PATIENT: Final = (
    "SELECT set_config('lock_timeout', '{0}', true) WHERE current_setting('lock_timeout') = '0' "
    "OR CAST(current_setting('lock_timeout') AS INTERVAL) > '{0}'"
)
"""Wait no longer for locks, until the transaction ends."""
COPIED_AT_ONCE: Final = 20_000
"""Rows of which the ids are kept, to be looked for in the partitions."""
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
_ATTACHED: Final = text("SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST(:live AS REGCLASS)")
"""The partitions whose messages wait."""
_RIGHTS: Final = text(
    "SELECT a.privilege_type, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END "
    "FROM pg_class c CROSS JOIN aclexplode(COALESCE(c.relacl, acldefault('r', c.relowner))) a "
    "WHERE c.oid = CAST(:name AS REGCLASS) AND a.grantee <> CAST(current_user AS REGROLE)"
)
"""What roles may do with a table, its owner too, but for the one that asks, and owns what it makes."""
_IDLE_LIMIT: Final = text("SELECT current_setting('idle_session_timeout', true)")
"""None before PostgreSQL 14, where the setting is new."""
_SET_IDLE_LIMIT: Final = text("SELECT set_config('idle_session_timeout', :limit, false)")
_SET_LOCK_LIMIT: Final = text("SELECT set_config('lock_timeout', :limit, true)")
ALTER_WAIT: Final = 0.5
"""Seconds for which all who use a table wait at most behind a change of its columns, until it is changed."""
ALTER_PATIENCE: Final = 120
"""Seconds for which a change of columns is tried."""
_SWITCHED_OFF: Final = (
    "enable_sort",
    "enable_seqscan",
    "enable_bitmapscan",
    "enable_hashjoin",
    "enable_mergejoin",
    "jit",
)
_BY_INDEX: Final = "SELECT " + ", ".join(f"set_config('{name}', 'off', true)" for name in _SWITCHED_OFF)
_IDENTITY: Final = text(
    "SELECT CAST(pg_postmaster_start_time() AS text), current_database(), CAST(CAST(to_regclass(:name) AS oid) AS text)"
)
_SIZES: Final = text(
    "WITH RECURSIVE family (oid) AS (SELECT CAST(CAST(:name AS regclass) AS oid) "
    "UNION SELECT i.inhrelid FROM pg_inherits i JOIN family ON i.inhparent = family.oid) "
    "SELECT CAST(CAST(c.oid AS regclass) AS text) AS name, c.reltuples, c.relpages, "
    "pg_relation_size(c.oid) / CAST(current_setting('block_size') AS integer) AS pages, "
    "pg_table_size(c.oid) AS data_bytes, pg_indexes_size(c.oid) AS index_bytes, "
    "pg_stat_get_dead_tuples(c.oid) AS dead_rows, has_table_privilege(c.oid, 'SELECT') AS readable "
    "FROM family JOIN pg_class c ON c.oid = family.oid ORDER BY c.oid"
)
SAMPLE: Final = 100
"""Pages to look at where no statistics tell how many rows a page has; together they hold 10,000 or so at the most."""
_PARTITION_INDEXES: Final[Mapping[str, str]] = {
    "due": "(next_attempt, message_id)",
    "failing": "(next_attempt, message_id) WHERE failure_count > 0",
}
"""What a partition has besides its primary key; PostgreSQL names them."""
_IS_OURS: Final = (
    "i.indnatts = 2 AND NOT i.indisunique AND pg_get_indexdef(i.indexrelid, 1, true) = 'next_attempt' "
    "AND pg_get_indexdef(i.indexrelid, 2, true) = 'message_id' "
    "AND COALESCE(pg_get_expr(i.indpred, i.indrelid), '(failure_count > 0)') = '(failure_count > 0)'"
)
"""Whether an index `i` of a partition is one of _PARTITION_INDEXES."""
_IN_PROGRESS: Final = (
    "EXISTS (SELECT FROM pg_stat_progress_create_index p JOIN pg_locks l ON l.pid = p.pid AND l.relation = i.indrelid "
    "JOIN pg_database d ON d.oid = l.database AND d.datname = current_database() "
    "WHERE l.locktype = 'relation' AND COALESCE(p.index_relid, 0) IN (0, i.indexrelid))"
)
"""Whether a session is just building the invalid index `i`.

PostgreSQL shows the index only to roles that have the builder's rights, and not from the beginning: all can see the
table on which it has a lock.
"""
_LACKING: Final = (
    "SELECT which FROM (VALUES ('due', FALSE), ('failing', TRUE)) AS wanted (which, is_partial) "  # noqa: S608 - constant
    f"WHERE NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = {{table}} AND (i.indisvalid OR {_IN_PROGRESS}) "
    f"AND (i.indpred IS NOT NULL) = is_partial AND {_IS_OURS})"
)
"""Those of _PARTITION_INDEXES that a partition has not, and that no session is just building."""
_FAMILY: Final = (
    "WITH family (oid, is_partition) AS ("  # noqa: S608 - constant
    "SELECT CAST(to_regclass(name) AS oid), FALSE FROM unnest(CAST(:names AS TEXT[])) AS name "
    "UNION ALL SELECT inhrelid, TRUE FROM pg_inherits WHERE inhparent = to_regclass(:live)), "
    "broken (indrelid, indexrelid, name, is_unique, in_progress) AS (SELECT i.indrelid, i.indexrelid, "
    f"CAST(CAST(c.oid AS REGCLASS) AS TEXT), i.indisunique, {_IN_PROGRESS} "
    "FROM family JOIN pg_index i ON i.indrelid = family.oid JOIN pg_class c ON c.oid = i.indexrelid "
    f"WHERE NOT i.indisvalid AND CASE WHEN is_partition THEN {_IS_OURS} "
    "ELSE c.relname = ANY (CAST(:indexes AS TEXT[])) END AND c.relname !~ '_cc(new|old)[0-9]*$') "
)
"""The endpoint's tables, its attached partitions, and their invalid indexes; those that a REINDEX makes are its own."""
_BROKEN: Final = text(
    f"{_FAMILY}SELECT indexrelid, name, CAST(CAST(indrelid AS REGCLASS) AS TEXT) FROM broken "  # noqa: S608 - constant
    "WHERE NOT in_progress"
)
_IS_INVALID: Final = text("SELECT NOT indisvalid FROM pg_index WHERE indexrelid = CAST(:index AS OID)")
_STATE: Final = text(
    f"{_FAMILY}SELECT "  # noqa: S608 - constant
    "CAST(CAST(c.oid AS REGCLASS) AS TEXT), row_security_active(c.oid), c.relpersistence = 'u', "
    "ARRAY(SELECT name FROM broken WHERE indrelid = c.oid AND NOT in_progress), "
    "ARRAY(SELECT name FROM broken WHERE indrelid = c.oid AND in_progress), "
    "ARRAY(SELECT name FROM broken WHERE indrelid = c.oid AND is_unique), "
    "ARRAY(SELECT quote_ident(a.attname) FROM pg_attribute a JOIN pg_collation l ON l.oid = a.attcollation "
    "WHERE a.attrelid = c.oid AND a.attname = ANY (CAST(:exact AS TEXT[])) "
    "AND l.collname NOT IN ('C', 'POSIX', 'ucs_basic', 'pg_c_utf8')), "
    f"CASE WHEN is_partition THEN ARRAY({_LACKING.format(table='c.oid')}) ELSE '{{}}' END "
    "FROM family JOIN pg_class c ON c.oid = family.oid ORDER BY is_partition, c.relname"
)
_KEEPALIVES: Final[Mapping[str, str]] = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""As `connect_arguments` has them for this side."""
_NEWER_LIMITS: Final = (
    "FROM (VALUES ('idle_session_timeout'), ('transaction_timeout')) AS newer (name) "
    "WHERE current_setting(name, true) IS NOT NULL"
)
"""Limits of time that PostgreSQL has since 14, and since 17."""
_OUR_SETTINGS: Final[Mapping[str, str]] = {
    "client_min_messages": "warning",  # so that the server tells of a commit that no standby has
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",  # statements that wait set their own
    "row_security": "off",  # PostgreSQL then refuses a statement whose rows it would hide
}
"""What a role or a database may have set otherwise. `statement_timeout` and what makes transactions read-only stay."""
_OUR_PROCESS: Final = "SELECT 1"
"""How PostgreSQL answers a SELECT that has found a row."""
_LEVEL: Final = "SELECT current_setting('client_min_messages') IN ('error', 'fatal', 'panic')"
_HEAR_WARNINGS: Final = "SET LOCAL client_min_messages = warning"
_NAME_OF_PARTITION: Final = text(
    "SELECT CAST(CAST(:partition AS REGCLASS) AS TEXT) WHERE has_table_privilege(CAST(:partition AS OID), 'DELETE')"
)
_DEAF: Final = "delaystore_deaf"
"""The key of a connection's `info` under which stands whether its session hides warnings."""
_UNREPLICATED: Final = "delaystore_unreplicated"
"""The key of a connection's `info` under which stands whether a commit was not awaited."""
_WAIT_FOR_STANDBY: Final = "SyncRepWaitForLSN"
"""The function of PostgreSQL (syncrep.c) that warns; its words depend on the language set there."""
_ROW_SECURITY: Final = ("check_enable_rls", "ExecWithCheckOptions")
"""The functions of PostgreSQL (rls.c, execMain.c) that refuse to hide rows, and to write what would be hidden."""
_SERIALIZABLE: Final = "GetSerializableTransactionSnapshot"
"""The function of PostgreSQL (predicate.c) that refuses it."""
_NOT_CONNECTED: Final[Mapping[re.Pattern[str], Fault]] = {
    re.compile('role ".*" does not exist|no pg_hba.conf entry'): Fault.LOGIN,
    re.compile('database ".*" does not exist'): Fault.NO_DATABASE,
    re.compile("permission denied for database"): Fault.PERMISSION,
    re.compile(
        "failed to resolve host|could not translate host name|Connection refused|Connect call failed|"
        "Name or service not known"
    ): Fault.UNREACHABLE,
}
"""What libpq, psycopg, and for asyncpg the system say of a connection that there is not, in English."""
_OUTAGES: Final = frozenset({"08", "40", "53", "55", "57", "58"})
"""Connections, serialization, resources, locks, operators, the system (PostgreSQL manual, appendix A)."""


@cache
def _dialect() -> Dialect:
    """SQLAlchemy's object for PostgreSQL; loading it takes as long as much else of a program's start."""
    from sqlalchemy.dialects import postgresql

    return postgresql.dialect()  # type: ignore[no-untyped-call]


def _quoted(table: Table) -> str:
    return quoted_name(table, _dialect())


class PostgreSqlDialect(StoreDialect, LocatedRows, KeyUpserts, Notifications, BulkTables):
    """PostgreSQL."""

    default_driver: ClassVar[str | None] = "psycopg"  # SQLAlchemy 2.0's own is psycopg2
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
    default_port: ClassVar[int | None] = 5432
    async_drivers: ClassVar[Sequence[str]] = ("psycopg", "asyncpg")
    several_hosts: ClassVar[Mapping[str, str]] = {"target_session_attrs": "read-write"}
    single_statement_isolation: ClassVar[str | None] = "AUTOCOMMIT"
    exports_snapshots: ClassVar[bool] = True
    code_type: ClassVar[type[Code] | None] = str
    faults: ClassVar[Mapping[Code, Fault]] = {
        **dict.fromkeys(("28000", "28P01"), Fault.LOGIN),
        "3D000": Fault.NO_DATABASE,
        "42501": Fault.PERMISSION,
        **dict.fromkeys(("42P01", "42703", "42P10"), Fault.MISSING),  # 42P10: the unique index of ON CONFLICT
        "3F000": Fault.NO_SCHEMA,
        **dict.fromkeys(("23505", "21000"), Fault.DUPLICATE),  # the latter: a replacing insert has a key twice
        "55P03": Fault.LOCKED,
        **dict.fromkeys(("57014", "57P05", "25P03", "25P04"), Fault.CANCELLED),  # a limit of time has passed
        **dict.fromkeys(("40001", "40P01"), Fault.CONFLICT),
        "25006": Fault.READ_ONLY,
        **dict.fromkeys(("26000", "42P05"), Fault.POOLED),  # a prepared statement is not there, or is there already
    }

    @override
    def fault(self, error: DBAPIError) -> Fault | None:
        """A standby refuses all that is serializable, reading too, as a feature that it has not.

        A failed connection has no SQLSTATE.
        """
        sources = [driver.source_of(error.orig) for driver in DRIVERS.values()]
        if _SERIALIZABLE in sources:
            return Fault.READ_ONLY
        if any(each in sources for each in _ROW_SECURITY):
            return Fault.ROW_SECURITY
        known = super().fault(error)
        if known is not None or code_of(error) is not None:
            return known
        return next((fault for pattern, fault in _NOT_CONNECTED.items() if pattern.search(str(error.orig))), None)

    @override
    def check_driver(self, driver: str) -> None:
        if driver not in self.async_drivers:
            raise ConfigurationError(
                f"the PostgreSQL driver {driver} is not supported; use psycopg 3, as in postgresql+psycopg://"
            )

    @override
    def connect(
        self, dialect: Dialect, arguments: Sequence[Any], parameters: Mapping[str, Any], hosts: HostsInTurn
    ) -> Any:
        """The driver tries all hosts, from the one that answered last: a frozen one costs its time limit but once."""
        driver = _known(driver_of(dialect))
        if len(hosts) < 2 or parameters.get("target_session_attrs") == "prefer-standby":
            return driver.connect(dialect, arguments, parameters)
        named = driver.hosts_as_arguments(list(hosts))
        connection: Any = driver.connect(dialect, arguments, {**parameters, **named})
        hosts.answered(driver.host_of(connection))
        return connection

    @override
    def prepare(self, connection: Any, driver: Driver, *, heed_pooler: bool) -> bool:
        """Server-side keepalives, or a client that vanishes keeps its rows locked for two hours; and our settings.

        A pooler is between where the process that serves the connection is not the one that it was given: pgbouncer
        gives its clients a number of its own. Then our settings would be those of the next client, too, and are left as
        they are. One round trip, once in a connection's life.
        """
        driver = _known(driver)
        settings = {**_KEEPALIVES, **driver.settings_for(connection)}
        is_ours = f"pg_backend_pid() = {driver.server_process(connection)}"
        ours = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _OUR_SETTINGS.items())
        statements = [
            # first, as a SELECT would fail on a standby where the default is serializable
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            *(f"SET {name} = '{value}'" for name, value in settings.items()),
            f"SELECT set_config(name, '0', false) {_NEWER_LIMITS} AND {is_ours}",
            f"SELECT {ours} WHERE {is_ours}",
        ]
        is_own_session = driver.execute_alone(connection, "; ".join(statements)) == _OUR_PROCESS
        if heed_pooler and not is_own_session:
            driver.prepare_nothing(connection)
        return is_own_session

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
    def microsecond(self, column: ColumnElement[datetime]) -> ColumnElement[int]:
        return cast(func.extract("microseconds", column), Integer)

    @override
    def _microsecond_before(self, time: ColumnElement[datetime]) -> ColumnElement[datetime]:
        return time - literal_column("INTERVAL '1 microsecond'", Interval)

    @override
    @contextmanager
    def setup_lock(self, connection: Connection, name: str) -> Iterator[None]:
        """An advisory lock that the transaction's end releases; an index of many rows may take long."""
        connection.exec_driver_sql(
            "SELECT set_config('statement_timeout', '0', true), "
            f"ARRAY(SELECT set_config(name, '0', true) {_NEWER_LIMITS})"
        )
        connection.execute(select(func.pg_advisory_xact_lock(_lock_number(f"setup {name}"))))
        yield

    @override
    def take_lock(self, connection: Connection, name: str, owner: str) -> Release | None:
        """An advisory lock, of this database. A pooler must keep a session for a connection.

        The session stays open meanwhile, however long it is idle while a batch is being sent.
        """
        number = _lock_number(name)
        if not connection.execute(select(func.pg_try_advisory_lock(number))).scalar_one():
            return None
        limit = connection.execute(_IDLE_LIMIT).scalar()
        if limit is not None:
            connection.execute(_SET_IDLE_LIMIT, {"limit": "0"})

        def release() -> None:
            connection.execute(select(func.pg_advisory_unlock(number)))
            if limit is not None:
                connection.execute(_SET_IDLE_LIMIT, {"limit": limit})

        return release

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
        connection.exec_driver_sql(_BY_INDEX)

    @override
    def may_create(self, connection: Connection, schema: str | None) -> bool:
        named = func.coalesce(schema, func.current_schema())
        return bool(connection.execute(select(func.has_schema_privilege(named, "CREATE"))).scalar())

    @override
    def undisclosed(self, parameter: ColumnElement[Any]) -> ColumnElement[Any]:
        """As a subquery, whose value the planner does not know.

        Knowing it, the planner looks it up in statistics that are as old as the last ANALYZE. Where nothing was due
        then, it expects few rows, and reads and sorts all that are due to find the first thousand.
        """
        return select(parameter).scalar_subquery()

    @override
    def location(self, table: Table) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        """The row's tableoid and ctid; no locked row is moved, and no table dropped that has one."""
        from sqlalchemy.dialects import postgresql  # loads slowly, and programs with another database need it not

        name = literal(_quoted(table))
        own = select(cast(name, postgresql.REGCLASS())).scalar_subquery()
        relation = column("tableoid", postgresql.OID())
        return case((relation != own, relation), else_=null()), column("ctid", TupleId())

    @override
    def remove_located(self, table: Table) -> Executable:
        """Without the primary key, where ids made at random lie far apart, and without a plan that can go wrong.

        Who has locked the row is asked of the row: a savepoint that was rolled back has ended its locks.
        """
        return _removal(_quoted(table))

    @override
    def remove_partitioned(self, connection: Connection, partition: Any, locations: Sequence[Any]) -> int:
        """By the partition's own name: by that of the table, all partitions would be searched."""
        name: str | None = connection.execute(_NAME_OF_PARTITION, {"partition": partition}).scalar()
        if name is None:
            return 0
        return connection.execute(_removal(name), {"locations": list(locations)}).rowcount

    @override
    def among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        """One array parameter: the statement's text stays the same for any number."""
        return column == any_(bindparam(name, type_=ARRAY(column.type)))

    @override
    def insert(self, table: Table) -> Insert:
        """Inserts nothing where the key exists; an error would end the caller's transaction."""
        from sqlalchemy.dialects import postgresql  # loads slowly, and programs with another database need it not

        return postgresql.insert(table).on_conflict_do_nothing()

    @override
    def insert_message(self, table: Table, partitions: Table | None) -> Insert:
        """Looks into the partitions first; the primary key holds for the table alone."""
        return self._insert_outside_partitions(table, partitions)

    @override
    def insert_keyed(self, table: Table, partitions: Table | None, changes: Changes, patience: float) -> Executable:
        """Waits for a row that another transaction has locked, up to the caller's limit, or inserts once it is gone."""
        from sqlalchemy.dialects import postgresql  # loads slowly, and programs with another database need it not

        before = _limit_before()
        limit = _shorter(before, literal_column(f"'{_milliseconds(patience)}'", Text))
        limited = select(_limited(limit)).select_from(before).scalar_subquery()
        key, names = table.c[MESSAGE_KEY], (*NAMES, MESSAGE_KEY, FIRST_SENT)
        new = select(*_parameters(table, names)).where(*_outside(partitions, KEY), limited)
        insert = postgresql.insert(table).from_select(names, new, include_defaults=False)
        values, condition = changes(insert.excluded)
        upsert = insert.on_conflict_do_update(
            index_elements=[key], index_where=key.is_not(None), set_=dict(values), where=condition
        )
        placed = upsert.returning(table.c.message_id, table.c.next_attempt).cte("placed")
        restored = func.set_config(_LOCK_TIMEOUT, before.c.value, true())
        return select(placed.c.message_id, placed.c.next_attempt, restored).select_from(
            before.outerjoin(placed, true())
        )

    @override
    def capped(
        self, at: ColumnElement[datetime], first: ColumnElement[datetime], microseconds: ColumnElement[int]
    ) -> ColumnElement[datetime]:
        span = microseconds * literal_column("INTERVAL '1 microsecond'")
        return func.least(at, first + span, type_=UtcDateTime())

    @override
    @contextmanager
    def brief_savepoint(self, connection: Connection, seconds: float) -> Iterator[None]:
        with self.savepoint(connection), _patient(connection, _milliseconds(seconds), exactly=True):
            yield

    @override
    def storing(self, connection: Connection, *, alone: bool) -> AbstractContextManager[None]:
        """One round trip where the transaction is ours."""
        limit = _milliseconds(min(PATIENCE, max(1, math.ceil(min(PATIENCE, time_left())))))  # of few texts
        if not alone:
            return _patient(connection, limit)
        connection.exec_driver_sql(_PATIENT.format(limit))
        return nullcontext()

    @override
    def alter_patiently(self, connection: Connection, alter: Callable[[], None]) -> None:
        """All who use the table wait behind our wait for its lock: so that is short, and made again."""
        deadline = time.monotonic() + ALTER_PATIENCE
        while True:
            try:
                with self.brief_savepoint(connection, ALTER_WAIT):
                    return alter()
            except DBAPIError as error:
                if self.fault(error) is not Fault.LOCKED:
                    raise
            if time.monotonic() > deadline:
                raise StoreUnavailableError(
                    f"the table has been in use for {ALTER_PATIENCE} s by transactions that take long; end them, and "
                    "set up again"
                )
            pause(ALTER_WAIT)

    @override
    @contextmanager
    def locked_tables(self, connection: Connection, tables: Sequence[Table]) -> Iterator[None]:
        """Until the transaction ends."""
        names = ", ".join(quoted_name(table, connection.dialect) for table in tables)
        execute_as_it_stands(connection, f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        yield

    @override
    def insert_many(
        self, connection: Connection, table: Table, partitions: Table | None, rows: Iterable[dict[str, Any]]
    ) -> int:
        """COPY."""
        iterator, count = iter(rows), 0
        while True:
            ids = self._copy(connection, table, islice(iterator, COPIED_AT_ONCE))
            count += len(ids)
            if partitions is not None and ids:
                self._refuse_partitioned(connection, table, partitions, ids)
            if len(ids) < COPIED_AT_ONCE:
                return count

    def _copy(self, connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> list[str]:
        """One statement, so that it is all or none by itself; returns the ids."""
        types = {name: _WIRE_TYPES[type(table.c[name].type)] for name in NAMES}
        ids: list[str] = []

        def values() -> Iterator[tuple[Any, ...]]:
            for row in rows:
                yield tuple(row.values())
                ids.append(row[KEY])

        try:
            with driver_errors(connection, "COPY"):
                _known(driver_of(connection)).copy(connection, table, types, values())
        except DBAPIError as error:
            if self.fault(error) is Fault.READ_ONLY:  # the driver's own cursor tells SQLAlchemy nothing
                give_up(connection)
            if not isinstance(error, IntegrityError) or self.fault(error) is not Fault.DUPLICATE:
                raise
            duplicates = self.duplicates_in(error)
            if not duplicates:  # a unique index that is not ours
                raise
            raise DuplicateMessageError(duplicates) from None
        return ids

    def _refuse_partitioned(self, connection: Connection, table: Table, partitions: Table, ids: Sequence[str]) -> None:
        key = partitions.c[KEY]
        among = key == any_(bindparam("ids", type_=ARRAY(key.type)))
        found = select(key, self.is_announced(partitions, table)).where(among).limit(NAMED_DUPLICATES)
        rows = connection.execute(found, {"ids": ids}).all()
        for message_id, is_announced in rows:
            if is_announced:
                raise MessageBeingStoredError(message_id)
        if rows:
            raise DuplicateMessageError([message_id for message_id, _ in rows])

    def _insert_outside_partitions(
        self,
        table: Table,
        partitions: Table | None,
        *conditions: ColumnElement[bool],
        prefix: str = "",
    ) -> Insert:
        new = select(*_parameters(table, NAMES, prefix)).where(*_outside(partitions, prefix + KEY), *conditions)
        return self.insert(table).from_select(NAMES, new, include_defaults=False)

    @override
    def change_unclaimed(
        self, connection: Connection, table: Table, change: Change, values: dict[str, Any], now: datetime
    ) -> bool | None:
        """One statement: lock the row unless it is locked, change what was locked, and say what was there."""
        row = connection.execute(_changing_unclaimed(table, change), values).one()
        return bool(row.done) if row.done or row.there else None

    @override
    def change_unclaimed_of(
        self,
        connection: Connection,
        table: Table,
        change: Change,
        ids: Sequence[str],
        matches: Sequence[ColumnElement[bool]],
        values: Mapping[str, Any],
        now: datetime,
    ) -> Collection[str]:
        """One statement: lock what is not locked, and change that."""
        key = table.c.message_id
        free = select(key).where(self.among(key, "ids"), *matches).with_for_update(skip_locked=True).cte("free")
        changed = change.where(key.in_(select(free.c.message_id))).returning(key)
        return set(connection.execute(changed, {**values, "ids": list(ids)}).scalars())

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
    def is_announced(self, partitions: Table, table: Table) -> ColumnElement[bool]:
        from sqlalchemy.dialects import postgresql  # loads slowly, and programs with another database need it not

        attached = _ATTACHED.columns(column("inhrelid", postgresql.OID())).bindparams(live=_quoted(table))
        return column("tableoid", postgresql.OID()).not_in(attached)

    @override
    def grant_alike(self, connection: Connection, table: Table, like: Table) -> None:
        _grant(connection, [table], like, None)

    @override
    def duplicates_in(self, error: DBAPIError) -> Sequence[str]:
        details = "".join({driver.detail_of(error.orig) for driver in DRIVERS.values()})
        found = re.search(r"\(message_id\)=\((.*)\)", details, re.DOTALL)
        return [found[1]] if found else []

    @override
    def open_to_senders(self, connection: Connection, partitions: Table, table: Table) -> None:
        _grant(connection, [partitions], table, {"INSERT": "SELECT"})

    @override
    def open_to_operators(self, connection: Connection, tables: Sequence[Table], table: Table) -> None:
        _grant(connection, tables, table, {"DELETE": "SELECT, INSERT, UPDATE, DELETE", "SELECT": "SELECT"})

    @override
    def alter_partitions(self, connection: Connection, table: Table, partitions: Sequence[str]) -> None:
        if not partitions:
            return
        found = inspect(connection).get_multi_columns(schema=table.schema, filter_names=list(partitions))
        for (_, partition), columns in found.items():
            name = quoted_name(quoted_table(partition, table.schema), connection.dialect)
            there = {each["name"] for each in columns}
            for column_name, kind in ((FAILURES, "TEXT"), (FAILURES_OF, 'TEXT COLLATE "C"')):
                if column_name not in there:  # or its lock would wait for an index that is being built
                    execute_as_it_stands(connection, f"ALTER TABLE {name} ADD COLUMN {column_name} {kind}")
            lacking = text(_LACKING.format(table="CAST(CAST(:partition AS REGCLASS) AS OID)"))
            for which in connection.execute(lacking, {"partition": name}).scalars().all():
                execute_as_it_stands(connection, f"CREATE INDEX ON {name} {_PARTITION_INDEXES[which]}")

    @override
    def defects(self, connection: Connection, tables: Sequence[Table]) -> Iterable[Defect]:
        """What the catalog says of them, and of the partitions."""
        exact = {column.name for table in tables for column in table.columns if isinstance(column.type, ExactText)}
        found = connection.execute(_STATE, {**_named(connection, tables), "exact": sorted(exact)}).all()
        for name, hides, is_unlogged, broken, in_progress, unique, other, lacking in found:
            if hides:
                yield Defect(
                    text=f"row level security hides rows of the table {name} from this role; switch it off by ALTER "
                    f"TABLE {name} DISABLE ROW LEVEL SECURITY, or exempt the role by ALTER ROLE ... BYPASSRLS",
                    is_obstacle=True,
                )
            if is_unlogged:
                yield Defect(
                    text=f"the table {name} is UNLOGGED, so that a crash of PostgreSQL empties it; run ALTER TABLE "
                    f"{name} SET LOGGED",
                    is_obstacle=True,
                )
            for index in broken:
                how = "invalid, as CREATE INDEX CONCURRENTLY failed"
                yield made_by_setup(f"index {index} of the table {name}", how, is_obstacle=index in unique)
            for index in in_progress:
                yield Defect(
                    text=f"the index {index} of the table {name} is being built, and not used before; wait until its "
                    "CREATE INDEX CONCURRENTLY has ended",
                    is_obstacle=index in unique,
                )
            for column_name in other:
                yield Defect(
                    text=f"the column {column_name} of the table {name} does not compare text byte by byte; run ALTER "
                    f'TABLE {name} ALTER COLUMN {column_name} TYPE varchar COLLATE "C"'
                )
            for which in lacking:
                yield made_by_setup(f"index {_PARTITION_INDEXES[which]} of the bulk partition {name}")

    @override
    def drop_invalid_indexes(self, connection: Connection, tables: Sequence[Table]) -> None:
        for index, name, table in connection.execute(_BROKEN, _named(connection, tables)).all():
            self.alter_patiently(connection, partial(_drop_if_invalid, connection, index, name, table))

    @override
    def insert_alone(self, table: Table, partitions: Table | None) -> Insert:
        """An id that an open transaction is storing is waited for, with a limit.

        It is set by the statement: a session's own would hold for the next who gets the session of a pooler, too.
        """
        return self._insert_outside_partitions(table, partitions, _limited(_patience()))

    @override
    def insert_and_notify(self, table: Table, partitions: Table | None) -> Executable:
        """NOTIFY in the insert's own statement; where the message_id exists, it wakes no dispatcher."""
        stored = self._stored(table, partitions, _limited(_patience()))
        return select(stored.c.message_id, func.pg_notify(bindparam("channel"), bindparam("payload")))

    @override
    def insert_enlisted(self, table: Table, partitions: Table | None) -> Executable:
        """As `insert_and_notify`; the limit for locks is the caller's again at the statement's end."""
        before = _limit_before()
        limited = select(_limited(_shorter(before, _patience()))).select_from(before).scalar_subquery()
        stored = self._stored(table, partitions, limited)
        notified = cast(func.pg_notify(bindparam("channel"), bindparam("payload")), Text)
        wake_up = case((stored.c.message_id.is_not(None), notified), else_=null())
        restored = func.set_config(_LOCK_TIMEOUT, before.c.value, true())
        return select(stored.c.message_id, wake_up, restored).select_from(before.outerjoin(stored, true()))

    def _stored(self, table: Table, partitions: Table | None, *conditions: ColumnElement[bool]) -> CTE:
        """An insert of parameters with the prefix `new_`, as what it has inserted."""
        insert = self._insert_outside_partitions(table, partitions, *conditions, prefix="new_")
        return insert.returning(table.c.message_id).cte("stored")

    @override
    def notify(self, connection: Connection, channel: str, payload: str) -> None:
        """NOTIFY; PostgreSQL sends it when the transaction commits."""
        connection.execute(select(func.pg_notify(channel, payload)))

    @override
    def identity(self, connection: Connection, table: Table) -> Sequence[Any]:
        """The running server, the database, and what the table's name means there."""
        return tuple(connection.execute(_IDENTITY, {"name": quoted_name(table, connection.dialect)}).one())

    @override
    def sizes(self, connection: Connection, table: Table) -> Sequence[TableSize]:
        """As the planner estimates rows: by those that a page had at the last VACUUM or ANALYZE, and the pages now."""
        found = connection.execute(_SIZES, {"name": quoted_name(table, connection.dialect)}).all()
        return [
            TableSize(
                name=row.name,
                data_bytes=row.data_bytes,
                index_bytes=row.index_bytes,
                rows=_estimated_rows(connection, row),
                dead_rows=row.dead_rows,
            )
            for row in found
            if row.data_bytes is not None  # or it has just been dropped
        ]

    @override
    def watch_commit(self, connection: Connection, *, alone: bool = False) -> bool:
        """By its warnings. Where the session hides them, a transaction shows them; a single statement cannot."""
        info = connection.info
        if _UNREPLICATED not in info:
            _known(driver_of(connection)).on_notice(connection.connection.dbapi_connection, partial(_note, info))
            info[_DEAF] = not info.get(PREPARED) and bool(connection.exec_driver_sql(_LEVEL).scalar())
        info[_UNREPLICATED] = False
        if info[_DEAF] and not alone:
            connection.exec_driver_sql(_HEAR_WARNINGS)
        return not (info[_DEAF] and alone)

    @override
    def check_commit(self, connection: Connection) -> None:
        """PostgreSQL answers such a commit with a warning, and no error."""
        if connection.info[_UNREPLICATED]:
            raise DurabilityUnknownError(
                "it is committed, but the wait for the synchronous standby was cancelled: if that standby takes over, "
                "it may be lost; when the standby is there again, see whether it is in the store"
            )

    @override
    def begin_claiming(self, connection: Connection) -> None:
        """One round trip, before the first search of a transaction.

        Also behind a pooler no limit of time ends the transaction before the broker confirms, and no row is hidden.
        """
        connection.exec_driver_sql(
            f"{_BY_INDEX}, set_config('idle_in_transaction_session_timeout', '{LONGEST_IDLE}s', true), "
            f"set_config('row_security', 'off', true), ARRAY(SELECT set_config(name, '0', true) {_NEWER_LIMITS})"
        )

    @override
    def limit_lock_wait(self, connection: Connection, seconds: float) -> str | None:
        connection.execute(_SET_LOCK_LIMIT, {"limit": _milliseconds(seconds)})
        return None

    @override
    def is_message_id_locked(self, error: DBAPIError) -> bool:
        """PostgreSQL says at which tuple an insert has waited, and nothing where it has waited for a table."""
        return super().is_message_id_locked(error) and any(driver.context_of(error.orig) for driver in DRIVERS.values())

    @override
    def is_outage(self, error: DBAPIError) -> bool:
        code = code_of(error)
        if not isinstance(code, str):
            return super().is_outage(error)
        return code[:2] in _OUTAGES or self.fault(error) is Fault.READ_ONLY


def _known(driver: Driver) -> PostgreSqlDriver:
    if not isinstance(driver, PostgreSqlDriver):
        raise ConfigurationError("this PostgreSQL driver is not supported; use psycopg 3, as in postgresql+psycopg://")
    return driver


def _grant(connection: Connection, tables: Sequence[Table], like: Table, given: Mapping[str, str] | None) -> None:
    """Give the roles that have rights on `like` rights on `tables`: by right those in `given`; None: the same."""
    for right, role in connection.execute(_RIGHTS, {"name": quoted_name(like, connection.dialect)}).all():
        wanted = right if given is None else given.get(right)
        for each in tables if wanted is not None else ():
            name = quoted_name(each, connection.dialect)
            execute_as_it_stands(connection, f"GRANT {wanted} ON {name} TO {role}")


def _named(connection: Connection, tables: Sequence[Table]) -> dict[str, Any]:
    """The parameters of _FAMILY."""
    names = [quoted_name(table, connection.dialect) for table in tables]
    return {"names": names, "live": names[0], "indexes": [index.name for table in tables for index in table.indexes]}


def _drop_if_invalid(connection: Connection, index: int, name: str, table: str) -> None:
    """Where the index has become valid, or has gone, while we waited for the lock, the lock is given back."""
    with connection.begin_nested() as savepoint:
        execute_as_it_stands(connection, f"LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE")
        if connection.execute(_IS_INVALID, {"index": index}).scalar():
            execute_as_it_stands(connection, f"DROP INDEX {name}")
        else:
            savepoint.rollback()


def _patience() -> ColumnElement[str]:
    return literal_column(f"'{_milliseconds(PATIENCE)}'", Text)


def _limit_before() -> CTE:
    """The limit for locks as it is, in `value`."""
    return select(func.current_setting(_LOCK_TIMEOUT).label("value")).cte("before")


def _milliseconds(seconds: float) -> str:
    return f"{max(1, int(seconds * 1000))}ms"


def _shorter(before: CTE, patience: ColumnElement[str]) -> ColumnElement[str]:
    """The limit `before`, or `patience` where that is shorter."""
    former = before.c.value
    is_longer = cast(former, Interval()) > cast(patience, Interval())
    return case(((former == literal_column("'0'", Text)) | is_longer, patience), else_=former)


def _limited(limit: ColumnElement[str]) -> ColumnElement[bool]:
    """True, once the transaction waits no longer for locks than `limit`."""
    return func.set_config(_LOCK_TIMEOUT, limit, true()).is_not(None)


@contextmanager
def _patient(connection: Connection, patience: str, *, exactly: bool = False) -> Iterator[None]:
    """Wait no longer for locks in the block than `patience`; what undoes a failed block undoes that, too.

    `exactly`: so long even where the session's own limit is shorter.
    """
    before, wanted = _limit_before(), literal(patience, Text)
    limit = func.set_config(_LOCK_TIMEOUT, wanted if exactly else _shorter(before, wanted), true())
    former: str = connection.execute(select(before.c.value, limit)).scalar_one()
    yield
    connection.execute(select(func.set_config(_LOCK_TIMEOUT, former, true())))


def _parameters(table: Table, names: Sequence[str], prefix: str = "") -> list[ColumnElement[Any]]:
    """A parameter for each of the columns of `names`: a statement names no other, as an older table may lack them."""
    return [bindparam(prefix + name, type_=table.c[name].type) for name in names]


def _outside(partitions: Table | None, parameter: str) -> Sequence[ColumnElement[bool]]:
    """That the message_id in `parameter` is in no partition."""
    if partitions is None:
        return ()
    return [~exists().where(partitions.c[KEY] == bindparam(parameter, type_=partitions.c[KEY].type))]


def _removal(name: str) -> TextClause:
    """The removal from the table of that quoted name of what lies at `locations`, and is locked by this transaction.

    What was locked since a savepoint that is still open is not: the savepoint has a transaction's id of its own.
    """
    return text(
        f"DELETE FROM ONLY {escaped(name)} WHERE ctid = ANY (CAST(CAST(:locations AS TEXT[]) AS TID[])) "  # noqa: S608 - quoted
        "AND xmax = CAST(pg_current_xact_id() AS XID)"
    )


def _estimated_rows(connection: Connection, row: Any) -> int | None:
    """Of a table by its row of _SIZES; None: it has no statistics, and may not be read."""
    if row.pages == 0:
        return 0
    if row.relpages > 0 and row.reltuples > 0:
        return int(row.reltuples / row.relpages * row.pages)
    return _sampled_rows(connection, row.name, row.pages) if row.readable else None


def _sampled_rows(connection: Connection, name: str, pages: int) -> int:
    """Of a table without statistics, or with those of a time when it was empty: by a look at a few pages."""
    share = min(1.0, SAMPLE / pages)
    sample = as_it_stands(f"SELECT count(*) FROM ONLY {name} TABLESAMPLE SYSTEM ({100 * share:.9f})")  # noqa: S608 - quoted by PostgreSQL
    return int(connection.execute(sample).scalar_one() / share)


def _note(info: dict[str, Any], function: str | None, text: str) -> None:
    """Note in `info` a commit that its synchronous standby may not have."""
    if function == _WAIT_FOR_STANDBY:
        info[_UNREPLICATED] = True
        log.warning("PostgreSQL: %s", text)


def _lock_number(name: str) -> int:
    return int.from_bytes(sha256(f"delaystore {name}".encode()).digest()[:8], signed=True)


@lru_cache(maxsize=64)
def _changing_unclaimed(table: Table, change: Change) -> Executable:
    """Built once for each: to build it takes as long as to run it."""
    free = select(table.c.message_id).where(row_with(table)).with_for_update(skip_locked=True).cte("free")
    is_free = table.c.message_id.in_(select(free.c.message_id))
    changed = change.where(is_free).returning(table.c.message_id).cte("changed")
    done = exists(select(changed.c.message_id)).label("done")
    there = exists(select(table.c.message_id).where(row_with(table))).label("there")
    return select(done, there)
