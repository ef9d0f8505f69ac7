"""Tables of bulk partitions, their limits, and their clean-up."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, CursorResult, Table, text
from sqlalchemy.exc import DBAPIError

from delaystore.errors import DuplicateMessageError
from delaystore.processes import pause
from delaystore.stores.sql.dialects import StoreDialect
from delaystore.stores.sql.dialects.base import BulkTables
from delaystore.stores.sql.faults import Fault, escaped, quoted_name
from delaystore.stores.sql.urls import is_load_table


@dataclass(frozen=True, slots=True)
class BulkPartitions:
    """An endpoint's table `live`, and `parent`, whose children are its partitions, also those not attached yet."""

    live: Table
    parent: Table
    dialect: StoreDialect
    bulk: BulkTables

    def execute(
        self, connection: Connection, statement: str, partition: Table | None = None, **values: Any
    ) -> CursorResult[Any]:
        """Execute `statement`, which names tables by {live}, {partitions} and {partition}, or by such parameters."""
        tables = {"live": self.live, "partitions": self.parent} | (
            {} if partition is None else {"partition": partition}
        )
        names = {key: quoted_name(table, connection.dialect) for key, table in tables.items()}
        words = {key: escaped(name) for key, name in names.items()}
        return connection.execute(text(statement.format(**words)), names | values)


_FILLS: Final = "delaystore: fills a shelf"
"""A lock that all share who have it: it tells of a transaction that it sends no message."""
SENDS_NOTHING: Final = f"SELECT pg_advisory_xact_lock_shared(hashtextextended('{_FILLS}', 0))"
"""The first statement of a transaction that only fills a partition or reads, for which loads need not wait."""
_IN_FLIGHT: Final = text(
    "SELECT l.virtualtransaction, FALSE FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
    "JOIN pg_database d ON d.oid = a.datid WHERE d.datname = current_database() AND a.usesysid IS NOT NULL "
    "AND l.locktype = 'virtualxid' AND l.granted AND l.pid <> pg_backend_pid() "
    "AND NOT EXISTS (SELECT FROM pg_locks f WHERE f.virtualtransaction = l.virtualtransaction "
    "AND f.locktype = 'advisory' AND f.objsubid = 1 AND f.database = d.oid "
    "AND (CAST(f.classid AS BIGINT) << 32) | CAST(f.objid AS BIGINT) = hashtextextended(:fills, 0)) "
    "UNION ALL SELECT gid, TRUE FROM pg_prepared_xacts WHERE database = current_database()"
)
"""The transactions of the database, and whether each is prepared; not ours, autovacuum's, or transactions that send
nothing.

A partition that is filled meanwhile is compared with ours later, once it is announced itself.
"""
_LONGEST_PAUSE: Final = 0.05


def await_older_transactions(connection: Connection, timeout: float) -> bool:
    """Whether all transactions that may not see the rows committed now end within `timeout` seconds."""
    deadline, wait = time.monotonic() + timeout, 0.001
    waited_for = set(_in_flight(connection))
    while waited_for and time.monotonic() < deadline:
        pause(wait)
        wait = min(2 * wait, _LONGEST_PAUSE)
        now = _in_flight(connection)
        # a transaction that is prepared meanwhile loses the name by which it was known, and lives on
        waited_for = {name for name, is_prepared in now.items() if is_prepared or name in waited_for}
    return not waited_for


def _in_flight(connection: Connection) -> dict[str, bool]:
    """Whether each transaction is prepared."""
    rows = connection.execute(_IN_FLIGHT, {"fills": _FILLS}).all()
    connection.commit()
    return {row[0]: row[1] for row in rows}


SHORT_WAIT: Final = 0.05
"""Seconds for which others may have to wait behind our wait for a lock."""
_PAUSE: Final = 0.1
"""Seconds between two such waits."""
_INHERITS: Final = (
    "SELECT EXISTS (SELECT FROM pg_inherits "
    "WHERE inhrelid = to_regclass(:partition) AND inhparent = CAST(:parent AS REGCLASS))"
)


class PartitionTable:
    """The table of a partition: to be filled, announced, attached, or gone."""

    def __init__(self, connection: Connection, partitioning: BulkPartitions, table: Table) -> None:
        self.connection, self.partitioning, self._table = connection, partitioning, table

    def execute(self, statement: str, **values: Any) -> CursorResult[Any]:
        """As `BulkPartitions.execute`. Raises DuplicateMessageError for rows that a primary key refuses."""
        try:
            return self.partitioning.execute(self.connection, statement, self._table, **values)
        except DBAPIError as error:
            dialect = self.partitioning.dialect
            duplicates = dialect.duplicates_in(error) if dialect.fault(error) is Fault.DUPLICATE else ()
            if duplicates:
                raise DuplicateMessageError(duplicates) from None
            raise

    @property
    def is_staging(self) -> bool:
        """Whether it is the staging of a load, which becomes a partition under another name."""
        return is_load_table(self._table.name, self.partitioning.live.name, self.partitioning.dialect)

    def is_announced(self) -> bool:
        """Whether inserts search it; False also where it is gone."""
        return self._is_child_of(self.partitioning.parent)

    def is_attached(self) -> bool:
        """Whether its messages wait; False also where it is gone."""
        return self._is_child_of(self.partitioning.live)

    def _is_child_of(self, parent: Table) -> bool:
        return bool(self.execute(_INHERITS, parent=quoted_name(parent, self.connection.dialect)).scalar())

    def unless_locked(
        self, action: Callable[[], object], *, lock_wait: float = SHORT_WAIT, timeout: float = 0.0
    ) -> bool:
        """Do `action`; False: it is undone, for it had to wait longer than `lock_wait` for a lock, again and again."""
        deadline = time.monotonic() + timeout
        while not self._is_done(action, lock_wait):
            if time.monotonic() >= deadline:
                return False
            pause(_PAUSE)
        return True

    def _is_done(self, action: Callable[[], object], lock_wait: float) -> bool:
        try:
            with self.partitioning.dialect.brief_wait(self.connection, lock_wait, exactly=True):
                action()
        except DBAPIError as error:
            if self.partitioning.dialect.fault(error) is not Fault.LOCKED:
                raise
            return False
        return True


class PartitionCleanup:
    """The remains of a partition: of one that was attached, or of one that never will be."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table

    def drop_if_empty(self) -> None:
        """Drop an attached one that is empty, unless others have it locked."""
        if self._is_empty():
            self._drop_if(self._is_empty)

    def drop_unattached(self) -> None:
        """Remove one as `remove_unattached`, once its maker has it no more; where that cannot be, free its message_ids.

        The rows of a staging stay: its load may still insert them.
        """
        if not self.remove_unattached() and not self._table.is_staging:
            self._table.unless_locked(self._free)

    def remove_unattached(self) -> bool:
        """Drop one that is not attached; the staging of a load stays, and is no longer announced.

        False: another session has it locked, or only its owner may drop it.
        """
        way = "ALTER TABLE {partition} NO INHERIT {partitions}" if self._table.is_staging else "DROP TABLE {partition}"
        return self._drop_if(lambda: not self._table.is_attached(), way)

    def _drop_if(self, condition: Callable[[], bool], way: str = "DROP TABLE {partition}") -> bool:
        """False: another session has it locked, or only its owner may drop it."""

        def drop() -> None:
            """No other session has it now: the result stays true."""
            self._table.execute("LOCK TABLE ONLY {partition} IN ACCESS EXCLUSIVE MODE")
            if condition():
                self._table.execute(way)

        try:
            return self._table.unless_locked(drop)
        except DBAPIError as error:
            if self._table.partitioning.dialect.fault(error) is not Fault.PERMISSION:
                raise
            return False

    def _free(self) -> None:
        """No session can attach a partition that we have locked."""
        self._table.execute("LOCK TABLE ONLY {partition} IN ROW EXCLUSIVE MODE")
        if not self._table.is_attached():
            self._table.execute("DELETE FROM ONLY {partition}")

    def _is_empty(self) -> bool:
        """Whether no message waits in it; removed rows lie at the beginning of the index, so search from its end."""
        self._table.partitioning.dialect.prefer_indexes(self._table.connection)
        last = "SELECT message_id FROM ONLY {partition} ORDER BY next_attempt DESC, message_id DESC LIMIT 1"
        return self._table.execute(last).first() is None


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """When rows that are stored at once get a partition."""

    fewest_rows: int = 20_000
    """With few partitions. Each sixth of `most_partitions` doubles it, so that places are left for more."""
    smallest_table: int = 256 * 2**20
    """Bytes; into a smaller table rows are inserted as fast, unless there are many."""
    many_rows: int = 100_000
    """Rows that get a partition beside a table of any size."""
    most_partitions: int = 24
    """Each costs every search a look."""
    timeout: float = 2.0
    """Seconds to wait for other transactions; then the rows are inserted, as without a partition."""


log = logging.getLogger("delaystore.stores")
_STEPS: Final = 6
"""How often the rows that are worth a partition double until `most_partitions` are there."""
_CONDITIONS: Final = (
    ("(pg_relation_size(live.oid) >= :smallest OR :rows >= :many)", "its rows are few"),
    ("there.partitions < :most", "there are as many as may be"),
    (
        "live.relowner = partitions.relowner AND pg_has_role(live.relowner, 'USAGE') AND pg_has_role(live.relowner, "
        "CASE WHEN CAST(current_setting('server_version_num') AS INTEGER) < 160000 THEN 'MEMBER' ELSE 'SET' END)",
        "this role has not the rights of its owner",
    ),
    (
        "n.nspname = COALESCE(CAST(:schema AS TEXT), current_schema()) AND has_schema_privilege(n.oid, 'CREATE') "
        "AND has_schema_privilege(live.relowner, n.oid, 'CREATE')",
        "this role, or its owner, may not create tables in its schema",
    ),
    ("NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = live.oid)", "it has triggers, which would not fire"),
    (
        "NOT EXISTS (SELECT FROM pg_publication_tables p "
        "WHERE p.schemaname = n.nspname AND p.tablename = live.relname)",
        "it is published to subscribers, which would not get one",
    ),
)
"""Conditions of a partition, and why there is none where one does not hold."""
_WORTH: Final = (
    "SELECT CAST(:fewest * power(2, there.partitions * :steps / :most) AS BIGINT), "  # noqa: S608 - all written here
    + ", ".join(condition for condition, _ in _CONDITIONS)
    + " FROM pg_class live JOIN pg_namespace n ON n.oid = live.relnamespace, pg_class partitions, "
    "(SELECT count(*) AS partitions FROM pg_inherits WHERE inhparent = CAST(:partitions AS REGCLASS)) there "
    "WHERE live.oid = CAST(:live AS REGCLASS) AND partitions.oid = CAST(:partitions AS REGCLASS)"
)


def fewest_rows(connection: Connection, partitioning: BulkPartitions, limits: PartitionLimits, rows: int) -> int | None:
    """The fewest rows that are worth a partition now; None: none are, or our role may make none.

    `rows`: how many are to be stored; 0: that is unknown.
    """
    live = partitioning.live
    row: Sequence[Any] = partitioning.execute(
        connection,
        _WORTH,
        schema=live.schema,  # a partition lies where its table does
        fewest=limits.fewest_rows,
        smallest=limits.smallest_table,
        rows=rows,
        many=limits.many_rows,
        most=limits.most_partitions,
        steps=_STEPS,
    ).one()
    fewest: int = row[0]
    reasons = (reason for is_met, (_, reason) in zip(row[1:], _CONDITIONS, strict=True) if not is_met)
    reason = next(reasons, None)
    if reason is None:
        return fewest
    log.info("%s gets no partition: %s", live.fullname, reason)
    return None
