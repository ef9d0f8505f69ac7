"""The tables of an endpoint in PostgreSQL's catalog: defects, rights, sizes, and its bulk partitions.

Also what all statements of the dialect share: limits of time for locks, quoted names, the removal by location.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, ClassVar, Final

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    Executable,
    Interval,
    MetaData,
    Table,
    Text,
    case,
    cast,
    column,
    func,
    inspect,
    literal,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from delaystore.errors import (
    StoreUnavailableError,
)
from delaystore.processes import pause
from delaystore.stores.sql._history import EntryInserts, NewEntries
from delaystore.stores.sql.codec import (
    FAILURES,
    FAILURES_OF,
    LOAD,
    NOT_AFTER,
    ExactText,
    UtcDateTime,
)
from delaystore.stores.sql.dialects.base import (
    BulkTables,
    Defect,
    StoreDialect,
    made_by_setup,
)
from delaystore.stores.sql.faults import (
    Fault,
    TableSize,
    as_it_stands,
    code_of,
    escaped,
    execute_as_it_stands,
    quoted_name,
    quoted_table,
)

log = logging.getLogger("delaystore.stores.sql")
LOCK_TIMEOUT_SETTING: Final = literal_column("'lock_timeout'", Text)
_ATTACHED: Final = text("SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST(:live AS REGCLASS)")
"""The partitions whose messages wait."""
_RIGHTS: Final = text(
    "SELECT a.privilege_type, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END "
    "FROM pg_class c CROSS JOIN aclexplode(COALESCE(c.relacl, acldefault('r', c.relowner))) a "
    "WHERE c.oid = CAST(:name AS REGCLASS) AND a.grantee <> CAST(current_user AS REGROLE)"
)
"""The rights of roles on a table, its owner too, except the role that asks, which owns the tables that it makes."""
_ALTER_WAIT: Final = 0.5
"""Seconds for which all who use a table wait at most behind a change of its columns, until it is changed."""
_ALTER_TIMEOUT: Final = 120
"""Seconds for which a change of columns is tried."""
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
_SAMPLE: Final = 100
"""Pages to look at where no statistics tell how many rows a page has; together they hold 10,000 or so at the most."""
_ADDED_COLUMNS: Final = (
    (FAILURES, "TEXT"),
    (FAILURES_OF, 'TEXT COLLATE "C"'),
    (NOT_AFTER, "TIMESTAMP WITH TIME ZONE"),
    (LOAD, "INTEGER"),
)
"""Columns that later versions of the schema have added to messages."""
_HAS_LOAD_CHECK: Final = (
    "SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = CAST(:partition AS REGCLASS) AND contype = 'c' "
    "AND pg_get_constraintdef(oid) LIKE '%load_number%')"
)
_PARTITION_INDEXES: Final[Mapping[str, str]] = {
    "due": "(next_attempt, message_id)",
    "failing": "(next_attempt, message_id) WHERE failure_count > 0",
}
"""The constraints and indexes of a partition besides its primary key; PostgreSQL names them."""
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
"""Those of _PARTITION_INDEXES that the partition `{table}` has not, and that no session is just building."""
_ENDPOINT_TABLES: Final = (
    "WITH endpoint_tables (oid, is_partition) AS ("  # noqa: S608 - constant
    "SELECT CAST(to_regclass(name) AS oid), FALSE FROM unnest(CAST(:names AS TEXT[])) AS name "
    "UNION ALL SELECT inhrelid, TRUE FROM pg_inherits WHERE inhparent = to_regclass(:live)), "
    "broken (indrelid, indexrelid, name, is_unique, in_progress) AS (SELECT i.indrelid, i.indexrelid, "
    f"CAST(CAST(c.oid AS REGCLASS) AS TEXT), i.indisunique, {_IN_PROGRESS} "
    "FROM endpoint_tables JOIN pg_index i ON i.indrelid = endpoint_tables.oid JOIN pg_class c ON c.oid = i.indexrelid "
    f"WHERE NOT i.indisvalid AND CASE WHEN is_partition THEN {_IS_OURS} "
    "ELSE c.relname = ANY (CAST(:indexes AS TEXT[])) END AND c.relname !~ '_cc(new|old)[0-9]*$') "
)
"""The endpoint's tables, its attached partitions, and their invalid indexes; indexes that a REINDEX makes are its
own."""
_BROKEN: Final = text(
    f"{_ENDPOINT_TABLES}SELECT indexrelid, name, CAST(CAST(indrelid AS REGCLASS) AS TEXT) FROM broken "  # noqa: S608 - constant
    "WHERE NOT in_progress"
)
_IS_INVALID: Final = text("SELECT NOT indisvalid FROM pg_index WHERE indexrelid = CAST(:index AS OID)")
_STATE: Final = text(
    f"{_ENDPOINT_TABLES}SELECT "  # noqa: S608 - constant
    "CAST(CAST(c.oid AS REGCLASS) AS TEXT), row_security_active(c.oid), c.relpersistence = 'u', "
    "ARRAY(SELECT name FROM broken WHERE indrelid = c.oid AND NOT in_progress), "
    "ARRAY(SELECT name FROM broken WHERE indrelid = c.oid AND in_progress), "
    "ARRAY(SELECT name FROM broken WHERE indrelid = c.oid AND is_unique), "
    "ARRAY(SELECT quote_ident(a.attname) FROM pg_attribute a JOIN pg_collation l ON l.oid = a.attcollation "
    "WHERE a.attrelid = c.oid AND a.attname = ANY (CAST(:exact AS TEXT[])) "
    "AND l.collname NOT IN ('C', 'POSIX', 'ucs_basic', 'pg_c_utf8')), "
    f"CASE WHEN is_partition THEN ARRAY({_LACKING.format(table='c.oid')}) ELSE '{{}}' END "
    "FROM endpoint_tables JOIN pg_class c ON c.oid = endpoint_tables.oid ORDER BY is_partition, c.relname"
)
_NAME_OF_PARTITION: Final = text(
    "SELECT CAST(CAST(:partition AS REGCLASS) AS TEXT) WHERE has_table_privilege(CAST(:partition AS OID), 'DELETE')"
)


_SPANS: Final = (
    (timedelta(hours=2), timedelta(minutes=1)),
    (timedelta(days=4), timedelta(hours=1)),
    (timedelta(days=100), timedelta(days=1)),
)
"""Up to how long a history is kept, and the time that each of its partitions is for: few are searched for an id."""
_LONGEST_SPAN: Final = timedelta(days=7)
_AHEAD: Final = 3
"""Partitions that are made ahead of their time."""
_PARTITION_WAIT: Final = 0.05
"""Seconds for which all who use the history may have to wait behind a change of its partitions."""
_SMALL_DEFAULT: Final = 8 * 2**20
"""Bytes of a default partition beside which others are made."""
_IS_LARGE: Final = text("SELECT pg_relation_size(to_regclass(:table)) > :most")
_EPOCH: Final = datetime(1970, 1, 5, tzinfo=UTC)
"""A Monday."""
_THERE_ALREADY: Final = frozenset({"42P07", "42P17", "42P01", "23514"})
"""Another session has made or dropped the partition, or the default partition has entries of its time."""
_DATED: Final = text(
    "SELECT CAST(CAST(c.oid AS REGCLASS) AS TEXT), "
    r"CAST((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1] AS TIMESTAMPTZ) AS ends "
    "FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(:history) "
    "AND pg_get_expr(c.relpartbound, c.oid) <> 'DEFAULT' ORDER BY 2"
).columns(column("name", Text), column("ends", UtcDateTime))
"""The partitions of the history, and the ends of their times."""


class PostgreSqlTables(StoreDialect, BulkTables):
    """How an endpoint's tables stand in the catalog of PostgreSQL, and the bulk partitions among them."""

    history_options: ClassVar[Mapping[str, Any]] = {"postgresql_partition_by": "RANGE (ended_at)"}

    @override
    def may_create(self, connection: Connection, schema: str | None) -> bool:
        named = func.coalesce(schema, func.current_schema())
        return bool(connection.execute(select(func.has_schema_privilege(named, "CREATE"))).scalar())

    @override
    def remove_partitioned(
        self, connection: Connection, partition: Any, locations: Sequence[Any], entries: NewEntries | None = None
    ) -> int:
        """By the partition's own name: by the table's, all partitions would be searched."""
        name: str | None = connection.execute(_NAME_OF_PARTITION, {"partition": partition}).scalar()
        if name is None:
            return 0
        inserts, more = (None, {}) if entries is None else (entries.inserts, entries.values)
        return connection.execute(removal(name, inserts), {"locations": list(locations), **more}).rowcount

    @override
    @contextmanager
    def brief_wait(self, connection: Connection, seconds: float, *, exactly: bool = False) -> Iterator[None]:
        """Restores the session's own limit, which would otherwise be ours until its transaction ends."""
        with self.savepoint(connection), limited_lock_wait(connection, milliseconds(seconds), exactly=exactly):
            yield

    @override
    def alter_with_short_locks(self, connection: Connection, alter: Callable[[], None]) -> None:
        """All who use the table wait behind our wait for its lock: so that is short, and made again."""
        deadline = time.monotonic() + _ALTER_TIMEOUT
        while True:
            try:
                with self.brief_wait(connection, _ALTER_WAIT, exactly=True):
                    return alter()
            except DBAPIError as error:
                if self.fault(error) is not Fault.LOCKED:
                    raise
            if time.monotonic() > deadline:
                raise StoreUnavailableError(
                    f"long transactions have locked the table for {_ALTER_TIMEOUT} s; end them, and run setup again"
                )
            pause(_ALTER_WAIT)

    @override
    @contextmanager
    def locked_tables(self, connection: Connection, tables: Sequence[Table]) -> Iterator[None]:
        """Until the transaction ends."""
        names = ", ".join(quoted_name(table, connection.dialect) for table in tables)
        execute_as_it_stands(connection, f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        yield

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

        attached = _ATTACHED.columns(column("inhrelid", postgresql.OID())).bindparams(live=quoted(table))
        return column("tableoid", postgresql.OID()).not_in(attached)

    @override
    def grant_alike(self, connection: Connection, table: Table, like: Table) -> None:
        _grant(connection, [table], like, None)

    @override
    def open_to_senders(self, connection: Connection, partitions: Table, table: Table) -> None:
        _grant(connection, [partitions], table, {"INSERT": "SELECT"})

    @override
    def open_to_operators(self, connection: Connection, tables: Sequence[Table], table: Table) -> None:
        _grant(connection, tables, table, {"DELETE": "SELECT, INSERT, UPDATE, DELETE", "SELECT": "SELECT"})

    @override
    def make_history(
        self, connection: Connection, history: str, partition_name: Callable[[str], str], table: Table
    ) -> None:
        """Its default partition takes entries of times without another, as where no dispatcher may make one."""
        parent, default = (quoted(quoted_table(name, table.schema)) for name in (history, partition_name("default")))
        execute_as_it_stands(connection, f"CREATE TABLE IF NOT EXISTS {default} PARTITION OF {parent} DEFAULT")
        given = {"DELETE": "SELECT, INSERT, DELETE", "INSERT": "INSERT", "UPDATE": "INSERT", "SELECT": "SELECT"}
        tables = [quoted_table(name, table.schema) for name in (history, partition_name("default"))]
        _grant(connection, tables, table, given)

    @override
    def without_dated_partitions(self, history: Table, partition_name: Callable[[str], str]) -> Table:
        """The default partition."""
        return history.to_metadata(MetaData(), name=partition_name("default"))

    @override
    def partition_history(
        self,
        connection: Connection,
        history: Table,
        partition_name: Callable[[str], str],
        now: datetime,
        kept: timedelta,
    ) -> None:
        """As its owner alone may. Each table is made, or dropped, in a moment, or not at all before the next call."""
        span = next((span for longest, span in _SPANS if kept <= longest), _LONGEST_SPAN)
        found = connection.execute(_DATED, {"history": quoted(history)}).all()
        connection.rollback()
        end = max((ends for _, ends in found), default=now - span)
        try:
            for name, ends in found:
                if ends <= now - kept:
                    self._at_once(connection, f"DROP TABLE {name}")
            default = quoted(quoted_table(partition_name("default"), history.schema))
            if connection.execute(_IS_LARGE, {"table": default, "most": _SMALL_DEFAULT}).scalar():
                connection.rollback()
                return  # PostgreSQL would read all of it for each new partition, and removals would wait
            while end < now + _AHEAD * span:
                begin = max(end, _floored(now, span))
                end = _floored(begin, span) + span
                made = quoted(quoted_table(partition_name(f"{begin:%Y%m%d%H%M}"), history.schema))
                bounds = f"FROM ('{begin.isoformat()}') TO ('{end.isoformat()}')"
                statement = f"CREATE TABLE {made} PARTITION OF {quoted(history)} FOR VALUES {bounds}"
                if not self._at_once(connection, statement):
                    return  # the next call tries this one again, so that there is no gap
        except DBAPIError as error:
            connection.rollback()
            if self.fault(error) is not Fault.PERMISSION:
                raise
            log.debug("%s gets no partitions, as this role is not its owner", history.fullname)

    def _at_once(self, connection: Connection, statement: str) -> bool:
        """Execute and commit a change of partitions, unless others have just made it; False: others use the history."""
        try:
            with self.brief_wait(connection, _PARTITION_WAIT, exactly=True):
                execute_as_it_stands(connection, statement)
            connection.commit()
        except DBAPIError as error:
            connection.rollback()
            if self.fault(error) is Fault.LOCKED:
                return False
            if code_of(error) not in _THERE_ALREADY:
                raise
        return True

    @override
    def alter_partitions(self, connection: Connection, table: Table, partitions: Sequence[str]) -> None:
        if not partitions:
            return
        found = inspect(connection).get_multi_columns(schema=table.schema, filter_names=list(partitions))
        for (_, partition), columns in found.items():
            name = quoted_name(quoted_table(partition, table.schema), connection.dialect)
            there = {each["name"] for each in columns}
            for column_name, kind in _ADDED_COLUMNS:
                if column_name not in there:  # or its lock would wait for an index that is being built
                    execute_as_it_stands(connection, f"ALTER TABLE {name} ADD COLUMN {column_name} {kind}")
            if not connection.execute(text(_HAS_LOAD_CHECK), {"partition": name}).scalar():
                # its messages are older than loads, and searches for a load leave it out
                execute_as_it_stands(connection, f"ALTER TABLE {name} ADD CHECK (load_number IS NULL)")
            lacking = text(_LACKING.format(table="CAST(CAST(:partition AS REGCLASS) AS OID)"))
            for which in connection.execute(lacking, {"partition": name}).scalars().all():
                execute_as_it_stands(connection, f"CREATE INDEX ON {name} {_PARTITION_INDEXES[which]}")

    @override
    def index_condition(self, condition: ColumnElement[bool]) -> Mapping[str, Any]:
        return {"postgresql_where": condition}

    @override
    def defects(self, connection: Connection, tables: Sequence[Table]) -> Iterable[Defect]:
        """The catalog's rows of them, and of the partitions."""
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
            self.alter_with_short_locks(connection, partial(_drop_if_invalid, connection, index, name, table))

    @override
    def identity(self, connection: Connection, table: Table) -> Sequence[Any]:
        """The running server, the database, and the meaning of the table's name there."""
        return tuple(connection.execute(_IDENTITY, {"name": quoted_name(table, connection.dialect)}).one())

    @override
    def sizes(self, connection: Connection, table: Table) -> Sequence[TableSize]:
        """As the planner estimates rows: by the rows in a page at the last VACUUM or ANALYZE, and the pages now."""
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


@cache
def _dialect() -> Dialect:
    """SQLAlchemy's object for PostgreSQL; loading it takes as long as much else of a program's start."""
    from sqlalchemy.dialects import postgresql

    return postgresql.dialect()  # type: ignore[no-untyped-call]


def quoted(table: Table) -> str:
    """The table's name as PostgreSQL quotes it."""
    return quoted_name(table, _dialect())


def _grant(connection: Connection, tables: Sequence[Table], like: Table, given: Mapping[str, str] | None) -> None:
    """Give the roles that have rights on `like` rights on `tables`: by right those in `given`; None: the same."""
    for right, role in connection.execute(_RIGHTS, {"name": quoted_name(like, connection.dialect)}).all():
        wanted = right if given is None else given.get(right)
        for each in tables if wanted is not None else ():
            name = quoted_name(each, connection.dialect)
            execute_as_it_stands(connection, f"GRANT {wanted} ON {name} TO {role}")


def _named(connection: Connection, tables: Sequence[Table]) -> dict[str, Any]:
    """The parameters of _ENDPOINT_TABLES."""
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


def lock_timeout_before() -> CTE:
    """The limit for locks as it is, in `value`."""
    return select(func.current_setting(LOCK_TIMEOUT_SETTING).label("value")).cte("before")


def _floored(time: datetime, span: timedelta) -> datetime:
    return time - (time - _EPOCH) % span


def milliseconds(seconds: float) -> str:
    """A time limit as PostgreSQL takes it, at least a millisecond: 0 would mean none."""
    return f"{max(1, int(seconds * 1000))}ms"


def shorter_timeout(before: CTE, timeout: ColumnElement[str]) -> ColumnElement[str]:
    """The limit `before`, or `timeout` where that is shorter."""
    former = before.c.value
    is_longer = cast(former, Interval()) > cast(timeout, Interval())
    return case(((former == literal_column("'0'", Text)) | is_longer, timeout), else_=former)


@contextmanager
def limited_lock_wait(connection: Connection, timeout: str, *, exactly: bool = False) -> Iterator[None]:
    """Wait no longer for locks in the block than `timeout`; undoing a failed block undoes that, too.

    `exactly`: so long even where the session's own limit is shorter.
    """
    before, wanted = lock_timeout_before(), literal(timeout, Text)
    limit = func.set_config(LOCK_TIMEOUT_SETTING, wanted if exactly else shorter_timeout(before, wanted), true())
    former: str = connection.execute(select(before.c.value, limit)).scalar_one()
    yield
    connection.execute(select(func.set_config(LOCK_TIMEOUT_SETTING, former, true())))


def removal(name: str, entries: EntryInserts | None = None) -> Executable:
    """The removal of the rows at `locations`, which this transaction has locked, from the table of that quoted name.

    Rows locked since a savepoint that is still open are not: the savepoint has its own transaction id.
    """
    deletion = (
        f"DELETE FROM ONLY {escaped(name)} WHERE ctid = ANY (CAST(CAST(:locations AS TEXT[]) AS TID[])) "  # noqa: S608 - quoted
        "AND xmax = CAST(pg_current_xact_id() AS XID)"
    )
    return text(deletion) if entries is None else entries.removing_by_text(deletion)


def _estimated_rows(connection: Connection, row: Any) -> int | None:
    """Of a table by its row of _SIZES; None: it has no statistics, and may not be read."""
    if row.pages == 0:
        return 0
    if row.relpages > 0 and row.reltuples > 0:
        return int(row.reltuples / row.relpages * row.pages)
    return _sampled_rows(connection, row.name, row.pages) if row.readable else None


def _sampled_rows(connection: Connection, name: str, pages: int) -> int:
    """Of a table without statistics, or with those of a time when it was empty: by a look at a few pages."""
    share = min(1.0, _SAMPLE / pages)
    sample = as_it_stands(f"SELECT count(*) FROM ONLY {name} TABLESAMPLE SYSTEM ({100 * share:.9f})")  # noqa: S608 - quoted by PostgreSQL
    return int(connection.execute(sample).scalar_one() / share)
