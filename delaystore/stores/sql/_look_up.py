"""Looking up what waits, in the transaction of one connection."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, CursorResult, Executable, FromClause, Select, select
from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage, Position, check_destination, check_message_id, position_of, utc
from delaystore.sql.dialects import StoreDialect
from delaystore.sql.errors import translated_errors
from delaystore.stores._buckets import seconds_of, start_of
from delaystore.stores._checks import check_number
from delaystore.stores.abc import COUNTED, Count, ManagedDelayedMessageStore, Page
from delaystore.stores.sql._prefixes import begins_with
from delaystore.stores.sql._statements import Statements, search
from delaystore.stores.sql.rows import has_position, to_shown_message

_AT_ONCE: Final = 1000
"""Ids in one statement."""


class LookUp(ManagedDelayedMessageStore):
    """The part of BoundSqlStore that reads, and changes nothing; see `ManagedDelayedMessageStore`."""

    _sql: Statements
    _dialect: StoreDialect

    @property
    @abstractmethod
    def connection(self) -> Connection:
        """The connection in whose transaction everything happens."""

    @override
    def get(self, message_id: str) -> DelayedMessage | None:
        check_message_id(message_id)
        row = self._execute(self._sql.get, {"id": message_id}).first()
        return None if row is None else to_shown_message(row)

    @override
    def list(
        self,
        *,
        destination: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        limit: int = 100,
    ) -> Page:
        """A page by the index of `next_attempt`, however far in."""
        if type(limit) is not int or limit < 1:
            raise ConfigurationError(f"limit must be a whole number from 1, not {limit!r}")
        table = self._sql.whole_table
        statement, position = search(self._sql.page, self._sql.page_behind, after)
        if destination is not None:
            check_destination(destination)
            statement = statement.where(table.c.destination == destination)
        if since is not None:
            statement = statement.where(table.c.next_attempt >= utc(since, "since"))
        if until is not None:
            statement = statement.where(table.c.next_attempt < utc(until, "until"))
        return self._page(statement, position, limit)

    def _page(self, statement: Select[*tuple[Any, ...]], position: dict[str, Any], limit: int) -> Page:
        """The page ends with a row that has a position, or the next page would begin elsewhere.

        So it is shorter where it would end with a row whose time cannot be read, and longer where all are such.
        """
        rows = self._execute(statement, {"limit": limit + 1, **position}).all()
        if len(rows) <= limit:
            return Page([to_shown_message(row) for row in rows], None)
        end = next((number for number in range(limit, 0, -1) if has_position(rows[number - 1])), None)
        if end is None:
            return self._page(statement, position, 2 * limit)
        return Page([to_shown_message(row) for row in rows[:end]], position_of(rows[end - 1]))

    @override
    def get_many(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        """By the primary key, so many ids at a time."""
        found = {}
        for message_id in message_ids:
            check_message_id(message_id)
        for first in range(0, len(message_ids), _AT_ONCE):
            ids = [*message_ids[first : first + _AT_ONCE]]
            found.update({row.message_id: to_shown_message(row) for row in self._execute(self._sql.show, {"ids": ids})})
        return found

    @override
    def waiting_ids(self, message_ids: Sequence[str]) -> Collection[str]:
        """By the primary key alone: a column that is missing, or a value that cannot be read, is no obstacle."""
        found: set[str] = set()
        for first in range(0, len(message_ids), _AT_ONCE):
            found.update(self._execute(self._sql.there, {"ids": [*message_ids[first : first + _AT_ONCE]]}).scalars())
        return found

    @override
    def message_ids(self, prefix: str, limit: int = 1000) -> Sequence[str]:
        """By the primary key."""
        check_number(limit, "limit")
        message_id = self._sql.table.c.message_id
        found = select(message_id).where(*begins_with(message_id, prefix)).order_by(message_id).limit(limit)
        return [row.message_id for row in self._execute(found, {})]

    @override
    def count(self, *, destination: str | None = None) -> int:
        """Count rows: the database reads the whole table or index for it."""
        return int(self._execute(self._of(self._sql.count, self._sql.table, destination), {}).scalar_one())

    @override
    def estimate_count(self) -> Count:
        """Count as far as COUNTED; more is what the database estimates, or counted if it does not."""
        counted = int(self._execute(self._sql.count_some, {"limit": COUNTED + 1}).scalar_one())
        if counted <= COUNTED:
            return Count(counted, exact=True)
        with translated_errors():
            estimated = self._dialect.estimate(self.connection, self._sql.table)
        if estimated is None:
            return Count(self.count(), exact=True)
        return Count(max(counted, estimated), exact=False)

    @override
    def count_by_due_time(self, bucket: timedelta, *, destination: str | None = None) -> Mapping[datetime, int]:
        """Leaves out rows whose due time cannot be read."""
        statement = self._of(self._sql.buckets, self._sql.numbered, destination)
        rows = self._execute(statement, {"seconds": seconds_of(bucket)})
        return {start_of(int(row.number), bucket): row.messages for row in rows if row.number is not None}

    def _of(
        self, statement: Select[*tuple[Any, ...]], source: FromClause, destination: str | None
    ) -> Select[*tuple[Any, ...]]:
        if destination is not None:
            check_destination(destination)
        return statement if destination is None else statement.where(source.c.destination == destination)

    def _execute(self, statement: Executable, parameters: Any) -> CursorResult[Any]:
        with translated_errors():
            return self.connection.execute(statement, parameters)
