"""Shelves that nobody needs any more."""

from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

from delaystore.sql.faults import Fault
from delaystore.stores.sql.shelves._table import ShelfTable


class Remains:
    """What is left of a shelf: of one that was attached, or of one that never will be."""

    def __init__(self, table: ShelfTable) -> None:
        self._table = table

    def drop_if_empty(self) -> None:
        """Drop an attached one that is empty, unless others have it locked."""
        if self._is_empty():
            self._drop_if(self._is_empty)

    def drop_unattached(self) -> None:
        """Drop one whose maker needs it no more; where that cannot be, free its message_ids. Attached ones stay."""
        if not self._drop_if(lambda: not self._table.is_attached()):
            self._table.unless_locked(self._free)

    def _drop_if(self, condition: Callable[[], bool]) -> bool:
        """False: somebody has it locked, or it is its owner's to drop."""

        def drop() -> None:
            """Nobody else has it now: what is found stays so."""
            self._table.execute("LOCK TABLE ONLY {shelf} IN ACCESS EXCLUSIVE MODE")
            if condition():
                self._table.execute("DROP TABLE {shelf}")

        try:
            return self._table.unless_locked(drop)
        except DBAPIError as error:
            if self._table.fault(error) is not Fault.PERMISSION:
                raise
            return False

    def _free(self) -> None:
        """Nobody can attach what we have locked."""
        self._table.execute("LOCK TABLE ONLY {shelf} IN ROW EXCLUSIVE MODE")
        if not self._table.is_attached():
            self._table.execute("DELETE FROM ONLY {shelf}")

    def _is_empty(self) -> bool:
        """Whether nothing waits in it; what was removed lies at the beginning of the index, so look from its end."""
        self._table.family.dialect.prefer_indexes(self._table.connection)
        last = "SELECT message_id FROM ONLY {shelf} ORDER BY next_attempt DESC, message_id DESC LIMIT 1"
        return self._table.execute(last).first() is None
