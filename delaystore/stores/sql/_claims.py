"""How fetched messages are kept from other dispatchers: row locks, or leases."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row
from typing_extensions import override

from delaystore.message import Position
from delaystore.stores.sql._fitting import fitting
from delaystore.stores.sql._statements import Statements, search
from delaystore.stores.sql._unreadable import time_or_earliest
from delaystore.stores.sql.rows import position_of_row

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
    def claim(self, at: datetime, limit: int, most_bytes: int, after: Position | None) -> Rows:
        """Claim up to `limit` rows whose next attempt is at or before `at`, behind `after`; in their order.

        Their bodies have at most `most_bytes` together, unless the first alone has more.
        """

    def remove(self, ids: Sequence[str]) -> int:
        """Remove the rows of `ids`, where their claim is this claimer's; returns how many."""
        return self._connection.execute(self._sql.remove_many, {"ids": ids, **self.identity()}).rowcount

    def identity(self) -> dict[str, Any]:
        """The parameters that tell removes and increments whose claim it is; row locks need none."""
        return {}

    def written(self) -> None:  # noqa: B027 - most need not know
        """Note that the transaction has written something other than claims."""

    def first_end(self) -> datetime | None:
        """When the first claimed message anywhere shows again by itself; None: none does."""
        return None

    def release(self) -> None:  # noqa: B027 - row locks have none left
        """End the claims that the end of the transaction has not ended."""


class RowLocks(Claims):
    """One locking search: PostgreSQL locks what it finds, and nothing beside it.

    What `most_bytes` leaves out of a batch stays locked with it. The next batch is smaller, as sizes are known by then.
    `begin`: what the transaction needs before its first search; None: it is somebody else's, and stays as it is.
    """

    def __init__(
        self,
        connection: Callable[[], Connection],
        sql: Statements,
        *,
        begin: Callable[[Connection], None] | None,
    ) -> None:
        super().__init__(connection, sql)
        self._begin = begin
        self._claimed: dict[str, str] = {}
        """Which message_id lies where, by location: a location has but one."""

    @override
    def claim(self, at: datetime, limit: int, most_bytes: int, after: Position | None) -> Rows:
        """Notes where the rows lie."""
        if self._begin is not None:
            self._begin(self._connection)
            self._begin = None
        statement, position = search(self._sql.due, self._sql.due_behind, after)
        values = {"at": at, "limit": limit, "most_bytes": most_bytes, **position}
        rows = self._connection.execute(statement, values).all()
        self._claimed.update((row[-1], row[0]) for row in rows)  # by number, which is faster than by name
        return rows

    @override
    def remove(self, ids: Sequence[str]) -> int:
        """By location; by id what was not claimed here, lies elsewhere since it was changed, or is no longer locked."""
        wanted = set(ids)
        locations = [location for location, message_id in self._claimed.items() if message_id in wanted]
        for location in locations:
            del self._claimed[location]
        count = self._connection.execute(self._sql.remove_located, {"locations": locations}).rowcount
        return count if count == len(ids) else count + super().remove(ids)


class CandidateLocks(Claims):
    """A search without locks, then locks by primary key.

    A locking search in MariaDB and MySQL also locks the entry behind the last one it returns: nobody could cancel
    that message, which is not even due, until the batch is done.
    """

    @override
    def claim(self, at: datetime, limit: int, most_bytes: int, after: Position | None) -> Rows:
        """Search behind candidates that others have locked, until there are enough or no more."""
        claimed: list[Row[*tuple[Any, ...]]] = []
        while len(claimed) < limit:
            wanted = limit - len(claimed)
            statement, position = search(self._sql.candidates, self._sql.candidates_behind, after)
            candidates = self._connection.execute(statement, {"at": at, "limit": wanted, **position}).all()
            chosen = fitting(candidates, most_bytes, at_least_one=not claimed)
            if not chosen:
                break
            values = {"at": at, "ids": [row.message_id for row in chosen]}
            locked = self._connection.execute(self._sql.lock_candidates, values).all()
            claimed += locked
            most_bytes -= sum(len(row.body) for row in locked)
            if len(candidates) < wanted and len(chosen) == len(candidates):
                break
            if len(locked) == len(chosen) < len(candidates):
                break
            after = position_of_row(chosen[-1])
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
    def claim(self, at: datetime, limit: int, most_bytes: int, after: Position | None) -> Rows:
        """Search and write the lease in one statement."""
        now = self._now()
        values = {"at": at, "limit": limit, "most_bytes": most_bytes, "now": now}
        values |= {"token": self._token, "lease_end": now + self._lease}
        statement, position = search(self._sql.claim_due, self._sql.claim_due_behind, after)
        rows = self._connection.execute(statement, values | position).all()
        if self._committing:
            self._connection.commit()
        return sorted(rows, key=position_of_row)

    @override
    def identity(self) -> dict[str, Any]:
        return {"token": self._token}

    @override
    def written(self) -> None:
        """Later claims stay in the transaction."""
        self._committing = False

    @override
    def first_end(self) -> datetime | None:
        end = self._connection.execute(self._sql.first_lease_end).scalar()
        return None if end is None else time_or_earliest(end)

    @override
    def release(self) -> None:
        """End the token's leases, in a transaction of its own."""
        self._connection.execute(self._sql.release, {"token": self._token})
        self._connection.commit()
