"""A store bound to one connection, and so to one transaction."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, CursorResult, Executable, FromClause, Select
from sqlalchemy.exc import IntegrityError

from delaystore.errors import ConfigurationError, DuplicateMessageError
from delaystore.message import LATEST_DUE_TIME, DelayedMessage, check_destination, check_message_id, utc, waiting_until
from delaystore.settings import MAXIMUM_SLEEP, TransactionMode
from delaystore.stores.abc import ManagedDelayedMessageStore, ManagementOutcome, Page, PageKey
from delaystore.stores.sql.claims import CandidateLocks, Claims, Leases, RowLocks, place_of
from delaystore.stores.sql.clock import DatabaseClock
from delaystore.stores.sql.dialects import SqlDialect
from delaystore.stores.sql.dialects.base import Claiming
from delaystore.stores.sql.listener import payload_of
from delaystore.stores.sql.rows import to_message, to_row
from delaystore.stores.sql.scan import DueScan, Mark
from delaystore.stores.sql.statements import Statements
from delaystore.stores.sql.translation import translated_errors

NOTIFY_WITHIN: Final = MAXIMUM_SLEEP + timedelta(seconds=5)
"""Dispatchers look by themselves this often, and some for clocks that differ: what is due later needs no wake-up."""


@dataclass(frozen=True, slots=True)
class StoreParts:
    """What the connections of one store share."""

    dialect: SqlDialect
    statements: Statements
    scan: DueScan
    clock: DatabaseClock
    channel: str
    lease: timedelta

    def claims(self, connection: Callable[[], Connection], *, committing: bool, token: str | None = None) -> Claims:
        """The claims on what `connection` returns; `token` names the claimer where claims outlive their transaction."""
        if self.dialect.claiming is Claiming.ROW_LOCKS:
            return RowLocks(connection, self.statements)
        if self.dialect.claiming is Claiming.CANDIDATE_LOCKS:
            return CandidateLocks(connection, self.statements)
        return Leases(
            connection,
            self.statements,
            token=token or Leases.new_token(),
            lease=self.lease,
            now=self.clock.now,
            committing=committing,
        )


class BoundSqlStore(ManagedDelayedMessageStore):
    """The store's interface on one connection; commit and rollback are its owner's."""

    def __init__(self, parts: StoreParts, connection: Connection, claims: Claims) -> None:
        self._connection = connection
        self._claims = claims
        self._parts = parts
        self._sql = parts.statements
        self._fetched: set[str] = set()
        self._unsettled: set[str] = set()
        self._earliest: datetime | None = None

    @property
    def connection(self) -> Connection:
        """The connection in whose transaction everything happens; write to it what shall be committed with it."""
        return self._connection

    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        """A bound store has been initialized by the store it came from."""

    def now(self) -> datetime:
        """The database's clock."""
        return self._parts.clock.now()

    def store(self, message: DelayedMessage) -> None:
        """Insert; no error of the database's, so that the caller's transaction lives on after a duplicate."""
        self.written()
        with translated_errors():
            inserted = insert_message(self.connection, self._parts, message)
        if not inserted:
            raise DuplicateMessageError([message.message_id])
        self._wants_attention(message.attention_time)

    def store_many(self, messages: Iterable[DelayedMessage]) -> int:
        """Insert in bulk, all or none."""
        self.written()
        earliest = LATEST_DUE_TIME

        def rows() -> Iterator[dict[str, Any]]:
            nonlocal earliest
            for message in messages:
                row = to_row(message)
                if row["next_attempt"] < earliest:
                    earliest = row["next_attempt"]
                yield row

        dialect = self._parts.dialect
        with translated_errors(), dialect.savepoint(self.connection):
            count = dialect.insert_many(self.connection, self._sql.table, rows())
        if count:
            self._wants_attention(earliest)
        return count

    def fetch_next_due_timeout(self, at: datetime) -> DelayedMessage | None:
        """The first of `fetch_due`."""
        return next(iter(self.fetch_due(at, 1)), None)

    def fetch_due(self, at: datetime, limit: int) -> Sequence[DelayedMessage]:
        """Search from the mark of the last search, or from the beginning; see `scan`."""
        if limit < 1:
            return []
        scan, at = self._parts.scan, utc(at, "at")
        mark = scan.start()
        began = time.monotonic()
        with translated_errors():
            rows = self._claims.claim(at, limit, mark)
        scan.ended(mark, time.monotonic() - began, Mark(rows[-1].next_attempt, rows[-1].message_id) if rows else None)
        ids = [row.message_id for row in rows]
        self._fetched.update(ids)
        self._unsettled.update(ids)
        return [to_message(row) for row in rows]

    def remove(self, message: DelayedMessage) -> bool:
        """Delete one row."""
        return self.remove_many([message]) == 1

    def remove_many(self, messages: Sequence[DelayedMessage]) -> int:
        """Delete rows in one statement."""
        if not messages:
            return 0
        ids = [message.message_id for message in messages]
        self.written()
        self._unsettled.difference_update(ids)
        return self._execute(self._sql.remove_many, {"ids": ids, **self._claims.identity()}).rowcount

    def increment_failure_count(self, message: DelayedMessage, next_attempt: datetime | None = None) -> bool:
        """Update one row."""
        return self.increment_failure_counts([(message, next_attempt or self.now())]) == 1

    def increment_failure_counts(self, failures: Sequence[tuple[DelayedMessage, datetime]]) -> int:
        """Update rows in one batch."""
        if not failures:
            return 0
        self.written()
        claimer = self._claims.identity()
        values = [
            {"id": message.message_id, "new_next_attempt": utc(next_attempt, "next_attempt"), **claimer}
            for message, next_attempt in failures
        ]
        self._unsettled.difference_update(message.message_id for message, _ in failures)
        for value in values:
            self._wants_attention(value["new_next_attempt"])
        return self._execute(self._sql.increment, values).rowcount

    def next(self) -> datetime | None:
        """The first message or end of a claim; or when a search from the beginning is allowed, if that is sooner."""
        mark = self._parts.scan.start()
        with translated_errors():
            times = [self._claims.first_end()]
        if mark is None:
            times.append(self._execute(self._sql.first, {}).scalar())
        else:
            times.append(self._execute(self._sql.first_behind, place_of(mark)).scalar())
            times.append(self.now() + self._parts.scan.until_full_scan())
        return min((time for time in times if time is not None), default=None)

    def get(self, message_id: str) -> DelayedMessage | None:
        """One row."""
        check_message_id(message_id)
        row = self._execute(self._sql.get, {"id": message_id}).first()
        return None if row is None else to_message(row)

    def list(
        self,
        *,
        destination: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: PageKey | None = None,
        limit: int = 100,
    ) -> Page:
        """A page by the index of `next_attempt`, however far in."""
        if type(limit) is not int or limit < 1:
            raise ConfigurationError(f"limit must be a whole number from 1, not {limit!r}")
        table, parameters = self._sql.table, dict[str, Any](limit=limit + 1)
        statement = self._sql.page
        if after is not None:
            statement = self._sql.page_behind
            parameters.update(place_of(Mark(after.attention_time, after.message_id)))
        if destination is not None:
            check_destination(destination)
            statement = statement.where(table.c.destination == destination)
        if since is not None:
            statement = statement.where(table.c.next_attempt >= utc(since, "since"))
        if until is not None:
            statement = statement.where(table.c.next_attempt < utc(until, "until"))
        messages = [to_message(row) for row in self._execute(statement, parameters)]
        if len(messages) <= limit:
            return Page(messages, None)
        last = messages[limit - 1]
        return Page(messages[:limit], PageKey(last.attention_time, last.message_id))

    def count(self, *, destination: str | None = None) -> int:
        """Count rows: the database reads the whole table or index for it."""
        return int(self._execute(self._of(self._sql.count, self._sql.table, destination), {}).scalar_one())

    def count_by_due_time(self, bucket: timedelta, *, destination: str | None = None) -> Mapping[datetime, int]:
        """Count rows by bucket, in the order of time."""
        seconds = int(bucket.total_seconds())
        if seconds < 1 or timedelta(seconds=seconds) != bucket:
            raise ConfigurationError(f"bucket must be a whole number of seconds from 1, not {bucket!r}")
        rows = self._execute(self._of(self._sql.buckets, self._sql.numbered, destination), {"seconds": seconds})
        return {datetime.fromtimestamp(int(row.number) * seconds, UTC): row.messages for row in rows}

    def cancel(self, message_id: str) -> ManagementOutcome:
        """See the dialect."""
        check_message_id(message_id)
        self.written()
        with translated_errors():
            return self._parts.dialect.cancel(self.connection, self._sql.table, message_id, self.now())

    def reschedule(self, message_id: str, due_time: datetime) -> ManagementOutcome:
        """See the dialect."""
        check_message_id(message_id)
        self.written()
        due_time = waiting_until(due_time, "due_time")
        with translated_errors():
            table, dialect = self._sql.table, self._parts.dialect
            outcome = dialect.reschedule(self.connection, table, message_id, due_time, self.now())
        if outcome is ManagementOutcome.DONE:
            self._wants_attention(due_time)
        return outcome

    def written(self) -> None:
        """Something is being written on `connection`: what is fetched from now on must not commit it."""
        self._claims.written()

    def stored(self, earliest: datetime) -> None:
        """Messages were written through `connection`; the first of them wants attention at `earliest`.

        The commit then wakes dispatchers as it does for what `store` writes.
        """
        self.written()
        self._wants_attention(earliest)

    def before_commit(self) -> None:
        """Wake other processes' dispatchers, once, if something wants attention before they look by themselves."""
        if self._earliest is not None and self._earliest <= self.now() + NOTIFY_WITHIN:
            self._notify(payload_of(self._earliest))

    def rolled_back(self) -> None:
        """What was settled is not: all that was fetched is to be let go."""
        self._unsettled |= self._fetched

    def release(self) -> None:
        """End claims on what was fetched and not settled, where the transaction's end has not."""
        with translated_errors():
            self._claims.release(self._unsettled)

    def after_end(self) -> None:
        """Once committed or rolled back: what was fetched and not settled lies before the mark, and must be found."""
        if self._unsettled:
            self._parts.scan.look_back()
        elif self._earliest is not None:
            self._parts.scan.look_back(self._earliest)

    def _wants_attention(self, at: datetime) -> None:
        if self._earliest is None or at < self._earliest:
            self._earliest = at

    def _notify(self, payload: str) -> None:
        with translated_errors():
            self._parts.dialect.notify(self.connection, self._parts.channel, payload)

    def _of(
        self, statement: Select[*tuple[Any, ...]], source: FromClause, destination: str | None
    ) -> Select[*tuple[Any, ...]]:
        if destination is not None:
            check_destination(destination)
        return statement if destination is None else statement.where(source.c.destination == destination)

    def _execute(self, statement: Executable, parameters: Any) -> CursorResult[Any]:
        with translated_errors():
            return self.connection.execute(statement, parameters)


def insert_message(connection: Connection, parts: StoreParts, message: DelayedMessage, wake: str | None = None) -> bool:
    """Insert a row, and wake dispatchers with the payload `wake`, in one statement where the database can.

    False: its message_id waits already. Raises what the driver raises.
    """
    row, sql = to_row(message), parts.statements
    if wake is not None and sql.insert_and_notify is not None:
        values = {f"new_{name}": value for name, value in row.items()} | {"channel": parts.channel, "payload": wake}
        return connection.execute(sql.insert_and_notify, values).first() is not None
    try:
        return connection.execute(sql.insert, row).rowcount > 0
    except IntegrityError as error:
        if parts.dialect.is_duplicate(error):
            return False
        raise
