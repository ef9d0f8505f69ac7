"""Shelves: tables beside the endpoint's own, in which what was stored in bulk waits. PostgreSQL reads them as one.

Into a large table, rows in no order are inserted slowly: each changes another page of each index. A shelf is filled
first, and its indexes are built then.

No primary key holds for several tables. So an insert looks for its message_id in the shelves, and a shelf becomes one
in three steps. It is announced: from the next transaction on, every insert looks into it. All transactions that may
not have seen it are waited for. Then its message_ids are compared with those that wait, and it is attached to the
endpoint's table, in the transaction that stores the messages. Whatever dies before that leaves a shelf that nobody
reads messages from, and that the next one to tidy up drops.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final

from sqlalchemy import Connection, CursorResult, Table, TextClause, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from delaystore.errors import NAMED_DUPLICATES, DuplicateMessageError, StoreUnavailableError
from delaystore.sql.columns import in_order
from delaystore.sql.dialects import StoreDialect
from delaystore.sql.dialects.base import being_stored
from delaystore.sql.engine import Connections
from delaystore.sql.faults import Fault
from delaystore.sql.names import TOKEN_LENGTH, shelf_name
from delaystore.sql.quoting import execute_as_it_stands, quoted_name
from delaystore.stores.sql.schema import delayed_table, shelves_table

PATIENCE: Final = 2.0
"""Seconds to wait for other transactions; then the rows are inserted, as without a shelf."""
_LOCK_WAIT: Final = 0.05
"""Seconds for which others may have to wait behind our wait for a shelf."""
_PAUSE: Final = 0.1
"""Seconds between two such waits."""

Fill = Callable[[Connection, Table], int]
"""Inserts rows into a table without indexes; returns how many."""

_IS_WORTH: Final = text(
    "SELECT pg_relation_size(live.oid) >= :smallest "
    "AND pg_get_userbyid(live.relowner) = current_user AND pg_get_userbyid(shelves.relowner) = current_user "
    "AND has_schema_privilege(live.relnamespace, 'CREATE') "
    "AND live.relnamespace = "
    "(SELECT oid FROM pg_namespace WHERE nspname = COALESCE(CAST(:schema AS TEXT), current_schema())) "
    "AND (SELECT count(*) FROM pg_inherits WHERE inhparent = shelves.oid) < :most "
    "FROM pg_class live, pg_class shelves "
    "WHERE live.oid = CAST(:live AS REGCLASS) AND shelves.oid = CAST(:shelves AS REGCLASS)"
)
_FILLS: Final = "delaystore: fills a shelf"
"""A lock that all share who have it: it tells of a transaction that it does nothing else."""
_TELL_THAT_IT_FILLS: Final = text("SELECT pg_advisory_xact_lock_shared(hashtextextended(:fills, 0))")
_IN_FLIGHT: Final = text(
    "SELECT l.virtualtransaction FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
    "JOIN pg_database d ON d.oid = a.datid WHERE d.datname = current_database() AND a.usesysid IS NOT NULL "
    "AND l.locktype = 'virtualxid' AND l.granted AND l.pid <> pg_backend_pid() "
    "AND NOT EXISTS (SELECT FROM pg_locks f WHERE f.virtualtransaction = l.virtualtransaction "
    "AND f.locktype = 'advisory' AND f.objsubid = 1 AND f.database = d.oid "
    "AND (CAST(f.classid AS BIGINT) << 32) | CAST(f.objid AS BIGINT) = hashtextextended(:fills, 0)) "
    "UNION ALL SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
)
"""The transactions of the database, but for our own, autovacuum's, and those that only fill a shelf, as `fills` tells.

Such a shelf is compared with ours later, once it is announced itself.
"""
_SHELVES: Final = text(
    "SELECT c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = CAST(:shelves AS REGCLASS)"
)
_NUMBER: Final = text("SELECT CAST(CAST(CAST(:live AS REGCLASS) AS OID) AS TEXT)")
_IS_ATTACHED: Final = text(
    "SELECT EXISTS (SELECT FROM pg_inherits "
    "WHERE inhrelid = CAST(:shelf AS REGCLASS) AND inhparent = CAST(:live AS REGCLASS))"
)


@dataclass(frozen=True, slots=True)
class ShelfLimits:
    """When rows that are stored at once get a shelf."""

    fewest_rows: int = 20_000
    smallest_table: int = 256 * 2**20
    """Bytes; into a smaller table rows are inserted as fast."""
    most_shelves: int = 24
    """Each costs every search a look."""


class Shelf:
    """A shelf that has been announced, and is not attached yet."""

    def __init__(self, table: Table, shelves: "Shelves", connection: Connection, rows: int, *, is_seen: bool) -> None:
        self._table, self._shelves, self._is_seen = table, shelves, is_seen
        self.connection = connection
        """The one on which it was filled; in no transaction."""
        self.rows = rows
        """How many messages are in it."""

    def move_in(self, connection: Connection) -> None:
        """Let its messages wait from the commit of the transaction on: attach it, or else insert its rows.

        Raises DuplicateMessageError for message_ids that wait already.
        """
        self._shelves.lock(connection)  # of two with the same message_id, the second finds the first's
        duplicates = self._shared(connection, "{live} w")
        if duplicates:
            raise DuplicateMessageError(duplicates)
        if not self._is_seen or not self._attach(connection):
            self._insert(connection)

    def _insert(self, connection: Connection) -> None:
        """The shelf is dropped later: nobody may wait for that, or be waited for."""
        announced = self._shared(connection, "{shelves} w", "w.tableoid <> CAST(:shelf AS REGCLASS)")
        if announced:
            raise being_stored(announced[0])
        self._execute(connection, "INSERT INTO {live} SELECT * FROM ONLY {shelf} ORDER BY message_id")
        self._execute(connection, "DELETE FROM ONLY {shelf}")

    def _shared(self, connection: Connection, others: str, condition: str = "TRUE") -> Sequence[str]:
        """Some of the message_ids that `others` have too; searched in the order of both, never each with each."""
        names = self._names(connection)
        found = (
            "SELECT s.message_id FROM ONLY {shelf} s JOIN " + others + " ON w.message_id = s.message_id "  # noqa: S608 - names are quoted
            "WHERE w.message_id BETWEEN (SELECT min(message_id) FROM ONLY {shelf}) "
            f"AND (SELECT max(message_id) FROM ONLY {{shelf}}) AND {condition} LIMIT {NAMED_DUPLICATES}"
        )
        connection.exec_driver_sql("SET LOCAL enable_hashjoin = off")
        return connection.execute(_with_names(found, names), {"shelf": names["shelf"]}).scalars().all()

    def _attach(self, connection: Connection) -> bool:
        """False: others have it, or the endpoint's table, locked for too long.

        Nobody waits behind the first locks; an autovacuum gives way to them after a second. All senders wait from the
        last one until the commit, so the rows are counted before it.
        """

        def lock() -> None:
            self._execute(connection, "LOCK TABLE ONLY {live} IN SHARE UPDATE EXCLUSIVE MODE")
            self._execute(connection, "LOCK TABLE ONLY {shelf} IN SHARE MODE")

        def inherit() -> None:
            self._execute(connection, "ALTER TABLE {shelf} INHERIT {live}")

        if not self._shelves.unless_locked(connection, lock, lock_wait=PATIENCE):
            return False
        rows = self._execute(connection, "SELECT count(*) FROM ONLY {shelf}").scalar_one()
        if rows != self.rows:  # a pooler that gives a session to several clients makes our lock useless
            raise StoreUnavailableError(f"{rows} of {self.rows} messages are left in a shelf; store them again")
        return self._shelves.unless_locked(connection, inherit, patience=PATIENCE)

    def _names(self, connection: Connection) -> dict[str, str]:
        return self._shelves.names(connection) | {"shelf": quoted_name(self._table, connection.dialect)}

    def _execute(self, connection: Connection, statement: str) -> CursorResult[Any]:
        try:
            return connection.execute(_with_names(statement, self._names(connection)))
        except DBAPIError as error:
            self._shelves.raise_duplicates(error)
            raise


class Shelves:
    """The shelves of one endpoint's table."""

    def __init__(self, live: Table, dialect: StoreDialect, connections: Connections, limits: ShelfLimits) -> None:
        self._live, self.dialect, self._connections = live, dialect, connections
        self.limits = limits
        self.parent = shelves_table(live, dialect)
        """The table whose children are the shelves, those too that are not attached yet."""

    def are_worth_it(self) -> bool:
        """Whether `fewest_rows` rows are stored faster in a shelf, and our role may make one."""
        if not self.dialect.has_shelves:
            return False
        limits: dict[str, Any] = {"schema": self._live.schema}  # a shelf lies where its table does
        limits |= {"smallest": self.limits.smallest_table, "most": self.limits.most_shelves}
        with self._connections.connect() as connection:
            return bool(connection.execute(_IS_WORTH, self.names(connection) | limits).scalar())

    @contextmanager
    def filled(self, fill: Fill) -> Iterator[Shelf]:
        """A new shelf, filled and announced; dropped after the block unless it was attached.

        Raises DuplicateMessageError for a message_id that is in it twice.
        """
        table = self._named(shelf_name(self._live.name, token_hex(TOKEN_LENGTH // 2), self.dialect))
        try:
            with self._connections.connect() as connection, self._needing(connection, table) as is_mine:
                if not is_mine:
                    raise RuntimeError(f"the name {table.name!r} was drawn twice")
                rows = self._fill(connection, table, fill)
                yield Shelf(table, self, connection, rows, is_seen=_is_seen(connection))
        finally:
            with suppress(SQLAlchemyError):  # what is left now, is dropped by the next to tidy up
                self.tidy(given_up=table.name)

    def tidy(self, given_up: str | None = None) -> None:
        """Drop the shelves that are empty, and those whose maker has died or has `given_up` before they were attached.

        One that others read stays for the next time.
        """
        if not self.dialect.has_shelves:
            return
        with self._connections.connect() as connection:
            names = connection.execute(_SHELVES, self.names(connection)).scalars().all()
            connection.commit()
            for name in names:
                try:
                    self._drop_if_done(connection, self._named(name), is_given_up=name == given_up)
                except DBAPIError as error:
                    if self.dialect.fault(error) not in (Fault.PERMISSION, Fault.MISSING):
                        raise
                    connection.rollback()  # others' to drop, or dropped by others

    def names(self, connection: Connection) -> dict[str, str]:
        """The quoted names of the endpoint's table, `live`, and of the one whose children are the shelves."""
        return {
            "live": quoted_name(self._live, connection.dialect),
            "shelves": quoted_name(self.parent, connection.dialect),
        }

    def lock(self, connection: Connection) -> None:
        """Let no other transaction attach a shelf until this one has ended."""
        number = connection.execute(_NUMBER, {"live": self.names(connection)["live"]}).scalar_one()
        with self.dialect.setup_lock(connection, f"shelves of {number}"):  # others may name the schema, or not
            pass

    def unless_locked(
        self,
        connection: Connection,
        action: Callable[[], object],
        *,
        lock_wait: float = _LOCK_WAIT,
        patience: float = 0,
    ) -> bool:
        """Do `action`; False: it is undone, for it had to wait longer than `lock_wait` for a lock, again and again."""
        deadline = time.monotonic() + patience
        while True:
            try:
                with self.dialect.savepoint(connection):
                    limit = connection.exec_driver_sql("SHOW lock_timeout").scalar_one()
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{round(lock_wait * 1000)}ms'")
                    action()
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{limit}'")  # a commit that notifies waits
            except DBAPIError as error:
                if self.dialect.fault(error) is not Fault.LOCKED:
                    raise
            else:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE)

    def raise_duplicates(self, error: DBAPIError) -> None:
        """Raise DuplicateMessageError if that is what `error` means."""
        if self.dialect.fault(error) is Fault.DUPLICATE:
            raise DuplicateMessageError(self.dialect.duplicates_in(error)) from None

    def _named(self, name: str) -> Table:
        return delayed_table(name, self._live.schema, leases=False)

    @contextmanager
    def _needing(self, connection: Connection, table: Table) -> Iterator[bool]:
        """Tell others, while the block lasts, that we need a shelf that is not attached; False: others do."""
        release = self.dialect.take_lock(connection, f"shelf {table.name}", "")
        connection.commit()
        try:
            yield release is not None
        finally:
            with suppress(SQLAlchemyError):  # then the connection is gone, and its locks are
                connection.rollback()
                if release is not None:
                    release()
                connection.commit()

    def _fill(self, connection: Connection, table: Table, fill: Fill) -> int:
        """One transaction: a shelf is announced with all its rows and indexes, or is not there."""
        names = self.names(connection) | {"shelf": quoted_name(table, connection.dialect)}

        def execute(statement: str) -> None:
            connection.execute(_with_names(statement, names))

        execute("SET LOCAL statement_timeout = 0")
        connection.execute(_TELL_THAT_IT_FILLS, {"fills": _FILLS})
        execute("CREATE TABLE {shelf} (LIKE {live} INCLUDING ALL EXCLUDING INDEXES)")
        for option in self.dialect.storage_options():
            execute_as_it_stands(connection, option.format(table=names["shelf"]))
        self.dialect.grant_alike(connection, table, self._live)
        rows = fill(connection, table)
        try:
            execute("ALTER TABLE {shelf} ADD PRIMARY KEY (message_id)")
        except DBAPIError as error:
            self.raise_duplicates(error)
            raise
        order = ", ".join(column.name for column in in_order(table))
        execute(f"CREATE INDEX ON {{shelf}} ({order})")
        execute("ANALYZE {shelf}")
        execute("ALTER TABLE {shelf} INHERIT {shelves}")
        connection.commit()
        return rows

    def _drop_if_done(self, connection: Connection, table: Table, *, is_given_up: bool) -> None:
        remains = _Remains(self, connection, table)
        with self._needing(connection, table) as has_lock:
            is_mine = has_lock or is_given_up  # a pooler may have left our own lock in another session
            if remains.is_done_with(is_mine=is_mine) and not remains.drop(is_mine=is_mine):
                remains.free()
            connection.commit()


class _Remains:
    """A shelf that may be dropped: it is attached and empty, or not attached and nobody's."""

    def __init__(self, shelves: Shelves, connection: Connection, table: Table) -> None:
        self._shelves, self._connection = shelves, connection
        self._names = shelves.names(connection) | {"shelf": quoted_name(table, connection.dialect)}

    def is_done_with(self, *, is_mine: bool) -> bool:
        """Whether it may go. `is_mine`: nobody else needs it, should it not be attached."""
        return self._is_empty() if self._is_attached() else is_mine

    def drop(self, *, is_mine: bool) -> bool:
        """False: somebody has it locked, or it is its owner's to drop."""

        def drop_if_done() -> None:
            """Nobody else has it now: what is found stays so."""
            self._execute("LOCK TABLE ONLY {shelf} IN ACCESS EXCLUSIVE MODE")
            if self.is_done_with(is_mine=is_mine):
                self._execute("DROP TABLE {shelf}")

        try:
            return self._shelves.unless_locked(self._connection, drop_if_done)
        except DBAPIError as error:
            if self._shelves.dialect.fault(error) is not Fault.PERMISSION:
                raise
            return False

    def free(self) -> None:
        """Free the message_ids of one that is not attached, whoever looks at them."""

        def empty_unless_attached() -> None:
            """Nobody can attach what we have locked."""
            self._execute("LOCK TABLE ONLY {shelf} IN ROW EXCLUSIVE MODE")
            if not self._is_attached():
                self._execute("DELETE FROM ONLY {shelf}")

        self._shelves.unless_locked(self._connection, empty_unless_attached)

    def _is_attached(self) -> bool:
        return bool(self._connection.execute(_IS_ATTACHED, self._names).scalar())

    def _is_empty(self) -> bool:
        self._shelves.dialect.prefer_indexes(self._connection)
        first = "SELECT message_id FROM ONLY {shelf} ORDER BY next_attempt, message_id LIMIT 1"
        return self._execute(first).first() is None

    def _execute(self, statement: str) -> CursorResult[Any]:
        return self._connection.execute(_with_names(statement, self._names))


def _is_seen(connection: Connection) -> bool:
    """Whether all transactions that were in flight end within PATIENCE: the others see what is committed now."""
    deadline, pause = time.monotonic() + PATIENCE, 0.001
    waited_for = set(connection.execute(_IN_FLIGHT, {"fills": _FILLS}).scalars())
    connection.commit()
    while waited_for and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, _LOCK_WAIT)
        waited_for &= set(connection.execute(_IN_FLIGHT, {"fills": _FILLS}).scalars())
        connection.commit()
    return not waited_for


def _with_names(statement: str, names: Mapping[str, str]) -> TextClause:
    """`statement` with quoted names in place of those in braces; a colon in a name begins no parameter."""
    return text(statement.format(**{key: name.replace(":", r"\:") for key, name in names.items()}))
