"""How fetched messages are kept from other dispatchers: row locks, or leases."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row
from typing_extensions import override

from delaystore.message import Position, position_of
from delaystore.sql.dialects import store_dialect_of
from delaystore.stores.sql._statements import Statements, search

Rows = Sequence[Row[*tuple[Any, ...]]]


class Claims(ABC):
    """The claims made on one connection."""

    def __init__(self, connection: Callable[[], Connection], sql: Statements) -> None:
        self._connection_now = connection
        self._sql = sql

    @property
    def _connection(self) -> Connection:
        return self._connection_now()

    @abstractmethod
    def claim(self, at: datetime, limit: int, after: Position | None) -> Rows:
        """Claim up to `limit` rows whose next attempt is at or before `at`, behind `after`; in their order."""

    def identity(self) -> dict[str, Any]:
        """The parameters that tell removes and increments whose claim it is; row locks need none."""
        return {}

    def written(self) -> None:  # noqa: B027 - most need not know
        """Note that the transaction has written something other than claims."""

    def first_end(self) -> datetime | None:
        """When the first claim anywhere ends by itself; None: none does."""
        return None

    def release(self, message_ids: Collection[str]) -> None:  # noqa: B027 - row locks have none left
        """End claims that the end of the transaction has not ended."""


class RowLocks(Claims):
    """One locking search: PostgreSQL locks what it returns, and nothing beside it.

    `committing` False: in somebody else's transaction, which may say nothing for as long as it likes.
    """

    def __init__(self, connection: Callable[[], Connection], sql: Statements, *, committing: bool) -> None:
        super().__init__(connection, sql)
        self._committing = committing

    @override
    def claim(self, at: datetime, limit: int, after: Position | None) -> Rows:
        statement, position = search(self._sql.due, self._sql.due_behind, after)
        if self._committing:
            statement = store_dialect_of(self._connection).limit_idling(statement)
        return self._connection.execute(statement, {"at": at, "limit": limit, **position}).all()


class CandidateLocks(Claims):
    """A search without locks, then locks by primary key.

    A locking search in MariaDB and MySQL also locks the entry behind the last one it returns: nobody could cancel
    that message, which is not even due, until the batch is done.
    """

    @override
    def claim(self, at: datetime, limit: int, after: Position | None) -> Rows:
        """Search behind candidates that others have locked, until there are enough or no more."""
        claimed: list[Row[*tuple[Any, ...]]] = []
        while len(claimed) < limit:
            wanted = limit - len(claimed)
            statement, position = search(self._sql.candidates, self._sql.candidates_behind, after)
            candidates = self._connection.execute(statement, {"at": at, "limit": wanted, **position}).all()
            if candidates:
                values = {"at": at, "ids": [row.message_id for row in candidates]}
                claimed += self._connection.execute(self._sql.lock_candidates, values)
            if len(candidates) < wanted:
                break
            after = position_of(candidates[-1])
        return claimed


class Leases(Claims):
    """Claims written into the rows, for a database without row locks (SQLite).

    They are committed at once, so that no writer waits while a batch is being forwarded, unless the transaction has
    written before: the claim is then part of it, as it always is in somebody else's transaction (`committing` False).
    """

    def __init__(
        self,
        connection: Callable[[], Connection],
        sql: Statements,
        *,
        token: str,
        lease: timedelta,
        now: Callable[[], datetime],
        committing: bool,
    ) -> None:
        super().__init__(connection, sql)
        self._token, self._lease, self._now = token, lease, now
        self._committing = committing

    @staticmethod
    def new_token() -> str:
        """The name of a new claimer."""
        return str(uuid.uuid4())

    @override
    def claim(self, at: datetime, limit: int, after: Position | None) -> Rows:
        """Search and write the lease in one statement."""
        now = self._now()
        values = {"at": at, "limit": limit, "now": now, "token": self._token, "lease_end": now + self._lease}
        statement, position = search(self._sql.claim_due, self._sql.claim_due_behind, after)
        rows = self._connection.execute(statement, values | position).all()
        if self._committing:
            self._connection.commit()
        return sorted(rows, key=position_of)

    @override
    def identity(self) -> dict[str, Any]:
        return {"token": self._token}

    @override
    def written(self) -> None:
        """Later claims stay in the transaction."""
        self._committing = False

    @override
    def first_end(self) -> datetime | None:
        end: datetime | None = self._connection.execute(self._sql.first_lease_end).scalar()
        return end

    @override
    def release(self, message_ids: Collection[str]) -> None:
        """End leases, in a transaction of its own."""
        if message_ids:
            self._connection.execute(self._sql.release, {"token": self._token, "ids": list(message_ids)})
            self._connection.commit()
