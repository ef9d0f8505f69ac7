"""The shelves of one endpoint."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Any, Final

from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from delaystore.sql.columns import in_order
from delaystore.sql.dialects import StoreDialect
from delaystore.sql.engine import Connections
from delaystore.sql.faults import Fault
from delaystore.sql.names import TOKEN_LENGTH, shelf_name
from delaystore.sql.quoting import execute_as_it_stands, quoted_name
from delaystore.stores.sql.schema import delayed_table, shelves_table
from delaystore.stores.sql.shelves._family import Family
from delaystore.stores.sql.shelves._in_flight import SENDS_NOTHING, is_heeded
from delaystore.stores.sql.shelves._remains import Remains
from delaystore.stores.sql.shelves._table import ShelfTable
from delaystore.stores.sql.shelves._worth import fewest_rows
from delaystore.stores.sql.shelves.limits import ShelfLimits
from delaystore.stores.sql.shelves.shelf import Shelf

log = logging.getLogger("delaystore.stores")

Fill = Callable[[Connection, Table], int]
"""Inserts rows into a table without indexes; returns how many."""

_SHELVES: Final = (
    "SELECT c.relname, EXISTS (SELECT FROM pg_inherits a "
    "WHERE a.inhrelid = c.oid AND a.inhparent = CAST(:live AS REGCLASS)) "
    "FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = CAST(:shelves AS REGCLASS)"
)
"""Their names, and whether each is attached."""
_OWNER: Final = (
    "SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class "
    "WHERE oid = CAST(:live AS REGCLASS) AND pg_get_userbyid(relowner) <> current_user"
)
_OTHERS: Final = (Fault.PERMISSION, Fault.MISSING, Fault.READ_ONLY)
"""What says that a shelf is others' to drop, or dropped by others."""


class Shelves:
    """The shelves of one endpoint's table."""

    def __init__(self, live: Table, dialect: StoreDialect, connections: Connections, limits: ShelfLimits) -> None:
        self._family = Family(live, shelves_table(live, dialect), dialect)
        self._connections = connections
        self.limits = limits

    @property
    def parent(self) -> Table:
        """The table whose children are the shelves, those too that are not attached yet."""
        return self._family.parent

    def fewest_rows(self) -> int | None:
        """The fewest rows that are worth a shelf now; None: none are, or our role may make none.

        Tidies up first: who may make shelves may drop them, and dispatchers perhaps may not.
        """
        if not self._family.dialect.has_shelves:
            return None
        with suppress(SQLAlchemyError):
            self.tidy()
        with self._connections.connect() as connection:
            return fewest_rows(connection, self._family, self.limits)

    @contextmanager
    def filled(self, fill: Fill, fewest: int) -> Iterator[Shelf]:
        """A new shelf, filled and announced; dropped after the block unless it was attached.

        With fewer rows than `fewest` it never is: its rows are inserted.
        Raises DuplicateMessageError for a message_id that is in it twice.
        """
        family, limits = self._family, self.limits
        table = self._named(shelf_name(family.live.name, token_hex(TOKEN_LENGTH // 2), family.dialect))
        try:
            with self._connections.connect() as connection, self._needing(connection, table):
                rows = self._fill(connection, table, fill)
                stays = rows >= fewest and is_heeded(connection, limits.patience)
                if not stays:
                    others = f"it takes {fewest}" if rows < fewest else "other transactions take too long"
                    log.info("%d messages get no shelf of %s: %s", rows, family.live.fullname, others)
                yield Shelf(family, table, connection, rows, limits, stays=stays)
        finally:
            with suppress(SQLAlchemyError):  # what is left now, is dropped by the next to tidy up
                self._give_up(table)

    def tidy(self) -> None:
        """Drop the shelves that are empty, and those whose maker has died before they were attached.

        One that others read stays for the next time.
        """
        if not self._family.dialect.has_shelves:
            return
        with self._connections.connect() as connection:
            found: Sequence[Any] = self._family.execute(connection, _SHELVES).all()
            connection.commit()
            for name, is_attached in found:
                try:
                    self._tidy(connection, self._named(name), is_attached=is_attached)
                    connection.commit()
                except DBAPIError as error:
                    if self._family.dialect.fault(error) not in _OTHERS:
                        raise
                    connection.rollback()

    def _tidy(self, connection: Connection, table: Table, *, is_attached: bool) -> None:
        remains = Remains(ShelfTable(connection, self._family, table))
        if is_attached:
            remains.drop_if_empty()
            return
        with self._needing(connection, table) as is_abandoned:
            if is_abandoned:
                remains.drop_unattached()
                connection.commit()

    def _give_up(self, table: Table) -> None:
        """Drop our own, unless it is attached, whoever has its lock: a pooler may have left it in another session."""
        with self._connections.connect() as connection:
            shelf = ShelfTable(connection, self._family, table)
            if shelf.is_there() and not shelf.is_attached():
                Remains(shelf).drop_unattached()
                connection.commit()

    def _named(self, name: str) -> Table:
        return delayed_table(name, self._family.live.schema, leases=False)

    @contextmanager
    def _needing(self, connection: Connection, table: Table) -> Iterator[bool]:
        """Tell others, while the block lasts, that we need a shelf that is not attached; False: others do."""
        release = self._family.dialect.take_lock(connection, f"shelf {table.name}", "")
        try:
            connection.commit()
            yield release is not None
        finally:
            with suppress(SQLAlchemyError):  # then the connection is gone, and its locks are
                connection.rollback()
                if release is not None:
                    release()
                connection.commit()

    def _fill(self, connection: Connection, table: Table, fill: Fill) -> int:
        """One transaction: a shelf is announced with all its rows and indexes, or is not there."""
        shelf, dialect = ShelfTable(connection, self._family, table), self._family.dialect
        shelf.execute(SENDS_NOTHING)
        shelf.execute("SET LOCAL statement_timeout = 0")
        shelf.execute("CREATE TABLE {shelf} (LIKE {live} INCLUDING ALL EXCLUDING INDEXES)")
        name = quoted_name(table, connection.dialect)
        for option in dialect.storage_options():
            execute_as_it_stands(connection, option.format(table=name))
        rows = fill(connection, table)
        shelf.execute("ALTER TABLE {shelf} ADD PRIMARY KEY (message_id)")
        order = ", ".join(column.name for column in in_order(table))
        shelf.execute(f"CREATE INDEX ON {{shelf}} ({order})")
        shelf.execute(f"CREATE INDEX ON {{shelf}} ({order}) WHERE failure_count > 0")
        shelf.execute("ANALYZE {shelf}")
        owner = shelf.execute(_OWNER).scalar()
        if owner is not None:  # our role is a member of that one
            execute_as_it_stands(connection, f"ALTER TABLE {name} OWNER TO {owner}")
        dialect.grant_alike(connection, table, self._family.live)
        shelf.execute("ALTER TABLE {shelf} INHERIT {shelves}")
        connection.commit()
        return rows
