"""Bulk partitions: tables that inherit from the endpoint's, filled, indexed, then attached (PostgreSQL)."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Any, Final

from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from delaystore.errors import NAMED_DUPLICATES, DuplicateMessageError, MessageBeingStoredError, StoreUnavailableError
from delaystore.stores.sql.bulk_partitions._tables import (
    SENDS_NOTHING,
    SHORT_WAIT,
    BulkPartitions,
    PartitionCleanup,
    PartitionLimits,
    PartitionTable,
    await_older_transactions,
    fewest_rows,
)
from delaystore.stores.sql.codec import ATTEMPT, LOAD, NAMES, WITH_NOT_AFTER, in_order
from delaystore.stores.sql.engine import Connections
from delaystore.stores.sql.faults import Fault, execute_as_it_stands, quoted_column, quoted_name
from delaystore.stores.sql.schema import delayed_table
from delaystore.stores.sql.urls import TOKEN_LENGTH, partition_name

log = logging.getLogger("delaystore.stores")
_TURN: Final = (
    "SELECT pg_advisory_xact_lock(hashtextextended('delaystore: attaches a shelf', "
    "CAST(CAST(CAST(:live AS REGCLASS) AS OID) AS BIGINT)))"
)
"""By number: others may name the schema, or not."""
_ARE_FEW: Final = (
    "WITH RECURSIVE family (oid) AS (SELECT CAST(CAST(:{others} AS REGCLASS) AS OID) "
    "UNION SELECT i.inhrelid FROM pg_inherits i JOIN family ON i.inhparent = family.oid) "
    "SELECT COALESCE(sum(pg_relation_size(oid)), 0) <= 4 * pg_relation_size(CAST(:partition AS REGCLASS)) "
    "FROM family WHERE oid <> CAST(:partition AS REGCLASS)"
)
"""Whether it is faster to read all other messages than to search each id of the partition among them, by sizes."""
_WITHOUT_STATISTICS: Final = "SELECT " + ", ".join(
    f"set_config('enable_{way}', 'off', true)" for way in ("mergejoin", "nestloop")
)
_SORTED_IN_MEMORY: Final = (
    "SELECT set_config('jit', 'off', true), "
    "set_config('work_mem', GREATEST(pg_size_bytes(current_setting('work_mem')), 67108864) / 1024 || 'kB', true)"
)
"""For a million ids."""
_VACUUMED_LATELY: Final = (
    "SELECT COALESCE(GREATEST(last_vacuum, last_autovacuum) > now() - INTERVAL '1 hour', FALSE) "
    "FROM pg_stat_all_tables WHERE relid = CAST(:live AS REGCLASS)"
)
_IS_NEW: Final = (
    "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = CAST(:live AS REGCLASS) "
    "AND attname = 'load_number' AND NOT attisdropped)"
)
"""Whether the tables have the columns of schema version 0006."""
_IS_A_PLACE_FREE: Final = (
    "SELECT count(*) < :most FROM pg_inherits a JOIN pg_inherits s ON s.inhrelid = a.inhrelid "
    "WHERE a.inhparent = CAST(:live AS REGCLASS) AND s.inhparent = CAST(:partitions AS REGCLASS)"
)


class PendingPartition:
    """A partition that has been announced, and is not attached yet.

    `stays`: it may be attached, as all inserts search it by now.
    """

    def __init__(
        self,
        partitioning: BulkPartitions,
        table: Table,
        name: str,
        connection: Connection,
        rows: int,
        limits: PartitionLimits,
        *,
        stays: bool,
    ) -> None:
        self._partitioning, self._table, self._limits, self._stays = partitioning, table, limits, stays
        self._name = name  # that it has once it is attached
        self.connection = connection
        """The one on which it was filled; in no transaction."""
        self.rows = rows
        """How many messages are in it."""

    def move_in(self, connection: Connection, before: Callable[[], object] | None = None) -> None:
        """Let its messages wait from the commit of the transaction on: attach it, or else insert its rows.

        `before`: what else belongs to the transaction and may wait for others, done while no sender waits for it yet.

        Raises DuplicateMessageError for message_ids that wait already, MessageBeingStoredError for ids that may in a
        moment, StoreUnavailableError if the partition was taken for one whose maker has died.
        """
        table = PartitionTable(connection, self._partitioning, self._table)
        table.execute("SET LOCAL statement_timeout = 0")  # made for other work than one statement about all rows
        # One partition is compared and attached at a time. Two that are compared at once would not see each other's
        # rows, and one message_id could wait twice.
        table.execute(_TURN)
        self._secure(table)
        # The lock that attaching needs is taken first; see `_may_attach`. A message that is stored after the comparison
        # below finds the announced partition, and is refused.
        stays = self._stays and self._may_attach(table)
        duplicates = _shared(table, "live")
        if duplicates:
            raise DuplicateMessageError(duplicates)
        if before is not None:
            try:
                before()
            except MessageBeingStoredError as error:
                if _has(table, error.message_id):
                    raise DuplicateMessageError([error.message_id]) from None
                raise
        if stays and self._attach(table):
            return
        if self._stays:
            log.info("%d messages get no partition: all places are taken, or others have the tables locked", self.rows)
        _insert(table)

    def _secure(self, table: PartitionTable) -> None:
        """Let no session change it any more; if its rows are not all there, one has.

        So a pooler that gives a session to several clients can have it: our lock is theirs then, too. Senders do not
        wait behind this lock. An autovacuum ends for it after a second.
        """

        def lock() -> None:
            table.execute("LOCK TABLE ONLY {partition} IN SHARE MODE")

        try:
            is_locked = table.unless_locked(lock, lock_wait=self._limits.timeout)
        except DBAPIError as error:
            if table.partitioning.dialect.fault(error) is not Fault.MISSING:
                raise
            is_locked = False
        rows = table.execute("SELECT count(*) FROM ONLY {partition}").scalar_one() if is_locked else 0
        if rows != self.rows:
            raise StoreUnavailableError(
                f"{rows} of {self.rows} messages can be read in a new bulk partition; store them again"
            )

    def _may_attach(self, table: PartitionTable) -> bool:
        """False: as many are attached as may be, or others have the endpoint's table locked for too long.

        It is locked before anything is read from it: a REINDEX CONCURRENTLY has that lock, and waits for all readers.

        An autovacuum of the endpoint's table ends for a session that waits for a second. So that it ends at all, it
        need not if none has ended for an hour.
        """

        def lock() -> None:
            table.execute("LOCK TABLE ONLY {live} IN SHARE UPDATE EXCLUSIVE MODE")

        if not table.execute(_IS_A_PLACE_FREE, most=self._limits.most_partitions).scalar():
            return False
        timeout = self._limits.timeout
        lock_wait = timeout if table.execute(_VACUUMED_LATELY).scalar() else SHORT_WAIT
        return table.unless_locked(lock, lock_wait=lock_wait, timeout=timeout)

    def _attach(self, table: PartitionTable) -> bool:
        """False: others have it locked for too long."""

        def inherit() -> None:
            """All senders wait from here until the commit."""
            table.execute("ALTER TABLE {partition} INHERIT {live}")
            if table.is_staging:
                table.execute(f"ALTER TABLE {{partition}} DROP {ATTEMPT}, ALTER load_number DROP DEFAULT")
                dialect = table.connection.dialect
                names = f"{quoted_name(self._table, dialect)} RENAME TO {quoted_column(self._name, dialect)}"
                execute_as_it_stands(table.connection, f"ALTER TABLE {names}")

        return table.unless_locked(inherit, timeout=self._limits.timeout)


def _has(table: PartitionTable, message_id: str) -> bool:
    """Whether the partition itself has a message of that id, and no other transaction."""
    return table.execute("SELECT FROM ONLY {partition} WHERE message_id = :id", id=message_id).first() is not None


def _insert(table: PartitionTable) -> None:
    """The partition is dropped later: no session may wait for that, or be waited for."""
    announced = _shared(table, "partitions", "w.tableoid <> CAST(:partition AS REGCLASS)")
    if announced:
        raise MessageBeingStoredError(announced[0])
    columns = (*WITH_NOT_AFTER, LOAD) if table.execute(_IS_NEW).scalar() else NAMES
    names = ", ".join(columns)  # what others have added to the table may be computed
    table.execute(f"INSERT INTO {{live}} ({names}) SELECT {names} FROM ONLY {{partition}} ORDER BY message_id")  # noqa: S608
    table.execute("DELETE FROM ONLY {partition}")


def _shared(table: PartitionTable, others: str, condition: str = "TRUE") -> Sequence[str]:
    """Some of the message_ids that `others`, live or partitions, have too; in a way that no statistics decide."""
    if table.execute(_ARE_FEW.format(others=others)).scalar():
        table.execute(_WITHOUT_STATISTICS)
        search = f"JOIN {{{others}}} w ON w.message_id = s.message_id AND {condition}"
        ids = "ONLY {partition}"
    else:
        # in their order, so that neighbours are on the same page of the other index
        table.execute(_SORTED_IN_MEMORY)
        ids = "(SELECT message_id FROM ONLY {partition} ORDER BY message_id OFFSET 0)"
        equal = f"SELECT FROM {{{others}}} w WHERE w.message_id = s.message_id AND {condition} LIMIT 1"
        search = f"CROSS JOIN LATERAL ({equal}) w"  # each by index
    return table.execute(f"SELECT s.message_id FROM {ids} s {search} LIMIT {NAMED_DUPLICATES}").scalars().all()  # noqa: S608 - names are quoted


Fill = Callable[[Connection, Table], int]
"""Inserts rows into a table without indexes; returns how many."""
_MAY_ADOPT: Final = (
    "SELECT relpersistence = 'p' AND NOT relhasindex AND NOT EXISTS (SELECT FROM pg_attribute a "
    "WHERE a.attrelid = CAST(:live AS REGCLASS) AND a.attnum > 0 AND NOT a.attisdropped AND NOT EXISTS ("
    "SELECT FROM pg_attribute s WHERE s.attrelid = c.oid AND s.attname = a.attname)) "
    "FROM pg_class c WHERE oid = CAST(:partition AS REGCLASS)"
)
"""Whether it was made so, has all columns still, and was not tried before."""
_PARTITIONS: Final = (
    "SELECT c.relname, EXISTS (SELECT FROM pg_inherits a "
    "WHERE a.inhrelid = c.oid AND a.inhparent = CAST(:live AS REGCLASS)) "
    "FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = CAST(:partitions AS REGCLASS)"
)
"""Their names, and whether each is attached."""
_OWNER: Final = (
    "SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class "
    "WHERE oid = CAST(:live AS REGCLASS) AND pg_get_userbyid(relowner) <> current_user"
)
_OTHERS: Final = (Fault.PERMISSION, Fault.MISSING, Fault.READ_ONLY)
"""The error that a partition is others' to drop, or dropped by others."""


class PartitionManager:
    """The partitions of one endpoint's table."""

    def __init__(self, partitioning: BulkPartitions, connections: Connections, limits: PartitionLimits) -> None:
        self._partitioning, self._connections = partitioning, connections
        self.limits = limits

    @property
    def parent(self) -> Table:
        """The table whose children are the partitions, those too that are not attached yet."""
        return self._partitioning.parent

    def fewest_rows(self, rows: int = 0) -> int | None:
        """The fewest rows that are worth a partition now; None: none are, or our role may make none.

        `rows`: how many are to be stored; 0: that is unknown.
        Cleans up first: who may make partitions may drop them, and dispatchers perhaps may not.
        """
        with suppress(SQLAlchemyError):
            self.clean_up()
        with self._connections.connect() as connection:
            return fewest_rows(connection, self._partitioning, self.limits, rows)

    def may_be_made(self, connection: Connection) -> bool:
        """Whether our role may make partitions of the table, if enough rows come."""
        return fewest_rows(connection, self._partitioning, self.limits, self.limits.many_rows) is not None

    def create_staging(self, connection: Connection, table: Table, load: int) -> None:
        """Make the table in which a load is staged, such that it can become a partition itself.

        `load`: the load's number, which its rows have. The transaction is the caller's.
        """
        staging = PartitionTable(connection, self._partitioning, table)
        staging.execute("CREATE TABLE {partition} (LIKE {live} INCLUDING ALL EXCLUDING INDEXES)")
        number = f"ALTER load_number SET DEFAULT {load}, ADD CHECK (load_number = {load})"
        staging.execute(f"ALTER TABLE {{partition}} ADD {ATTEMPT} BIGINT NOT NULL, {number}")

    def may_adopt(self, connection: Connection, table: Table) -> bool:
        """Whether `table`, in which a load is staged, can become a partition itself."""
        return bool(PartitionTable(connection, self._partitioning, table).execute(_MAY_ADOPT).scalar())

    @contextmanager
    def filled(
        self, fill: Fill, fewest: int, load: int | None = None, staging: Table | None = None
    ) -> Iterator[PendingPartition]:
        """A new partition, filled and announced; dropped after the block unless it was attached.

        With fewer rows than `fewest` it never is: its rows are inserted. `load`: the number of the load of all rows;
        None: they have none. Searches for other loads leave the partition out. `staging`: the table of
        `create_staging`, which becomes the partition; it stays unless it was attached.
        Raises DuplicateMessageError for a message_id that is in it twice, StoreUnavailableError for a staging that
        others have locked for too long.
        """
        partitioning, limits = self._partitioning, self.limits
        name = partition_name(partitioning.live.name, token_hex(TOKEN_LENGTH // 2), partitioning.dialect)
        table = self._named(name) if staging is None else staging
        try:
            # Our lock of the partition's name is held until it is attached or given up. If this process dies, the
            # session's end frees the lock, and the next clean-up drops the partition.
            with self._connections.connect() as connection, self._needing(connection, table):
                rows = self._fill(connection, table, fill, load)
                stays = rows >= fewest and await_older_transactions(connection, limits.timeout)
                if not stays:
                    others = f"it takes {fewest}" if rows < fewest else "other transactions take too long"
                    log.info("%d messages get no partition of %s: %s", rows, partitioning.live.fullname, others)
                yield PendingPartition(partitioning, table, name, connection, rows, limits, stays=stays)
        finally:
            with suppress(SQLAlchemyError):  # what is left now, is dropped by the next to clean up
                self._give_up(table)

    def clean_up(self) -> None:
        """Drop the partitions that are empty, and those whose maker has died before they were attached.

        One that others read stays for the next time.
        """
        with self._connections.connect() as connection:
            found: Sequence[Any] = self._partitioning.execute(connection, _PARTITIONS).all()
            connection.commit()
            for name, is_attached in found:
                try:
                    self._clean_up(connection, self._named(name), is_attached=is_attached)
                    connection.commit()
                except DBAPIError as error:
                    if self._partitioning.dialect.fault(error) not in _OTHERS:
                        raise
                    connection.rollback()

    def _clean_up(self, connection: Connection, table: Table, *, is_attached: bool) -> None:
        cleanup = PartitionCleanup(PartitionTable(connection, self._partitioning, table))
        if is_attached:
            cleanup.drop_if_empty()
            return
        with self._needing(connection, table) as is_abandoned:
            if is_abandoned:
                cleanup.drop_unattached()
                connection.commit()

    def _give_up(self, table: Table) -> None:
        """Drop our own, unless attached, with its lock in any session: a pooler may have left it in another one."""
        with self._connections.connect() as connection:
            partition = PartitionTable(connection, self._partitioning, table)
            if partition.is_announced() and not partition.is_attached():
                PartitionCleanup(partition).drop_unattached()
                connection.commit()

    def _close(self, staging: PartitionTable) -> None:
        """Let no task change the staging in our transaction: one that still writes has lost."""

        def lock() -> None:
            staging.execute("LOCK TABLE ONLY {partition} IN ACCESS EXCLUSIVE MODE")

        if not staging.unless_locked(lock, lock_wait=self.limits.timeout):
            raise StoreUnavailableError("another session has the table of a load's rows locked")

    def _named(self, name: str) -> Table:
        return delayed_table(name, self._partitioning.live.schema, self._partitioning.dialect)

    @contextmanager
    def _needing(self, connection: Connection, table: Table) -> Iterator[bool]:
        """Tell others, while the block lasts, that we need a partition that is not attached; False: others do."""
        release = self._partitioning.dialect.take_lock(connection, f"shelf {table.name}", "")
        try:
            connection.commit()
            yield release is not None
        finally:
            with suppress(SQLAlchemyError):  # then the connection is gone, and its locks are
                connection.rollback()
                if release is not None:
                    release()
                connection.commit()

    def _fill(self, connection: Connection, table: Table, fill: Fill, load: int | None) -> int:
        """One transaction: a partition is announced with all its rows and indexes, or is not there."""
        partition, dialect = PartitionTable(connection, self._partitioning, table), self._partitioning.dialect
        partition.execute(SENDS_NOTHING)
        partition.execute("SET LOCAL statement_timeout = 0")
        if partition.is_staging:
            self._close(partition)
        else:
            partition.execute("CREATE TABLE {partition} (LIKE {live} INCLUDING ALL EXCLUDING INDEXES)")
        name = quoted_name(table, connection.dialect)
        for option in dialect.storage_options():
            execute_as_it_stands(connection, option.format(table=name))
        if not partition.is_staging and partition.execute(_IS_NEW).scalar():
            of_load = "IS NULL" if load is None else f"= {load}"
            partition.execute(f"ALTER TABLE {{partition}} ADD CHECK (load_number {of_load})")
        rows = fill(connection, table)
        partition.execute("ALTER TABLE {partition} ADD PRIMARY KEY (message_id)")
        order = ", ".join(column.name for column in in_order(table))
        partition.execute(f"CREATE INDEX ON {{partition}} ({order})")
        partition.execute(f"CREATE INDEX ON {{partition}} ({order}) WHERE failure_count > 0")
        partition.execute("ANALYZE {partition}")
        owner = partition.execute(_OWNER).scalar()
        if owner is not None:  # our role is a member of that one
            execute_as_it_stands(connection, f"ALTER TABLE {name} OWNER TO {owner}")
        self._partitioning.bulk.grant_alike(connection, table, self._partitioning.live)
        partition.execute("ALTER TABLE {partition} INHERIT {partitions}")
        connection.commit()
        return rows
