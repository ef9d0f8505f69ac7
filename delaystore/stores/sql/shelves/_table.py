"""The table of one shelf, on one connection."""

import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection, CursorResult, Table
from sqlalchemy.exc import DBAPIError

from delaystore.bridge import pause
from delaystore.errors import DuplicateMessageError
from delaystore.sql.faults import Fault
from delaystore.stores.sql.shelves._family import Family

SHORT_WAIT: Final = 0.05
"""Seconds for which others may have to wait behind our wait for a lock."""
_PAUSE: Final = 0.1
"""Seconds between two such waits."""
_IS_ATTACHED: Final = (
    "SELECT EXISTS (SELECT FROM pg_inherits "
    "WHERE inhrelid = to_regclass(:shelf) AND inhparent = CAST(:live AS REGCLASS))"
)


class ShelfTable:
    """The table of a shelf: to be filled, announced, attached, or gone."""

    def __init__(self, connection: Connection, family: Family, table: Table) -> None:
        self.connection, self.family, self._table = connection, family, table

    def execute(self, statement: str, **values: Any) -> CursorResult[Any]:
        """As `Family.execute`. Raises DuplicateMessageError for what a primary key refuses."""
        try:
            return self.family.execute(self.connection, statement, self._table, **values)
        except DBAPIError as error:
            duplicates = self.family.dialect.duplicates_in(error) if self.fault(error) is Fault.DUPLICATE else ()
            if duplicates:
                raise DuplicateMessageError(duplicates) from None
            raise

    def is_there(self) -> bool:
        """Whether there is such a table."""
        return self.execute("SELECT to_regclass(:shelf)").scalar() is not None

    def is_attached(self) -> bool:
        """Whether its messages wait; False also where it is gone."""
        return bool(self.execute(_IS_ATTACHED).scalar())

    def fault(self, error: DBAPIError) -> Fault | None:
        """What kind of error it is; None: none that matters."""
        return self.family.dialect.fault(error)

    def unless_locked(
        self, action: Callable[[], object], *, lock_wait: float = SHORT_WAIT, patience: float = 0.0
    ) -> bool:
        """Do `action`; False: it is undone, for it had to wait longer than `lock_wait` for a lock, again and again."""
        deadline = time.monotonic() + patience
        while not self._is_done(action, lock_wait):
            if time.monotonic() >= deadline:
                return False
            pause(_PAUSE)
        return True

    def _is_done(self, action: Callable[[], object], lock_wait: float) -> bool:
        try:
            with self.family.dialect.brief_savepoint(self.connection, lock_wait):
                action()
        except DBAPIError as error:
            if self.fault(error) is not Fault.LOCKED:
                raise
            return False
        return True
