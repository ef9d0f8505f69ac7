"""MariaDB 10.6 and newer, MySQL 8 and newer: row locks under READ COMMITTED."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Computed,
    Connection,
    Delete,
    Engine,
    Executable,
    Insert,
    Integer,
    LargeBinary,
    Select,
    Table,
    TextClause,
    bindparam,
    cast,
    event,
    func,
    insert,
    literal,
    literal_column,
    null,
    select,
    text,
)
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.compiler import compiles
from typing_extensions import override

from delaystore.errors import StoreUnavailableError
from delaystore.message import LATEST_DUE_TIME, time_left
from delaystore.stores.sql._history import NewEntries
from delaystore.stores.sql.codec import DIGEST, INNODB, KEY, MESSAGE_KEY, JsonList, UtcDateTime
from delaystore.stores.sql.dialects.base import (
    CONNECT_TIMEOUT,
    LONGEST_IDLE,
    OWN,
    PREPARED,
    CandidateRows,
    Claiming,
    Defect,
    Pair,
    Release,
    StatementChange,
    StoreDialect,
    floored,
    row_with,
)
from delaystore.stores.sql.drivers import Driver, driver_of
from delaystore.stores.sql.faults import (
    Code,
    DatabaseHost,
    Fault,
    HostsInTurn,
    TableSize,
    code_of,
    execute_as_it_stands,
    quoted_name,
)

SILENCE: Final = 300
"""Seconds after which a server that says nothing is given up."""
_PORT: Final = 3306
_READ_ONLY_OPTION: Final = re.compile("read.only")
_UNREACHABLE: Final = (2003, 2013)
_LAST_QUOTED: Final = re.compile("""'([^']*)'[^']*$""")
_NO_MESSAGE: Final[Mapping[str, Any]] = {
    "destination": "",
    "due_time": LATEST_DUE_TIME,
    "next_attempt": LATEST_DUE_TIME,
    "body": b"",
}
"""What else a row must have."""
INSERT_LOCK_TIMEOUT: Final = 5
"""Seconds for which the insert of a message waits for another transaction."""
_LIMITS: Final = "delaystore_lock_waits"
"""The key of a connection's `info` under which stand its session's own limits for locks, on rows and tables."""
SETUP_TIMEOUT: Final = 60
"""Seconds to wait for another process's set-up."""
_BY_KEY: Final = "FORCE INDEX (PRIMARY)"
"""A scan of a small table would run into the locks of others."""
_OWNER: Final = text("SELECT id, user, host FROM information_schema.processlist WHERE id = IS_USED_LOCK(:lock)")
_SIZE: Final = text(
    "SELECT table_name, data_length, index_length, table_rows FROM information_schema.tables "
    "WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name"
)
_IDENTITY: Final = text("SELECT @@hostname, @@port, @@server_id, @@datadir, COALESCE(:schema, DATABASE())")
_ISOLATION: Final = "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')"
"""Which of the two there is depends on the release."""
_FRESH_SIZES: Final = "SET @delaystore = 0 /*!80000 , SESSION information_schema_stats_expiry = 0 */"
"""MySQL remembers them for a day otherwise; MariaDB does not read the comment."""
_OUTAGES: Final = frozenset(
    {
        *(1020, 1205, 1206, 1213, 1412, 1613, 1614, 3572, 3101),  # others' locks and changes: the same may succeed now
        *(1021, 1026, 1030, 1037, 1038, 1041, 1114, 1135, 1180, 1878),  # no space, no memory, a disk that fails
        *(1040, 1129, 1203, 1226, 1637),  # too many connections, or transactions
        *(1047, 1053, 1080, 3100, 3168),  # shutting down, or outside its cluster
        *(1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169, 4031),  # the server has ended the connection
        *(2002, 2003, 2005, 2006, 2012, 2013, 2014, 2026, 2027, 2055),  # the driver has none
        *(1042, 1043, 1130, 1251, 1820, 1862, 2059, 2061, 3118, 3159, 4151),  # the server does not let it in
        *(1317, 1969, 3024),  # killed, out of time
        *(1290, 1792, 1836),  # read-only
    }
)
"""PyMySQL raises OperationalError for nearly all, and most have one SQLSTATE in common: the numbers must tell."""
_SETTINGS: Final[Mapping[str, str]] = {
    "innodb_snapshot_isolation": "OFF",  # or a lock fails where READ COMMITTED says to go on with the newest version
    "sql_safe_updates": "OFF",  # or a removal by a join is refused
    "sql_select_limit": str(2**64 - 1),  # or a search ends early
    "default_storage_engine": "InnoDB",
    "tx_read_only": "OFF",
    "transaction_read_only": "OFF",
    "max_statement_time": "0.000000",  # calls have a limit of their own, and a load may take long
    "max_execution_time": "0",
}
"""Variables that a session sets, with any server defaults; no release has all of them.

https://mariadb.com/kb/en/innodb-system-variables/#innodb_snapshot_isolation: from 11.6.2 on
"""
_MODES: Final = frozenset(
    {
        *("STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "TRADITIONAL", "ERROR_FOR_DIVISION_BY_ZERO"),
        *("NO_ZERO_DATE", "NO_ZERO_IN_DATE", "NO_ENGINE_SUBSTITUTION", "NO_AUTO_CREATE_USER", "ONLY_FULL_GROUP_BY"),
    }
)
"""Words of sql_mode that change nothing for our statements."""
_OUR_MODE: Final = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
"""Where it has others: no value is cut, and no table made in another engine, without an error."""
_VARIABLES: Final = (
    "SHOW SESSION VARIABLES WHERE Variable_name IN "
    f"({', '.join(repr(name) for name in ('max_allowed_packet', 'sql_mode', *_SETTINGS))})"
)
_STATE: Final = text(
    "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = COALESCE(:schema, DATABASE()) "
    "AND engine <> 'InnoDB' AND (table_name IN :names OR @@lower_case_table_names > 0 AND LOWER(table_name) IN :lower) "
).bindparams(bindparam("names", expanding=True), bindparam("lower", expanding=True))


class MySqlDialect(StoreDialect, CandidateRows):
    """MariaDB and MySQL."""

    default_driver: ClassVar[str | None] = "pymysql"  # SQLAlchemy's own must be compiled
    table_options: ClassVar[Mapping[str, Any]] = INNODB
    history_options: ClassVar[Mapping[str, Any]] = INNODB
    async_drivers: ClassVar[Sequence[str]] = ("aiomysql", "asyncmy")
    connect_arguments: ClassVar[Mapping[str, Any]] = {
        "connect_timeout": CONNECT_TIMEOUT,
        "charset": "utf8mb4",
        "read_timeout": SILENCE,
        "write_timeout": SILENCE,
    }
    max_identifier_bytes: ClassVar[int] = 64
    takes_trailing_space: ClassVar[bool] = False
    may_ignore_capitals: ClassVar[bool] = True  # as lower_case_table_names says
    needs_primary_key: ClassVar[bool] = True
    default_port: ClassVar[int | None] = _PORT
    claiming: ClassVar[Claiming] = Claiming.CANDIDATE_LOCKS
    code_type: ClassVar[type[Code] | None] = int
    faults: ClassVar[Mapping[Code, Fault]] = {
        **dict.fromkeys((1045, 1698), Fault.LOGIN),
        1049: Fault.NO_DATABASE,
        2003: Fault.UNREACHABLE,
        **dict.fromkeys((1044, 1142, 1143, 1227), Fault.PERMISSION),
        **dict.fromkeys((1146, 1054), Fault.MISSING),
        1062: Fault.DUPLICATE,
        **dict.fromkeys((1064, 1175, 1665), Fault.SETTING),  # sql_mode, safe updates, a log of statements
        1153: Fault.TOO_LARGE,
        **dict.fromkeys((1205, 3572), Fault.LOCKED),  # waited too long, or NOWAIT in MariaDB; NOWAIT in MySQL
        **dict.fromkeys((1317, 1969, 3024), Fault.CANCELLED),  # killed, out of time (MariaDB, MySQL)
        **dict.fromkeys((1020, 1213), Fault.CONFLICT),  # 1020: on a connection not ours, see _SETTINGS
        **dict.fromkeys((1290, 1836), Fault.READ_ONLY),  # 1290: some option forbids the statement, see fault
    }

    @override
    def fault(self, error: DBAPIError) -> Fault | None:
        """1290 names the option that forbids a statement, which may be another one."""
        fault = super().fault(error)
        return None if fault is Fault.READ_ONLY and not _READ_ONLY_OPTION.search(str(error.orig)) else fault

    @override
    def connect(
        self, dialect: Dialect, arguments: Sequence[Any], parameters: Mapping[str, Any], hosts: HostsInTurn
    ) -> Any:
        """Of several hosts the first that answers and takes writes, from the one that answered last.

        Its session is prepared here, before SQLAlchemy asks for `sql_mode` to know how names are quoted.
        """
        driver = driver_of(dialect)
        connection = self._connect(driver, dialect, arguments, parameters, hosts)
        try:
            _settle(connection, driver)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(
        self,
        driver: Driver,
        dialect: Dialect,
        arguments: Sequence[Any],
        parameters: Mapping[str, Any],
        hosts: HostsInTurn,
    ) -> Any:
        errors = dialect.loaded_dbapi
        if len(hosts) < 2:
            return driver.connect(dialect, arguments, parameters)
        failures: list[tuple[DatabaseHost, Exception]] = []
        for host in list(hosts):
            try:
                connection = driver.connect(
                    dialect, arguments, {**parameters, "host": host.name, "port": host.port or _PORT}
                )
                _refuse_read_only(connection)
            except (errors.Error, _ReadOnlyError) as error:
                failures.append((host, error))
            else:
                hosts.answered(host)
                return connection
        raise errors.OperationalError(*_summary(failures))

    @override
    def defects(self, connection: Connection, tables: Sequence[Table]) -> Iterable[Defect]:
        """Tables whose engine has no transactions."""
        names = [table.name for table in tables]
        asked = {"schema": tables[0].schema, "names": names, "lower": [name.lower() for name in names]}
        for name, found in connection.execute(_STATE, asked):
            yield Defect(
                text=f"the table {name!r} is kept by {found}, which has no transactions, so that messages are "
                f"delivered twice, and stay after a rollback; run ALTER TABLE `{name}` ENGINE=InnoDB "
                "ROW_FORMAT=DYNAMIC",
                is_obstacle=True,
            )

    @override
    def clock(self) -> ColumnElement[datetime] | None:
        """UTC in every session time zone, with microseconds."""
        return func.utc_timestamp(6, type_=UtcDateTime())

    @override
    def read_only(self) -> ColumnElement[bool] | None:
        """The server's variable: 0 or 1, or in newer versions a word."""
        return literal_column("CAST(@@GLOBAL.read_only AS CHAR)").not_in(
            [literal_column(value) for value in ("'0'", "'OFF'")]
        )

    @override
    def bucket(self, column: ColumnElement[datetime], seconds: ColumnElement[int]) -> ColumnElement[int]:
        """By microseconds: those of seconds are rounded towards 1970, and a quotient to four digits."""
        epoch = func.timestampdiff(literal_column("MICROSECOND"), literal_column("'1970-01-01'"), column)
        length = seconds * 1_000_000
        return floored(epoch, length).op("DIV", precedence=9)(length)

    @override
    def microsecond(self, column: ColumnElement[datetime]) -> ColumnElement[int]:
        return func.microsecond(column, type_=Integer())

    @override
    def _microsecond_before(self, time: ColumnElement[datetime]) -> ColumnElement[datetime]:
        return func.date_sub(time, literal_column("INTERVAL 1 MICROSECOND"), type_=UtcDateTime())

    @override
    def later(self, time: ColumnElement[datetime], microseconds: ColumnElement[int]) -> ColumnElement[datetime]:
        return func.timestampadd(literal_column("MICROSECOND"), microseconds, time, type_=UtcDateTime())

    @override
    def once_assigned(self, column: ColumnElement[Any], value: ColumnElement[Any]) -> ColumnElement[Any]:
        """The column: MariaDB and MySQL assign from left to right, and read values that are assigned already."""
        return column

    @override
    def moved(
        self, time: ColumnElement[datetime], since: ColumnElement[datetime], to: ColumnElement[datetime]
    ) -> ColumnElement[datetime]:
        unit: ColumnElement[Any] = literal_column("MICROSECOND")
        most = func.timestampdiff(unit, time, literal(LATEST_DUE_TIME, UtcDateTime))
        shift = func.least(func.timestampdiff(unit, since, to), most)
        return func.timestampadd(unit, shift, time, type_=UtcDateTime())

    @override
    @contextmanager
    def setup_lock(self, connection: Connection, name: str) -> Iterator[None]:
        """A named lock: DDL commits on its own there."""
        lock = _lock_name(name)
        if connection.execute(select(func.get_lock(lock, SETUP_TIMEOUT))).scalar() != 1:
            raise StoreUnavailableError(
                f"another process has been setting up {name!r} for {SETUP_TIMEOUT} s; try again"
            )
        try:
            yield
            connection.commit()  # the version's row, which others read once they have the lock
        finally:
            connection.execute(select(func.release_lock(lock)))

    @override
    def has_table(self, connection: Connection, table: Table) -> bool:
        """By a SELECT: in MySQL, a session that has described a missing table keeps others from making it."""
        try:
            connection.execute(select(literal_column("1")).select_from(table).limit(0))
        except DBAPIError as error:
            if self.fault(error) is not Fault.MISSING:
                raise
            return False
        return True

    @override
    @contextmanager
    def locked_tables(self, connection: Connection, tables: Sequence[Table]) -> Iterator[None]:
        """By locks that outlive the commits of DDL: a dropped table's is kept until no session can find it any more."""
        locks = ", ".join(f"{quoted_name(table, connection.dialect)} WRITE" for table in tables)
        execute_as_it_stands(connection, f"LOCK TABLES {locks}")
        try:
            yield
            connection.commit()
        finally:
            if not connection.invalidated:
                connection.exec_driver_sql("UNLOCK TABLES")

    @override
    def behind(self, columns: Pair, position: Pair) -> ColumnElement[bool]:
        """A plain bound on the time first: these databases use no index for a comparison of tuples."""
        return (columns[0] >= position[0]) & super().behind(columns, position)

    @override
    def up_to(self, columns: Pair, position: Pair) -> ColumnElement[bool]:
        return (columns[0] <= position[0]) & super().up_to(columns, position)

    @override
    def locked(self, statement: Select[Any], table: Table) -> Select[Any]:
        return super().locked(self.by_primary_key(statement, table), table)

    @override
    def by_primary_key(self, statement: Select[Any], table: Table) -> Select[Any]:
        return statement.with_hint(table, _BY_KEY)

    @override
    def bytewise(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Most collations treat upper and lower case as equal."""
        return cast(column, LargeBinary)

    @override
    def set_utc(self, engine: Engine) -> None:
        """For columns of type TIMESTAMP, which the session's time zone would shift."""
        _at_connect(engine, "SET time_zone = '+00:00'")

    @override
    def end_idle_sessions(self, engine: Engine) -> None:
        """There is no limit of a transaction's own, in MySQL not even one for transactions."""
        least = f"LEAST(@@SESSION.wait_timeout, {LONGEST_IDLE})"
        _at_connect(engine, f"SET SESSION wait_timeout = CAST({least} AS UNSIGNED)")  # uncast, MySQL 9.7.4 refuses it

    @override
    @contextmanager
    def savepoint(self, connection: Connection) -> Iterator[None]:
        """A deadlock in the block has undone the savepoint, too, which cannot be rolled back then."""
        savepoint = connection.begin_nested()
        try:
            yield
        except BaseException as error:
            try:
                savepoint.rollback()
            except OperationalError:
                raise error from None
            raise
        savepoint.commit()

    @override
    def take_lock(self, connection: Connection, name: str, owner: str) -> Release | None:
        """A named lock of the server; the name says which database is meant."""
        lock = _lock_name(name)
        if connection.execute(select(func.get_lock(lock, 0))).scalar() != 1:
            return None
        connection.execute(text("SET SESSION wait_timeout = 604800"))  # it is idle while a batch is being sent
        return lambda: connection.execute(select(func.release_lock(lock))).close()

    @override
    def lock_owner(self, connection: Connection, name: str) -> str | None:
        """The connection, and where its client is."""
        row = connection.execute(_OWNER, {"lock": _lock_name(name)}).first()
        return f"the client of connection {row[0]} ({row[1]} from {row[2]})" if row is not None else None

    @override
    def insert_message(self, table: Table, partitions: Table | None, names: Sequence[str]) -> Insert:
        """The insert waits for a transaction that has locked the row of the message_id, such as a dispatcher's."""
        return _InsertWithLockTimeout(table)

    @override
    def inserting(self, connection: Connection) -> AbstractContextManager[None]:
        """MySQL has no limit for one statement, and would wait for the session's own, 50 s by default."""
        is_mariadb = getattr(connection.dialect, "is_mariadb", False)
        return nullcontext() if is_mariadb else self.lock_wait(connection, min(INSERT_LOCK_TIMEOUT, time_left()))

    @override
    def storing(self, connection: Connection, *, alone: bool) -> AbstractContextManager[None]:
        return self.lock_wait(connection, min(INSERT_LOCK_TIMEOUT, time_left()))

    @override
    def remove_many(self, table: Table) -> Executable:
        """By primary key alone: a scan of a small table would wait for the locks of others.

        An index hint alone does not keep the optimizer from scanning here. From MariaDB 11 on, a join from the ids
        to the table alone does not either; both together do.
        """
        ids = "JSON_TABLE(:ids, '$[*]' COLUMNS (id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS ids"
        return _delete_listed(table, ids, "waiting.message_id = CAST(ids.id AS BINARY)", "ids")

    @override
    def delete_locked(self, connection: Connection, table: Table, column: str, numbers: Sequence[int]) -> None:
        """One statement: a join, as in `remove_many`."""
        taken = "JSON_TABLE(:numbers, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS taken"
        statement = _delete_listed(table, taken, f"waiting.{column} = taken.seq", "numbers")
        connection.execute(statement, {"numbers": list(numbers)})

    @override
    def sha256(self, body: ColumnElement[bytes]) -> ColumnElement[bytes]:
        return func.unhex(func.sha2(body, literal_column("256")), type_=DIGEST)

    @override
    def history_columns(self) -> Sequence[Column[Any]]:
        """A primary key, without which a cluster replicates no deletion."""
        return [Column("number", BigInteger, primary_key=True)]

    @override
    def failing_columns(self) -> Sequence[Column[Any]]:
        """A computed one, NULL for most: there are no partial indexes."""
        failing_at = Computed("CASE WHEN failure_count > 0 THEN next_attempt END", persisted=False)
        return [Column("failing_at", UtcDateTime(), failing_at)]

    @override
    def is_failing(self, table: Table) -> ColumnElement[bool]:
        return table.c.failing_at.is_not(None)

    @override
    def failing_order(self, table: Table) -> list[ColumnElement[Any]]:
        return [table.c.failing_at, table.c[KEY]]

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
        """By the row lock, without waiting: at most a second where another transaction just stores that message_id."""
        columns = [table.c.message_id, *([] if returning is None else [returning])]
        claim = select(*columns).where(row_with(table)).with_for_update(nowait=True)
        try:
            if self._is_free(connection, table, values["id"]):
                return None, None
            row = connection.execute(claim, {"id": values["id"]}).first()
            if row is None:
                return None, None
        except OperationalError as error:
            if self.fault(error) is Fault.LOCKED:
                return False, None
            raise
        if entries is not None:
            self.insert_entries(connection, [row_with(table)], values, entries)
        connection.execute(change.where(row_with(table)), values)
        return True, None if returning is None else row[1]

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
        """By row locks. Both changes go by the primary key: a scan waits for other rows' locks, under REPEATABLE READ
        also as an UPDATE.
        """
        key = table.c.message_id
        if ids is None:  # a search that locks would also lock rows that do not match
            ids = connection.execute(select(key).where(*matches)).scalars().all()
        free = select(key, null() if returning is None else returning).where(self.among(key, "ids"), *matches)
        rows = connection.execute(self.locked(free, table), {"ids": list(ids)})
        locked = {row[0]: row[1] for row in rows}
        if locked and entries is not None:
            self.insert_entries(connection, [self.among(key, "ids")], {"ids": list(locked)}, entries)
        if locked and isinstance(change, Delete):
            connection.execute(self.remove_many(table), {"ids": list(locked)})
        elif locked:
            statement = change.where(self.among(key, "ids")).with_hint(_BY_KEY, selectable=table)
            connection.execute(statement, {**values, "ids": list(locked)})
        return locked

    def _is_free(self, connection: Connection, table: Table, message_id: str) -> bool:
        """Whether nothing is to be locked, and the search for it would lock a gap."""
        if not self.reads_older_rows(connection):
            return False
        there = select(table.c.message_id).where(row_with(table))
        is_seen = connection.execute(there, {"id": message_id}).first() is not None
        return not is_seen and not self.is_taken(connection, table, message_id)

    @override
    def reads_older_rows(self, connection: Connection) -> bool:
        """Under REPEATABLE READ; SERIALIZABLE also locks the rows that it reads."""
        if OWN in connection.get_execution_options():
            return False
        return any(level == "REPEATABLE-READ" for _, level in connection.exec_driver_sql(_ISOLATION))

    @override
    def is_taken(self, connection: Connection, table: Table, message_id: str, key: str | None = None) -> bool:
        """By an insert that is undone, which leaves no lock where nothing is.

        A locking search that finds nothing locks the gap in which it has searched, above READ COMMITTED: until that
        transaction's end no session could store a message whose message_id, or key, belongs there. So does an insert
        that meets another row, or the remains of one: then a row came, or went, since the transaction began.
        """
        row = {**_NO_MESSAGE, KEY: message_id, **({} if key is None else {MESSAGE_KEY: key})}
        with self.lock_wait(connection, 0):
            undone = connection.begin_nested()
            try:
                connection.execute(insert(table), row)
            except DBAPIError as error:
                fault = self.fault(error)
                if fault is not Fault.CONFLICT:  # which has undone all
                    undone.rollback()
                if fault is not Fault.DUPLICATE:
                    raise
                return True
            undone.rollback()
        return False

    @override
    def is_of_primary_key(self, error: DBAPIError) -> bool:
        """By the name of the key, which the error ends with: MySQL has the table before it."""
        named = None if error.orig is None else _LAST_QUOTED.search(str(error.orig.args[-1]))
        return named is not None and named[1].rpartition(".")[2] == "PRIMARY"

    @override
    def identity(self, connection: Connection, table: Table) -> Sequence[Any]:
        """The server and the database on it."""
        return tuple(connection.execute(_IDENTITY, {"schema": table.schema}).one())

    @override
    def sizes(self, connection: Connection, table: Table) -> Sequence[TableSize]:
        """InnoDB's own estimates, which it makes again when a tenth of the rows have changed."""
        connection.exec_driver_sql(_FRESH_SIZES)
        found = connection.execute(_SIZE, {"schema": table.schema, "name": table.name})
        return [
            TableSize(name=name, data_bytes=data, index_bytes=indexes, rows=rows, dead_rows=None)
            for name, data, indexes, rows in found
        ]

    @override
    def limit_lock_wait(self, connection: Connection, seconds: float) -> str | None:
        """A shorter limit of the session's own stays.

        Connections of our engines are asked for theirs once. A caller may change those of its own Engine at any time.
        """
        is_ours = OWN in connection.get_execution_options() and PREPARED in connection.info
        limits: tuple[int, int] | None = connection.info.get(_LIMITS) if is_ours else None
        if limits is None:
            query = "SELECT @@SESSION.innodb_lock_wait_timeout, @@SESSION.lock_wait_timeout"
            rows, tables = connection.exec_driver_sql(query).one()
            limits = int(rows), int(tables)
        if is_ours:
            connection.info[_LIMITS] = limits
        whole = max(1, math.ceil(seconds))
        connection.exec_driver_sql(_lock_waits(*(min(limit, whole) for limit in limits)))
        return _lock_waits(*limits)

    @override
    def is_outage(self, error: DBAPIError) -> bool:
        code = code_of(error)
        return code in _OUTAGES if code else super().is_outage(error)

    @override
    def has_ended_transaction(self, error: DBAPIError, connection: Connection) -> bool:
        """After a deadlock; with innodb_rollback_on_timeout also after waiting too long for a lock."""
        return super().has_ended_transaction(error, connection) or self.fault(error) in (Fault.LOCKED, Fault.CONFLICT)


def joined_delete(table: Table, values: str, condition: str) -> str:
    """The text of a DELETE of rows `waiting` by a join from `values`, for `text`: by primary key, see `remove_many`."""
    from sqlalchemy.dialects import mysql  # loads slowly, and programs with another database need it not

    name = quoted_name(table, mysql.dialect()).replace(":", r"\:")
    return f"DELETE waiting FROM {values} STRAIGHT_JOIN {name} AS waiting {_BY_KEY} ON {condition}"


def _delete_listed(table: Table, values: str, condition: str, parameter: str) -> TextClause:
    """Delete rows by a join from `values`, made of a list parameter."""
    return text(joined_delete(table, values, condition)).bindparams(bindparam(parameter, type_=JsonList()))


class _InsertWithLockTimeout(Insert):
    """An insert that waits INSERT_LOCK_TIMEOUT seconds at most for a row lock; for MySQL see `inserting`."""

    inherit_cache = True


@compiles(_InsertWithLockTimeout)
def _compile(insert: Insert, compiler: Any, **options: Any) -> str:
    statement: str = compiler.visit_insert(insert, **options)
    shorter = f"LEAST(@@SESSION.innodb_lock_wait_timeout, {INSERT_LOCK_TIMEOUT})"
    limit = f"SET STATEMENT innodb_lock_wait_timeout = {shorter} FOR "
    return limit + statement if compiler.dialect.is_mariadb else statement


def _settle(connection: Any, driver: Driver) -> None:
    """Have statements that are too large fail by themselves, and the session go by `_SETTINGS`."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(_VARIABLES)
        found = dict(cursor.fetchall())
        if int(found.get("sql_select_limit", 0)) < 100:  # which this list is subject to, too
            cursor.execute("SET SESSION sql_select_limit = 1000")
            cursor.execute(_VARIABLES)
            found = dict(cursor.fetchall())
        driver.limit_statements(connection, int(found["max_allowed_packet"]))
        changes = [f"SESSION {name} = {value}" for name, value in _SETTINGS.items() if found.get(name, value) != value]
        modes = set(found["sql_mode"].split(","))
        if modes - _MODES or not modes & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}:
            changes.append(f"SESSION sql_mode = '{_OUR_MODE}'")
        if changes:
            cursor.execute(f"SET {', '.join(changes)}")


class _ReadOnlyError(Exception):
    """The server is a standby."""


def _refuse_read_only(connection: Any) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute("SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only")
        answers = cursor.fetchone()
    connection.rollback()
    if any(str(answer).upper() not in ("0", "OFF") for answer in answers):
        connection.close()
        raise _ReadOnlyError("it is read-only")


def _summary(failures: Sequence[tuple[DatabaseHost, Exception]]) -> tuple[int, str]:
    """The number of the most telling of the failures, and all of them in words."""
    numbers = [error.args[0] for _, error in failures if isinstance(error.args[0], int)]
    telling = [number for number in numbers if number not in _UNREACHABLE]
    words = "; ".join(f"{host}: {error.args[-1]}" for host, error in failures)
    return (telling or [_UNREACHABLE[0]])[0], f"no host takes writes ({words})"


def _lock_waits(rows: int, tables: int) -> str:
    return f"SET SESSION innodb_lock_wait_timeout = {rows}, SESSION lock_wait_timeout = {tables}"


def _lock_name(name: str) -> str:
    return "delaystore." + sha256(name.encode()).hexdigest()[:40]


def _at_connect(engine: Engine, statement: str) -> None:
    """Have each new connection of `engine` begin with `statement`."""

    def execute(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(statement)
        cursor.close()

    event.listen(engine, "connect", execute)
