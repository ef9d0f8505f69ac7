"""How fetched messages are kept from other dispatchers: row locks, or leases."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row

from delaystore.stores.sql.scan import Mark
from delaystore.stores.sql.statements import Statements

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
    def claim(self, at: datetime, limit: int, mark: Mark | None) -> Rows:
        """Claim up to `limit` rows that want attention until `at`, behind `mark`; ordered by attention."""

    def identity(self) -> dict[str, Any]:
        """The parameters by which removes and increments know whose claim it is; row locks need none."""
        return {}

    def written(self) -> None:  # noqa: B027 - most need not know
        """The transaction has written something else."""

    def first_end(self) -> datetime | None:
        """When the first claim anywhere ends by itself; None: none does."""
        return None

    def release(self, message_ids: Collection[str]) -> None:  # noqa: B027 - row locks have none left
        """End claims that the end of the transaction has not ended."""


class RowLocks(Claims):
    """One locking search: PostgreSQL and SQL Server lock what they return, and nothing beside it."""

    def claim(self, at: datetime, limit: int, mark: Mark | None) -> Rows:
        """Search and lock in one statement."""
        values: dict[str, Any] = {"at": at, "limit": limit}
        if mark is None:
            return self._connection.execute(self._sql.due, values).all()
        return self._connection.execute(self._sql.due_behind, values | place_of(mark)).all()


class CandidateLocks(Claims):
    """A search without locks, then locks by primary key.

    A locking search in MariaDB and MySQL also locks the entry behind the last one it returns: nobody could cancel
    that message, which is not even due, until the batch is done.
    """

    def claim(self, at: datetime, limit: int, mark: Mark | None) -> Rows:
        """Go on behind candidates that others have locked, until there are enough or no more."""
        claimed: list[Row[*tuple[Any, ...]]] = []
        while len(claimed) < limit:
            wanted = limit - len(claimed)
            candidates = self._candidates(at, wanted, mark)
            if candidates:
                values = {"at": at, "ids": [row.message_id for row in candidates]}
                claimed += self._connection.execute(self._sql.lock_candidates, values)
            if len(candidates) < wanted:
                break
            mark = Mark(candidates[-1].next_attempt, candidates[-1].message_id)
        return claimed

    def _candidates(self, at: datetime, limit: int, mark: Mark | None) -> Rows:
        values: dict[str, Any] = {"at": at, "limit": limit}
        if mark is None:
            return self._connection.execute(self._sql.candidates, values).all()
        return self._connection.execute(self._sql.candidates_behind, values | place_of(mark)).all()


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
        """The name of a claimer."""
        return str(uuid.uuid4())

    def claim(self, at: datetime, limit: int, mark: Mark | None) -> Rows:
        """Search and write the lease in one statement."""
        now = self._now()
        values = {"at": at, "limit": limit, "now": now, "token": self._token, "lease_end": now + self._lease}
        if mark is None:
            rows = self._connection.execute(self._sql.claim_due, values).all()
        else:
            rows = self._connection.execute(self._sql.claim_due_behind, values | place_of(mark)).all()
        if self._committing:
            self._connection.commit()
        return sorted(rows, key=lambda row: (row.next_attempt, row.message_id))

    def identity(self) -> dict[str, Any]:
        """The claimer's name."""
        return {"token": self._token}

    def written(self) -> None:
        """Later claims stay in the transaction."""
        self._committing = False

    def first_end(self) -> datetime | None:
        """The first end of a lease."""
        end: datetime | None = self._connection.execute(self._sql.first_lease_end).scalar()
        return end

    def release(self, message_ids: Collection[str]) -> None:
        """End leases, in a transaction of its own."""
        if message_ids:
            self._connection.execute(self._sql.release, {"token": self._token, "ids": list(message_ids)})
            self._connection.commit()


def place_of(mark: Mark) -> dict[str, Any]:
    """The parameters of the dialect's `behind`."""
    return {"mark_time": mark.next_attempt, "mark_id": mark.message_id}
