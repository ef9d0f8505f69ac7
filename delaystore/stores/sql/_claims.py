"""How due messages are claimed: by row locks, by candidates and locks, or by leases."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Row
from typing_extensions import override

from delaystore.message import Position
from delaystore.stores.sql._history import NewEntries
from delaystore.stores.sql._statements import (
    CandidateStatements,
    LeaseStatements,
    RowLockStatements,
    Statements,
    fitting,
)
from delaystore.stores.sql.rows import position_of_row, time_or_earliest
from delaystore.stores.sql.setup import KnownVersion

Rows = Sequence[Row[*tuple[Any, ...]]]


class Claims(ABC):
    """The claims made on one connection, which `connection` returns: a caller's Session may get another one."""

    def __init__(self, connection: Callable[[], Connection], sql: Statements, version: KnownVersion) -> None:
        self._connection, self._sql, self._version = connection, sql, version

    @abstractmethod
    def claim(self, at: datetime, limit: int, most_bytes: int, after: Position | None) -> Rows:
        """Claim up to `limit` rows whose next attempt is at or before `at`, behind `after`; in their order.

        Their bodies have at most `most_bytes` together, unless the first alone has more.
        """

    def remove(self, ids: Sequence[str], entries: NewEntries | None = None) -> int:
        """Remove the rows of `ids`, where their claim is this claimer's; returns how many.

        `entries`: the entries that they get in the history; None: none.
        """
        values, sql, dialect = {"ids": ids, **self.identity()}, self._sql, self._sql.dialect
        where = [dialect.among(sql.table.c.message_id, "ids"), *sql.is_owned]
        return dialect.remove_with_entries(self._connection(), sql.remove_many, where, values, entries)

    def identity(self) -> dict[str, Any]:
        """The parameters that tell removes and increments whose claim it is; row locks need none."""
        return {}

    @property
    def is_alone_in_writing(self) -> bool:
        """Whether a first write would lock everybody out until the transaction ends."""
        return False

    def written(self) -> None:  # noqa: B027 - most need not know
        """Note that the transaction has written something other than claims."""

    def first_end(self) -> datetime | None:
        """When the first claimed message anywhere shows again on its own; None: none does."""
        return None

    def release(self) -> None:  # noqa: B027 - row locks have none left
        """End the claims that the end of the transaction has not ended."""


class RowLocks(Claims):
    """One locking search: PostgreSQL locks the rows that it finds, and nothing beside them.

    Rows that `most_bytes` leaves out of a batch stay locked with it. The next batch is smaller, as sizes are known
    by then. `committing` False: in a caller's transaction, whose settings stay as they are.
    """

    _sql: RowLockStatements

    def __init__(
        self, connection: Callable[[], Connection], sql: RowLockStatements, version: KnownVersion, *, committing: bool
    ) -> None:
        super().__init__(connection, sql, version)
        self._to_begin = committing
        self._claimed: dict[tuple[Any, str], str] = {}
        """Which message_id lies where, by partition and location: in one place there is but one."""

    @override
    def claim(self, at: datetime, limit: int, most_bytes: int, after: Position | None) -> Rows:
        """Notes where the rows lie."""
        if self._to_begin:
            self._sql.dialect.begin_claiming(self._connection())
            self._to_begin = False
        statement, position = self._sql.as_of(self._version, self._connection()).due.after(after)
        values = {"at": at, "limit": limit, "most_bytes": most_bytes, **position}
        rows = self._connection().execute(statement, values).all()
        # A locked row stays where it is until this transaction ends, so its location serves to remove it. An id would
        # be looked up in the index of the table and of each partition again.
        self._claimed.update(((row[-2], row[-1]), row[0]) for row in rows)  # by number, which is faster than by name
        return rows

    @override
    def remove(self, ids: Sequence[str], entries: NewEntries | None = None) -> int:
        """By location; by id if a row was not claimed here, lies elsewhere since it was changed, or is no longer
        locked.
        """
        taken = self._taken(set(ids))
        count = sum(self._remove_at(partition, locations, entries) for partition, locations in taken.items())
        return count if count == len(ids) else count + super().remove(ids, entries)

    def _taken(self, ids: Collection[str]) -> Mapping[Any, Sequence[str]]:
        """The locations of `ids` by partition; they are forgotten."""
        places = [place for place, message_id in self._claimed.items() if message_id in ids]
        by_partition: dict[Any, list[str]] = {}
        for partition, location in places:
            del self._claimed[partition, location]
            by_partition.setdefault(partition, []).append(location)
        return by_partition

    def _remove_at(self, partition: Any, locations: Sequence[str], entries: NewEntries | None) -> int:
        bulk, connection = self._sql.dialect.bulk, self._connection()
        if partition is not None and bulk is not None:
            return bulk.remove_partitioned(connection, partition, locations, entries)
        if entries is None:
            return connection.execute(self._sql.remove_located, {"locations": locations}).rowcount
        return connection.execute(self._sql.end_located, {"locations": locations, **entries.values}).rowcount


class CandidateLocks(Claims):
    """A search without locks, then locks by primary key.

    A locking search in MariaDB and MySQL also locks the entry behind the last one it returns: no session could cancel
    that message, which is not even due, until the batch is done.
    """

    _sql: CandidateStatements

    @override
    def claim(self, at: datetime, limit: int, most_bytes: int, after: Position | None) -> Rows:
        """Search behind candidates that others have locked, until there are enough or no more."""
        claimed: list[Row[*tuple[Any, ...]]] = []
        sql = self._sql.as_of(self._version, self._connection())
        while len(claimed) < limit:
            wanted = limit - len(claimed)
            statement, position = sql.candidates.after(after)
            candidates = self._connection().execute(statement, {"at": at, "limit": wanted, **position}).all()
            chosen = fitting(candidates, most_bytes, at_least_one=not claimed)
            if not chosen:
                break
            values = {"at": at, "ids": [row.message_id for row in chosen]}
            locked = self._connection().execute(sql.lock_candidates, values).all()
            claimed += locked
            most_bytes -= sum(len(row.body) for row in locked)
            if len(candidates) < wanted and len(chosen) == len(candidates):
                break  # there are no more due rows
            if len(locked) == len(chosen) < len(candidates):
                break  # the next one does not fit into `most_bytes`, and no row was lost to another dispatcher
            # Others have locked some of the rows. To search behind them, not from the beginning, keeps dispatchers that
            # work side by side from finding the same locked rows again and again.
            after = position_of_row(chosen[-1])
        return claimed


class Leases(Claims):
    """Claims written into the rows, for a database without row locks (SQLite).

    They are committed at once, so that no writer waits while a batch is being forwarded, unless the transaction has
    written before: the claim is then part of it, as it always is in a caller's transaction (`committing` False).
    """

    _sql: LeaseStatements

    def __init__(
        self,
        connection: Callable[[], Connection],
        sql: LeaseStatements,
        version: KnownVersion,
        *,
        token: str,
        lease: timedelta,
        now: Callable[[], datetime],
        committing: bool,
    ) -> None:
        super().__init__(connection, sql, version)
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
        statement, position = self._sql.as_of(self._version, self._connection()).claim_due.after(after)
        rows = self._connection().execute(statement, values | position).all()
        # If the process dies between this commit and the removal, the lease expires and the messages are sent again.
        # Without the commit, SQLite's only writer would be this transaction for as long as the broker takes.
        if self._committing:
            self._connection().commit()
        return sorted(rows, key=position_of_row)

    @override
    def identity(self) -> dict[str, Any]:
        return {"token": self._token}

    @property
    @override
    def is_alone_in_writing(self) -> bool:
        return self._committing

    @override
    def written(self) -> None:
        """Later claims stay in the transaction."""
        self._committing = False

    @override
    def first_end(self) -> datetime | None:
        end = self._connection().execute(self._sql.first_lease_end).scalar()
        return None if end is None else time_or_earliest(end)

    @override
    def release(self) -> None:
        """End the token's leases, in a transaction of its own."""
        self._connection().execute(self._sql.release, {"token": self._token})
        self._connection().commit()


SHARE: Final = 10
"""A search from the beginning may take at most one part in this number of the time."""
CHEAP: Final = 0.005
"""Seconds; after a search from the beginning that took no longer, the next one is allowed at once."""


class DueScan:
    """Decides, for all transactions of one store, where the next search starts.

    There is no lock, as a fork could leave it taken. If two threads write at once, one of them wins, and a search from
    the beginning may come a moment later.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._position: Position | None = None
        self._full_scan_from = 0.0

    def start(self) -> Position | None:
        """The position to start behind; None: search from the beginning."""
        return None if self._monotonic() >= self._full_scan_from else self._position

    def ended(self, started_at: Position | None, seconds: float, last: Position | None) -> None:
        """Note a search that began at `started_at`, took `seconds`, and whose last message was `last`."""
        if started_at is None:
            self._full_scan_from = self._monotonic() + SHARE * seconds if seconds > CHEAP else 0.0
            self._position = last
        elif last is not None:
            self._position = last

    def search_from_beginning(self, at: datetime | None = None) -> None:
        """Search from the beginning next time, if `at` (None: anything) lies before the position."""
        if at is None or self._position is None or at <= self._position.next_attempt:
            self._full_scan_from = 0.0

    def until_full_scan(self) -> timedelta:
        """How long until a search from the beginning is allowed; 0 when it is."""
        return timedelta(seconds=max(0.0, self._full_scan_from - self._monotonic()))
