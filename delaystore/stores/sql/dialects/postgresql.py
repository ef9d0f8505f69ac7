"""PostgreSQL 13 and newer: row locks, COPY, NOTIFY."""

import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import lru_cache, partial
from hashlib import sha256
from itertools import islice
from typing import Any, ClassVar, Final

from sqlalchemy import (
    ARRAY,
    CTE,
    ColumnClause,
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Integer,
    Interval,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    case,
    cast,
    column,
    delete,
    exists,
    func,
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
)
from delaystore.message import EARLIEST_DUE_TIME, LATEST_DUE_TIME, time_left
from delaystore.stores.sql._history import EntryInserts, NewEntries
from delaystore.stores.sql.codec import (
    DIGEST,
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
    KeyUpserts,
    LocatedRows,
    Notifications,
    Release,
    RowChanges,
    StatementChange,
    driver_errors,
    give_up,
    row_with,
    with_key,
)
from delaystore.stores.sql.dialects.postgresql_tables import (
    LOCK_TIMEOUT_SETTING,
    PostgreSqlTables,
    limited_lock_wait,
    lock_timeout_before,
    milliseconds,
    quoted,
    removal,
    shorter_timeout,
)
from delaystore.stores.sql.drivers import DRIVERS, Driver, driver_of
from delaystore.stores.sql.drivers.base import PostgreSqlDriver
from delaystore.stores.sql.faults import (
    Code,
    Fault,
    HostsInTurn,
    code_of,
)
from delaystore.stores.sql.rows import MessageRows

log = logging.getLogger("delaystore.stores.sql")

INSERT_LOCK_TIMEOUT: Final = 5.0
"""Seconds for which the insert of a message waits for another transaction, which may be its own caller's."""
_LIMIT_LOCK_WAIT: Final = (
    "SELECT set_config('lock_timeout', '{0}', true) WHERE current_setting('lock_timeout') = '0' "
    "OR CAST(current_setting('lock_timeout') AS INTERVAL) > '{0}'"
)
"""Wait no longer for locks, until the transaction ends."""
COPIED_AT_ONCE: Final = 20_000
"""Rows whose ids are kept, to be searched in the partitions."""
ASKED_AT_ONCE: Final = 500
"""Up to here, sending the ids costs less than one more round trip, which asks whether the partitions have a row."""
_ID: Final = NAMES.index(KEY)
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
_IDLE_LIMIT: Final = text("SELECT current_setting('idle_session_timeout', true)")
"""None before PostgreSQL 14, where the setting is new."""
_SET_IDLE_LIMIT: Final = text("SELECT set_config('idle_session_timeout', :limit, false)")
_SET_LOCK_LIMIT: Final = text("SELECT set_config('lock_timeout', :limit, true)")
_ROWS_ON_A_PAGE: Final = 32
_SWITCHED_OFF: Final = (
    "enable_sort",
    "enable_seqscan",
    "enable_bitmapscan",
    "enable_hashjoin",
    "enable_mergejoin",
    "jit",
)
_BY_INDEX: Final = "SELECT " + ", ".join(f"set_config('{name}', 'off', true)" for name in _SWITCHED_OFF)
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
"""Settings that a role or a database may have changed. `statement_timeout` and the settings that make transactions
read-only stay."""
_OUR_PROCESS: Final = "SELECT 1"
"""How PostgreSQL answers a SELECT that has found a row."""
_LEVEL: Final = "SELECT current_setting('client_min_messages') IN ('error', 'fatal', 'panic')"
_HEAR_WARNINGS: Final = "SET LOCAL client_min_messages = warning"
_HIDES_WARNINGS: Final = "delaystore_deaf"
"""The key of a connection's `info` under which stands whether its session hides warnings."""
_UNREPLICATED: Final = "delaystore_unreplicated"
"""The key of a connection's `info` under which stands whether a commit was not awaited."""
_WAIT_FOR_STANDBY: Final = "SyncRepWaitForLSN"
"""The function of PostgreSQL (syncrep.c) that warns; its words depend on the language set there."""
_ROW_SECURITY: Final = ("check_enable_rls", "ExecWithCheckOptions")
"""The functions of PostgreSQL (rls.c, execMain.c) that refuse to hide rows, and to write rows that would be hidden."""
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


class PostgreSqlDialect(PostgreSqlTables, LocatedRows, KeyUpserts, Notifications):
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
    notes_replaced: ClassVar[bool] = True
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
    def without_value_in_plan(self, parameter: ColumnElement[Any]) -> ColumnElement[Any]:
        """As a subquery, whose value the planner does not know.

        Knowing it, the planner looks it up in statistics that are as old as the last ANALYZE. Where nothing was due
        then, it expects few rows, and reads and sorts all that are due to find the first thousand.
        """
        return select(parameter).scalar_subquery()

    @override
    def location(self, table: Table) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        """The row's tableoid and ctid; no locked row is moved, and no table dropped that has one.

        The ctid is text, as psycopg cannot read its binary form.
        """
        from sqlalchemy.dialects import postgresql  # loads slowly, and programs with another database need it not

        name = literal(quoted(table))
        own = select(cast(name, postgresql.REGCLASS())).scalar_subquery()
        relation = column("tableoid", postgresql.OID())
        return case((relation != own, relation), else_=null()), cast(column("ctid", TupleId()), Text())

    @override
    def remove_located(self, table: Table, entries: EntryInserts | None = None) -> Executable:
        """Without the primary key, where ids made at random lie far apart, and without a plan that can go wrong.

        Who has locked the row is asked of the row: a savepoint that was rolled back has ended its locks.
        """
        return removal(quoted(table), entries)

    @override
    def remove_with_entries(
        self,
        connection: Connection,
        removal: Executable,
        where: Sequence[ColumnElement[bool]],
        values: Mapping[str, Any],
        entries: NewEntries | None,
    ) -> int:
        """One statement: rows that have changed meanwhile are looked at once."""
        if entries is None:
            return super().remove_with_entries(connection, removal, where, values, None)
        removing = entries.inserts.removing(delete(entries.inserts.live).where(*where))
        return connection.execute(removing, {**values, **entries.values}).rowcount

    @override
    def sha256(self, body: ColumnElement[bytes]) -> ColumnElement[bytes]:
        return func.sha256(body, type_=DIGEST)

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
    def insert_message(self, table: Table, partitions: Table | None, names: Sequence[str]) -> Insert:
        """Searches the partitions first; the primary key holds for the table alone."""
        return self._insert_outside_partitions(table, partitions, names)

    @override
    def insert_keyed(
        self,
        table: Table,
        partitions: Table | None,
        names: Sequence[str],
        changes: RowChanges,
        lock_timeout: float,
        entries: EntryInserts | None = None,
    ) -> Executable:
        """Waits for a row that another transaction has locked, up to the caller's limit, or inserts once it is gone.

        The row that gets an entry is read and locked before the insert, which returns the row as it is afterwards.
        """
        from sqlalchemy.dialects import postgresql  # loads slowly, and programs with another database need it not

        before = lock_timeout_before()
        limit = shorter_timeout(before, literal_column(f"'{milliseconds(lock_timeout)}'", Text))
        limited = select(_limited(limit)).select_from(before).scalar_subquery()
        key = table.c[MESSAGE_KEY]
        new = select(*_parameters(table, names)).where(*_outside(partitions, KEY), limited)
        replaced: CTE | None = None
        if entries is not None:
            has_key = key == bindparam(MESSAGE_KEY, type_=key.type)
            found = with_key(select(*entries.columns), table).where(has_key, limited)
            replaced = found.with_for_update().cte("replaced")
            new = new.where(select(func.count()).select_from(replaced).scalar_subquery() >= 0)  # so it is read first
        insert = postgresql.insert(table).from_select(names, new, include_defaults=False)
        values, condition = changes(insert.excluded)
        if replaced is not None:
            condition = exists().select_from(replaced)
        upsert = insert.on_conflict_do_update(
            index_elements=[key], index_where=key.is_not(None), set_=dict(values), where=condition
        )
        placed = upsert.returning(table.c.message_id, table.c.next_attempt).cte("placed")
        restored = func.set_config(LOCK_TIMEOUT_SETTING, before.c.value, true())
        answer = select(placed.c.message_id, placed.c.next_attempt, restored).select_from(
            before.outerjoin(placed, true())
        )
        if entries is None or replaced is None:
            return answer
        leaving = select(replaced).join(placed, true()).subquery("leaving")
        return answer.add_cte(entries.of_removed(leaving))

    @override
    def later(self, time: ColumnElement[datetime], microseconds: ColumnElement[int]) -> ColumnElement[datetime]:
        """By an interval without days, which would be days in the session's time zone."""
        return time + microseconds * literal_column("INTERVAL '1 microsecond'")

    @override
    def moved(
        self, time: ColumnElement[datetime], since: ColumnElement[datetime], to: ColumnElement[datetime]
    ) -> ColumnElement[datetime]:
        """In UTC: days of an interval are added by the calendar of the session's time zone."""
        latest = literal(LATEST_DUE_TIME, UtcDateTime)
        shift = func.least(_in_utc(to) - _in_utc(since), _in_utc(latest) - _in_utc(time))
        return func.timezone("UTC", _in_utc(time) + shift, type_=UtcDateTime())

    @override
    def time_of_python(self, column: ColumnElement[datetime]) -> ColumnElement[datetime]:
        """Infinity is such a time; one row with it would make every fetch fail."""
        earliest, latest = (
            literal_column(f"'{time.isoformat()}'", UtcDateTime) for time in (EARLIEST_DUE_TIME, LATEST_DUE_TIME)
        )
        return case((column.between(earliest, latest), column), else_=null())

    @override
    def storing(self, connection: Connection, *, alone: bool) -> AbstractContextManager[None]:
        """One round trip where the transaction is ours."""
        seconds = max(1, math.ceil(min(INSERT_LOCK_TIMEOUT, time_left())))  # whole ones: a statement for each text
        limit = milliseconds(min(INSERT_LOCK_TIMEOUT, seconds))
        if not alone:
            return limited_lock_wait(connection, limit)
        connection.exec_driver_sql(_LIMIT_LOCK_WAIT.format(limit))
        return nullcontext()

    @override
    def insert_many(self, connection: Connection, table: Table, partitions: Table | None, rows: MessageRows) -> int:
        """COPY."""
        count = 0
        while rows.begin(connection):
            ids = self._copy(connection, table, rows.names, islice(rows.values(), COPIED_AT_ONCE))
            count += len(ids)
            if partitions is not None:
                self._refuse_partitioned(connection, table, partitions, ids)
        return count

    def _copy(
        self, connection: Connection, table: Table, names: Sequence[str], rows: Iterable[tuple[Any, ...]]
    ) -> list[str]:
        """One statement, which is all or none; returns the ids."""
        types = {name: _WIRE_TYPES[type(table.c[name].type)] for name in names}
        ids: list[str] = []

        def values() -> Iterator[tuple[Any, ...]]:
            for row in rows:
                yield row
                ids.append(row[_ID])

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
        if len(ids) > ASKED_AT_ONCE and connection.execute(select(key).limit(1)).first() is None:
            return
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
        names: Sequence[str],
        *conditions: ColumnElement[bool],
        prefix: str = "",
    ) -> Insert:
        new = select(*_parameters(table, names, prefix)).where(*_outside(partitions, prefix + KEY), *conditions)
        return self.insert(table).from_select(names, new, include_defaults=False)

    @override
    def change_unclaimed(
        self,
        connection: Connection,
        table: Table,
        change: StatementChange,
        values: dict[str, Any],
        now: datetime,
        returning: ColumnElement[Any] | None = None,
        entries: NewEntries | None = None,
    ) -> tuple[bool | None, Any]:
        """One statement: lock the row unless it is locked, change the locked row, and return it as it was."""
        inserts, more = (None, {}) if entries is None else (entries.inserts, entries.values)
        row = connection.execute(_changing_unclaimed(table, change, returning, inserts), {**values, **more}).one()
        return (bool(row.done) if row.done or row.there else None), row.returned

    def _changed_where_they_lie(
        self, table: Table, change: StatementChange, matches: Sequence[ColumnElement[bool]]
    ) -> StatementChange:
        """The change of rows that match and are not locked, at their locations."""
        relation, place = _system_column(table, "tableoid"), _system_column(table, "ctid")
        search = select(relation.label("relation"), place.label("place")).where(*matches)
        free = search.with_for_update(skip_locked=True).cte("free")
        return change.where(place == free.c.place, relation == free.c.relation)

    @override
    def change_unclaimed_of(
        self,
        connection: Connection,
        table: Table,
        change: StatementChange,
        ids: Sequence[str] | None,
        matches: Sequence[ColumnElement[bool]],
        values: Mapping[str, Any],
        now: datetime,
        returning: ColumnElement[Any] | None = None,
        entries: NewEntries | None = None,
    ) -> Mapping[str, Any]:
        """One statement: lock rows that are not locked, and change them.

        Without ids it changes the rows at their locations, which takes half the time of a search in the primary keys of
        the table and its bulk partitions.
        """
        key, parameters = table.c.message_id, dict(values)
        if ids is None:
            changed = self._changed_where_they_lie(table, change, matches)
        else:
            parameters["ids"] = list(ids)
            free = select(key).where(self.among(key, "ids"), *matches).with_for_update(skip_locked=True).cte("free")
            changed = change.where(key.in_(select(free.c.message_id)))
        value = null() if returning is None else returning
        if entries is None:
            return {row[0]: row[1] for row in connection.execute(changed.returning(key, value), parameters)}
        gone = changed.returning(value.label("returned"), *entries.inserts.columns).cte("gone")
        returned = select(gone.c.message_id, gone.c.returned).add_cte(entries.inserts.of_removed(gone))
        return {row[0]: row[1] for row in connection.execute(returned, {**parameters, **entries.values})}

    @override
    def delete_neighbours(
        self,
        connection: Connection,
        table: Table,
        first: Select[Any],
        matches: Sequence[ColumnElement[bool]],
        size: int,
        entries: NewEntries | None = None,
    ) -> tuple[str, int] | None:
        """On as many pages as have about `size` rows of 200 bytes."""
        place, pages = cast(_system_column(table, "ctid"), Text()), size // _ROWS_ON_A_PAGE
        row = connection.execute(first.add_columns(place)).first() if pages else None
        if row is None:
            return None
        block = int(row[1].strip("(").partition(",")[0]) // pages
        on_these = on_pages(block * pages, (block + 1) * pages)
        these = delete(table).where(*matches)  # a load's number leaves out other loads' partitions here as well
        deleting = self._changed_where_they_lie(table, these, [*matches, *on_these])
        columns = [true()] if entries is None else entries.inserts.columns
        deleted = deleting.returning(*columns).cte("deleted")
        count = select(func.count()).select_from(deleted)
        if entries is not None:
            count = count.add_cte(entries.inserts.of_removed(deleted))
        return row[0], connection.execute(count, {} if entries is None else entries.values).scalar_one()

    @override
    def duplicates_in(self, error: DBAPIError) -> Sequence[str]:
        details = "".join({driver.detail_of(error.orig) for driver in DRIVERS.values()})
        found = re.search(r"\(message_id\)=\((.*)\)", details, re.DOTALL)
        return [found[1]] if found else []

    @override
    def insert_alone(self, table: Table, partitions: Table | None, names: Sequence[str]) -> Insert:
        """An id that an open transaction is storing is waited for, with a limit.

        It is set by the statement: a session's own would hold for the next who gets the session of a pooler, too.
        """
        return self._insert_outside_partitions(table, partitions, names, _limited(_insert_lock_timeout()))

    @override
    def insert_and_notify(self, table: Table, partitions: Table | None, names: Sequence[str]) -> Executable:
        """NOTIFY in the insert's own statement; where the message_id exists, it wakes no dispatcher."""
        stored = self._stored(table, partitions, names, _limited(_insert_lock_timeout()))
        return select(stored.c.message_id, func.pg_notify(bindparam("channel"), bindparam("payload")))

    @override
    def insert_enlisted(self, table: Table, partitions: Table | None, names: Sequence[str]) -> Executable:
        """As `insert_and_notify`; the limit for locks is the caller's again at the statement's end."""
        before = lock_timeout_before()
        shorter = shorter_timeout(before, _insert_lock_timeout())
        limited = select(_limited(shorter)).select_from(before).scalar_subquery()
        stored = self._stored(table, partitions, names, limited)
        notified = cast(func.pg_notify(bindparam("channel"), bindparam("payload")), Text)
        wake_up = case((stored.c.message_id.is_not(None), notified), else_=null())
        restored = func.set_config(LOCK_TIMEOUT_SETTING, before.c.value, true())
        return select(stored.c.message_id, wake_up, restored).select_from(before.outerjoin(stored, true()))

    def _stored(
        self, table: Table, partitions: Table | None, names: Sequence[str], *conditions: ColumnElement[bool]
    ) -> CTE:
        """An insert of parameters with the prefix `new_`, as a query of its rows."""
        insert = self._insert_outside_partitions(table, partitions, names, *conditions, prefix="new_")
        return insert.returning(table.c.message_id).cte("stored")

    @override
    def notify(self, connection: Connection, channel: str, payload: str) -> None:
        """NOTIFY; PostgreSQL sends it when the transaction commits."""
        connection.execute(select(func.pg_notify(channel, payload)))

    @override
    def watch_commit(self, connection: Connection, *, alone: bool = False) -> bool:
        """By its warnings. Where the session hides them, a transaction shows them; a single statement cannot."""
        info = connection.info
        if _UNREPLICATED not in info:
            _known(driver_of(connection)).on_notice(connection.connection.dbapi_connection, partial(_note, info))
            info[_HIDES_WARNINGS] = not info.get(PREPARED) and bool(connection.exec_driver_sql(_LEVEL).scalar())
        info[_UNREPLICATED] = False
        if info[_HIDES_WARNINGS] and not alone:
            connection.exec_driver_sql(_HEAR_WARNINGS)
        return not (info[_HIDES_WARNINGS] and alone)

    @override
    def check_commit(self, connection: Connection) -> None:
        """PostgreSQL answers such a commit with a warning, and no error."""
        if connection.info[_UNREPLICATED]:
            raise DurabilityUnknownError(
                "it is committed, but the wait for the synchronous standby was cancelled: if that standby takes over, "
                "it may be lost; when the standby is connected again, check whether the message is in the store"
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
        connection.execute(_SET_LOCK_LIMIT, {"limit": milliseconds(seconds)})
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


def _in_utc(time: ColumnElement[datetime]) -> ColumnElement[Any]:
    """The time in UTC, without a time zone."""
    return func.timezone("UTC", time)


def _known(driver: Driver) -> PostgreSqlDriver:
    if not isinstance(driver, PostgreSqlDriver):
        raise ConfigurationError("this PostgreSQL driver is not supported; use psycopg 3, as in postgresql+psycopg://")
    return driver


def _insert_lock_timeout() -> ColumnElement[str]:
    return literal_column(f"'{milliseconds(INSERT_LOCK_TIMEOUT)}'", Text)


def on_pages(first: int | None, end: int | None) -> Sequence[ColumnElement[bool]]:
    """Whether a row lies on the pages from `first` on and before `end`, of the table or a partition; None: no bound."""

    def at_start(page: int) -> ColumnElement[str]:
        return cast(literal(f"({page},0)", Text()), TupleId())

    place: ColumnElement[str] = column("ctid", TupleId())
    bounds = [] if first is None else [place >= at_start(first)]
    return bounds if end is None else [*bounds, place < at_start(end)]


def _system_column(table: Table, name: str) -> ColumnElement[Any]:
    found: ColumnClause[Any] = column(name)
    found.table = table
    return found


def _limited(limit: ColumnElement[str]) -> ColumnElement[bool]:
    """True, once the transaction waits no longer for locks than `limit`."""
    return func.set_config(LOCK_TIMEOUT_SETTING, limit, true()).is_not(None)


def _parameters(table: Table, names: Sequence[str], prefix: str = "") -> list[ColumnElement[Any]]:
    """A parameter for each of the columns of `names`: a statement names no other, as an older table may lack them."""
    return [bindparam(prefix + name, type_=table.c[name].type) for name in names]


def _outside(partitions: Table | None, parameter: str) -> Sequence[ColumnElement[bool]]:
    """That the message_id in `parameter` is in no partition."""
    if partitions is None:
        return ()
    return [~exists().where(partitions.c[KEY] == bindparam(parameter, type_=partitions.c[KEY].type))]


def _note(info: dict[str, Any], function: str | None, text: str) -> None:
    """Note in `info` a commit that its synchronous standby may not have."""
    if function == _WAIT_FOR_STANDBY:
        info[_UNREPLICATED] = True
        log.warning("PostgreSQL: %s", text)


def _lock_number(name: str) -> int:
    return int.from_bytes(sha256(f"delaystore {name}".encode()).digest()[:8], signed=True)


@lru_cache(maxsize=64)
def _changing_unclaimed(
    table: Table, change: StatementChange, returning: ColumnElement[Any] | None, inserts: EntryInserts | None
) -> Executable:
    """Built once for each: to build it takes as long as to run it."""
    free = select(table.c.message_id).where(row_with(table)).with_for_update(skip_locked=True).cte("free")
    is_free = table.c.message_id.in_(select(free.c.message_id))
    value = (null() if returning is None else returning).label("returned")
    columns = [table.c.message_id] if inserts is None else inserts.columns
    changed = change.where(is_free).returning(value, *columns).cte("changed")
    done = exists(select(changed.c.message_id)).label("done")
    there = exists(select(table.c.message_id).where(row_with(table))).label("there")
    found = select(done, there, select(changed.c.returned).scalar_subquery().label("returned"))
    return found if inserts is None else found.add_cte(inserts.of_removed(changed))
