"""Taking messages from a queue table, so that no other reader gets them meanwhile."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, or_, select, update
from typing_extensions import override

from delaystore.sql.dialects import store_dialect_of
from delaystore.sql.engine import Connections
from delaystore.transports.sql_queue._connections import writing


class Claim(ABC):
    """Rows that no other reader gets, until `settle` or `give_back`."""

    rows: Sequence[Row[Any]]

    @abstractmethod
    def settle(self) -> None:
        """Delete the rows: they were consumed."""

    @abstractmethod
    def give_back(self) -> None:
        """Let other readers have the rows."""


class LockedRows(Claim):
    """Rows locked in a transaction of their own; a reader that dies gives them back at once."""

    def __init__(self, connections: Connections, table: Table, limit: int) -> None:
        self._table = table
        self._connection: Connection = connections.connect()
        try:
            query = select(table).order_by(table.c.seq).limit(limit).with_for_update(skip_locked=True)
            self.rows = self._connection.execute(query).all()
        except BaseException:
            self._connection.close()
            raise

    @override
    def settle(self) -> None:
        with self._connection:
            if self.rows:
                numbers = [row.seq for row in self.rows]
                store_dialect_of(self._connection).delete_locked(self._connection, self._table, "seq", numbers)
            self._connection.commit()

    @override
    def give_back(self) -> None:
        self._connection.close()


class LeasedRows(Claim):
    """Rows marked in a short transaction, for databases without row locks.

    Writers are not locked out while the rows are read. When the lease ends, others may have the rows: of a reader that
    died, and of one that takes longer, whose messages may then be read twice.
    """

    def __init__(self, connections: Connections, table: Table, limit: int, lease: timedelta) -> None:
        self._connections = connections
        self._table = table
        self._reader = str(uuid4())
        self.rows = self._mark(limit, lease) if self._any_free() else []

    @override
    def settle(self) -> None:
        """Delete the rows that are still ours."""
        if self.rows:
            with writing(self._connections) as connection:
                connection.execute(delete(self._table).where(self._ours()))

    @override
    def give_back(self) -> None:
        if self.rows:
            with writing(self._connections) as connection:
                nobody = {"claimed_by": None, "claimed_until": None}
                connection.execute(update(self._table).where(self._ours()).values(nobody))

    def _any_free(self) -> bool:
        """Whether there is a free row, asked without the write lock, so that waiting readers do not delay writers."""
        with self._connections.connect() as connection:
            return connection.execute(select(self._table.c.seq).where(self._free()).limit(1)).first() is not None

    def _mark(self, limit: int, lease: timedelta) -> Sequence[Row[Any]]:
        seq = self._table.c.seq
        oldest = select(seq).where(self._free()).order_by(seq).limit(limit)
        marks = {"claimed_by": self._reader, "claimed_until": datetime.now(UTC) + lease}
        with writing(self._connections) as connection:
            statement = update(self._table).where(seq.in_(oldest)).values(marks).returning(self._table)
            return sorted(connection.execute(statement).all(), key=lambda row: row.seq)

    def _free(self) -> ColumnElement[bool]:
        until = self._table.c.claimed_until
        return or_(until.is_(None), until <= datetime.now(UTC))

    def _ours(self) -> ColumnElement[bool]:
        seq = self._table.c.seq
        return seq.between(self.rows[0].seq, self.rows[-1].seq) & (self._table.c.claimed_by == self._reader)
