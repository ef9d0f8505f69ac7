"""One shelf, on its way to be attached."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError

from delaystore.errors import NAMED_DUPLICATES, DuplicateMessageError, MessageBeingStoredError, StoreUnavailableError
from delaystore.sql.columns import NAMES
from delaystore.sql.faults import Fault
from delaystore.stores.sql.shelves._family import Family
from delaystore.stores.sql.shelves._table import SHORT_WAIT, ShelfTable
from delaystore.stores.sql.shelves.limits import ShelfLimits

log = logging.getLogger("delaystore.stores")

_TURN: Final = (
    "SELECT pg_advisory_xact_lock(hashtextextended('delaystore: attaches a shelf', "
    "CAST(CAST(CAST(:live AS REGCLASS) AS OID) AS BIGINT)))"
)
"""By number: others may name the schema, or not."""
_BY_INDEX: Final = "SELECT " + ", ".join(
    f"set_config('enable_{way}', 'off', true)" for way in ("hashjoin", "seqscan", "bitmapscan", "sort")
)
_VACUUMED_LATELY: Final = (
    "SELECT COALESCE(GREATEST(last_vacuum, last_autovacuum) > now() - INTERVAL '1 hour', FALSE) "
    "FROM pg_stat_all_tables WHERE relid = CAST(:live AS REGCLASS)"
)
_IS_A_PLACE_FREE: Final = (
    "SELECT count(*) < :most FROM pg_inherits a JOIN pg_inherits s ON s.inhrelid = a.inhrelid "
    "WHERE a.inhparent = CAST(:live AS REGCLASS) AND s.inhparent = CAST(:shelves AS REGCLASS)"
)


class Shelf:
    """A shelf that has been announced, and is not attached yet.

    `stays`: it may be attached, as all inserts look into it by now.
    """

    def __init__(
        self, family: Family, table: Table, connection: Connection, rows: int, limits: ShelfLimits, *, stays: bool
    ) -> None:
        self._family, self._table, self._limits, self._stays = family, table, limits, stays
        self.connection = connection
        """The one on which it was filled; in no transaction."""
        self.rows = rows
        """How many messages are in it."""

    def move_in(self, connection: Connection, before: Callable[[], object] | None = None) -> None:
        """Let its messages wait from the commit of the transaction on: attach it, or else insert its rows.

        `before`: what else belongs to the transaction and may wait for others, done while no sender waits for it yet.

        Raises DuplicateMessageError for message_ids that wait already, MessageBeingStoredError for those that may in a
        moment, StoreUnavailableError if the shelf was taken for one whose maker has died.
        """
        table = ShelfTable(connection, self._family, self._table)
        table.execute("SET LOCAL statement_timeout = 0")  # made for other work than one statement about all rows
        table.execute(_TURN)  # of two with the same message_id, the second finds the first's
        self._secure(table)
        stays = self._stays and self._may_attach(table)
        duplicates = _shared(table, "{live}")
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
            log.info("%d messages get no shelf: all places are taken, or others have the tables locked", self.rows)
        _insert(table)

    def _secure(self, table: ShelfTable) -> None:
        """Let nobody change it any more; if its rows are not all there, somebody has.

        So a pooler that gives a session to several clients can have it: our lock is theirs then, too. Senders do not
        wait behind this lock. An autovacuum gives way to it after a second.
        """

        def lock() -> None:
            table.execute("LOCK TABLE ONLY {shelf} IN SHARE MODE")

        try:
            is_locked = table.unless_locked(lock, lock_wait=self._limits.patience)
        except DBAPIError as error:
            if table.fault(error) is not Fault.MISSING:
                raise
            is_locked = False
        rows = table.execute("SELECT count(*) FROM ONLY {shelf}").scalar_one() if is_locked else 0
        if rows != self.rows:
            raise StoreUnavailableError(f"{rows} of {self.rows} messages are left in a shelf; store them again")

    def _may_attach(self, table: ShelfTable) -> bool:
        """False: as many are attached as may be, or others have the endpoint's table locked for too long.

        It is locked before anything is read from it: a REINDEX CONCURRENTLY has that lock, and waits for all readers.

        An autovacuum of the endpoint's table gives way to who waits for a second. So that it ends at all, it need not
        if none has ended for an hour.
        """

        def lock() -> None:
            table.execute("LOCK TABLE ONLY {live} IN SHARE UPDATE EXCLUSIVE MODE")

        if not table.execute(_IS_A_PLACE_FREE, most=self._limits.most_shelves).scalar():
            return False
        patience = self._limits.patience
        lock_wait = patience if table.execute(_VACUUMED_LATELY).scalar() else SHORT_WAIT
        return table.unless_locked(lock, lock_wait=lock_wait, patience=patience)

    def _attach(self, table: ShelfTable) -> bool:
        """False: others have it locked for too long."""

        def inherit() -> None:
            """All senders wait from here until the commit."""
            table.execute("ALTER TABLE {shelf} INHERIT {live}")

        return table.unless_locked(inherit, patience=self._limits.patience)


def _has(table: ShelfTable, message_id: str) -> bool:
    """Whether the shelf itself has a message of that id, and no other transaction."""
    return table.execute("SELECT FROM ONLY {shelf} WHERE message_id = :id", id=message_id).first() is not None


def _insert(table: ShelfTable) -> None:
    """The shelf is dropped later: nobody may wait for that, or be waited for."""
    announced = _shared(table, "{shelves}", "w.tableoid <> CAST(:shelf AS REGCLASS)")
    if announced:
        raise MessageBeingStoredError(announced[0])
    names = ", ".join(NAMES)  # what others have added to the table may be computed
    table.execute(f"INSERT INTO {{live}} ({names}) SELECT {names} FROM ONLY {{shelf}} ORDER BY message_id")  # noqa: S608
    table.execute("DELETE FROM ONLY {shelf}")


def _shared(table: ShelfTable, others: str, condition: str = "TRUE") -> Sequence[str]:
    """Some of the message_ids that `others` have too; searched by index, whatever statistics say."""
    table.execute(_BY_INDEX)
    found = (
        f"SELECT s.message_id FROM ONLY {{shelf}} s JOIN {others} w ON w.message_id = s.message_id "  # noqa: S608 - names are quoted
        "WHERE w.message_id BETWEEN (SELECT min(message_id) FROM ONLY {shelf}) "
        f"AND (SELECT max(message_id) FROM ONLY {{shelf}}) AND {condition} LIMIT {NAMED_DUPLICATES}"
    )
    return table.execute(found).scalars().all()
