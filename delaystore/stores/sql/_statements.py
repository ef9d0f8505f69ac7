"""The SQL statements of a store, built when they are first used, and look-ups by message_id."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    CursorResult,
    Delete,
    Executable,
    FromClause,
    Insert,
    Integer,
    Row,
    Select,
    Subquery,
    Table,
    Update,
    bindparam,
    case,
    delete,
    false,
    func,
    literal,
    null,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate
from sqlalchemy.util import memoized_property
from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.message import (
    EARLIEST_DUE_TIME,
    KEPT,
    LATEST_DUE_TIME,
    PARKED,
    DelayedMessage,
    Position,
    check_destination,
    check_message_id,
    position_of,
    utc,
)
from delaystore.stores.abc import COUNTED, Count, ManagedDelayedMessageStore, Page
from delaystore.stores.records import GRID, TICK
from delaystore.stores.shared import check_number, seconds_of, start_of
from delaystore.stores.sql import setup
from delaystore.stores.sql._history import EntryInserts
from delaystore.stores.sql.codec import (
    FAILURES,
    FAILURES_OF,
    MESSAGE_KEY,
    NAMES,
    NOT_AFTER,
    WITH_NOT_AFTER,
    Json,
    UtcDateTime,
    in_order,
    message_columns,
)
from delaystore.stores.sql.dialects import Claiming, StoreDialect
from delaystore.stores.sql.dialects.base import BINARY, LocatedRows, row_with
from delaystore.stores.sql.dialects.sqlite import owned
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.rows import has_position, to_shown_message
from delaystore.stores.sql.schema import OperatingTables, delayed_table, partitions_table

PARTITION = "partition"
LOCATION = "location"
"""The labels of where a row lies: in which partition, and where there."""
SIZE = "size"
"""The label of a body's length in bytes."""


def size_of(body: ColumnElement[Any]) -> ColumnElement[int]:
    """The length of a body in bytes; the database knows it without reading the body."""
    return func.length(body).label(SIZE)


def locked_and_fitting(locking: Select[Any]) -> Select[Any]:
    """The first rows of a search that locks them; rows that do not fit stay locked, and unread."""
    locked = locking.cte("locked")
    sized = select(*locked.c, size_of(locked.c.body)).subquery("sized")
    columns = [*message_columns(sized), sized.c[NOT_AFTER], sized.c[PARTITION], sized.c[LOCATION]]
    return _fitting(sized, columns).execution_options(**{BINARY: True})


def fitting_ids(statement: Select[Any], table: Table) -> Select[Any]:
    """The message_ids of the first rows of a search."""
    sized = statement.with_only_columns(*in_order(table), size_of(table.c.body)).subquery("sized")
    return _fitting(sized, [sized.c.message_id])


def with_sizes(statement: Select[Any], table: Table, dialect: StoreDialect) -> Select[Any]:
    """A search of positions in an index alone, and then the sizes, by primary key, of the rows found."""
    found = statement.subquery("found")
    joined = found.join(table, found.c.message_id == table.c.message_id)
    sized = select(*found.c, size_of(table.c.body)).select_from(joined).order_by(*in_order(found))
    return dialect.by_primary_key(sized, table).prefix_with("STRAIGHT_JOIN")


def fitting(candidates: Sequence[Row[Any]], room: int, *, at_least_one: bool) -> Sequence[Row[Any]]:
    """The first of rows with a SIZE that fit into `room` bytes."""

    def taken() -> Iterator[Row[Any]]:
        left = room
        for number, row in enumerate(candidates):
            left -= row.size
            if left < 0 and (number or not at_least_one):
                return
            yield row

    return list(taken())


def _fitting(sized: FromClause, columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
    total = func.sum(sized.c.size).over(order_by=in_order(sized), rows=(None, 0)).label("total")
    number = func.row_number().over(order_by=in_order(sized)).label("number")
    summed = select(*sized.c, total, number).subquery("summed")
    most_bytes = bindparam("most_bytes", type_=BigInteger)
    fits = (summed.c.total <= most_bytes) | (summed.c.number == 1)
    chosen = [summed.c[column.name] for column in columns]
    return select(*chosen).where(fits).order_by(*in_order(summed))


LOOK_AHEAD: Final = 1000
"""Of how many messages, by next attempt, `status` looks at the due time; as many as are fetched at once."""
_AFTER: Final = "after_"
_S = TypeVar("_S")


@dataclass(frozen=True, slots=True)
class Search(Generic[_S]):
    """A search in the order of positions: a statement for the beginning, and one for rows behind a position."""

    beginning: _S
    behind: _S

    def after(self, position: Position | None) -> tuple[_S, dict[str, Any]]:
        """The statement behind `position` (None: from the beginning), and its parameters for the position."""
        if position is None:
            return self.beginning, {}
        return self.behind, {_AFTER + name: value for name, value in position._asdict().items()}


class Settling(NamedTuple):
    """A change of one claimed row, by its message_id, or by the text in place of an invalid id."""

    by_id: Update
    by_stored_id: Update


def is_parked(table: FromClause) -> ColumnElement[bool]:
    """Whether a row waits for its destination to be resumed; see `DelayedMessage.is_parked`."""
    parked = literal(PARKED, UtcDateTime)
    return (table.c.next_attempt >= parked) & (table.c.due_time < parked)


def is_postponed(table: FromClause, dialect: StoreDialect) -> ColumnElement[bool]:
    """Whether a limit has postponed a row; see `postponed_until`."""
    later = table.c.next_attempt > table.c.due_time
    return later & (dialect.microsecond(table.c.next_attempt) % (GRID // TICK) == 0)


_StatementT = TypeVar("_StatementT", Select[Any], Update, Delete)


class Inserts:
    """The inserts of one message, whose row has the columns `names`."""

    def __init__(self, table: Table, partitions: Table | None, dialect: StoreDialect, names: Sequence[str]) -> None:
        self._table, self._partitions, self._dialect, self._names = table, partitions, dialect, names

    @memoized_property
    def insert(self) -> Insert:
        """In a transaction of several statements."""
        insert = self._dialect.insert_message(self._table, self._partitions, self._names)
        return insert.execution_options(preserve_rowcount=True)

    @memoized_property
    def insert_alone(self) -> Insert:
        """Alone in its transaction."""
        insert = self._dialect.insert_alone(self._table, self._partitions, self._names)
        return insert.execution_options(preserve_rowcount=True)

    @memoized_property
    def insert_and_notify(self) -> Executable | None:
        """`insert_alone` that wakes dispatchers; None where the database cannot."""
        notifications = self._dialect.notifications
        if notifications is None:
            return None
        return notifications.insert_and_notify(self._table, self._partitions, self._names)

    @memoized_property
    def insert_enlisted(self) -> Executable | None:
        """`insert` in a caller's transaction that wakes dispatchers; None where the database cannot."""
        notifications = self._dialect.notifications
        if notifications is None:
            return None
        return notifications.insert_enlisted(self._table, self._partitions, self._names)


class Statements:
    """The statements about one endpoint's table, each built when it is first used.

    `has_not_after`: whether the table has the column of latest deliveries; see `as_of`.

    Parameters: `at`, `limit`, `most_bytes`, `id`, `ids`, `line` (of a failed attempt), `locations`, `now`,
    `microseconds`, `new_due_time`, `new_next_attempt`, `seconds`, `channel`, `payload`, and those of a position.

    `memoized_property`, unlike `cached_property` before Python 3.12, has no lock, which a fork could leave taken. If
    two threads build a statement at once, one of the two stays.
    """

    def __init__(self, table: Table, dialect: StoreDialect, *, has_not_after: bool = True) -> None:
        self.table, self.dialect, self.has_not_after = table, dialect, has_not_after

    def as_of(self, version: setup.KnownVersion, connection: Connection) -> Self:
        """The statements for the table as it is: before version 0006 it lacks the column of latest deliveries."""
        return self if version.is_from(setup.LOADED, connection) else self._without_not_after

    @memoized_property
    def _without_not_after(self) -> Self:
        return type(self)(self.table, self.dialect, has_not_after=False)

    @property
    def names(self) -> Sequence[str]:
        """The columns of a message that the table has."""
        return WITH_NOT_AFTER if self.has_not_after else NAMES

    @memoized_property
    def not_after(self) -> ColumnElement[Any]:
        """A row's latest delivery; NULL where the table has no such column."""
        return (self.dialect.time_of_python(self.table.c[NOT_AFTER]) if self.has_not_after else null()).label(NOT_AFTER)

    # Other tables.

    @memoized_property
    def partitions(self) -> Table | None:
        """The table whose children are the bulk partitions; None where the database has none."""
        return None if self.dialect.bulk is None else partitions_table(self.table, self.dialect)

    @memoized_property
    def operating_tables(self) -> OperatingTables:
        """The tables of operators and dispatchers."""
        return OperatingTables(self.table, self.dialect)

    @memoized_property
    def entries(self) -> EntryInserts:
        """Inserts of entries of the history."""
        return self.entries_of(self.table)

    def entries_of(self, rows: Table) -> EntryInserts:
        """Inserts of entries of messages in `rows`, which has the columns of the table of messages."""
        body_hash = self.dialect.sha256(rows.c.body)
        return EntryInserts(rows, self.operating_tables.history, self.dialect.unmarked(rows), body_hash)

    # What is added where claims are leases; see LeaseStatements.

    _free: ClassVar[Mapping[str, Any]] = {}
    """The values of a row that no dispatcher has claimed."""

    @property
    def is_owned(self) -> list[ColumnElement[bool]]:
        """Whether the claimer has claimed a row. Row locks need no condition: see Claims."""
        return []

    def _owned(self, statement: _StatementT) -> _StatementT:
        """`statement`, limited to rows that the claimer has claimed."""
        return statement.where(*self.is_owned)

    def _freeing(self, change: Update) -> Update:
        """`change`, which also ends an expired claim."""
        return change

    def _unclaimed(self, search: Select[Any]) -> Select[Any]:
        """`search`, limited to rows whose claim is not written into them."""
        return search

    # Searches in the order of positions.

    @memoized_property
    def _limit(self) -> BindParameter[int]:
        return bindparam("limit", type_=Integer)

    @memoized_property
    def _is_due(self) -> ColumnElement[bool]:
        at = self.dialect.without_value_in_plan(bindparam("at", type_=UtcDateTime))
        return self.table.c.next_attempt <= at

    @memoized_property
    def _is_behind(self) -> ColumnElement[bool]:
        order = in_order(self.table)
        position = [bindparam(_AFTER + column.name, type_=column.type) for column in order]
        return self.dialect.behind(order, position)

    @memoized_property
    def _due(self) -> Select[Any]:
        table = self.table
        due = select(*message_columns(table), self.not_after).where(self._is_due)
        return due.order_by(*in_order(table)).limit(self._limit)

    @memoized_property
    def first(self) -> Search[Select[Any]]:
        """The first next attempt."""
        table = self.table
        is_time = table.c.next_attempt <= literal(LATEST_DUE_TIME, UtcDateTime)  # text in SQLite may be later
        first = select(table.c.next_attempt).where(is_time).order_by(*in_order(table)).limit(1)
        return Search(self._unclaimed(first), self._unclaimed(first.where(self._is_behind)))

    @memoized_property
    def status(self) -> Search[Select[Any]]:
        """One row of `now` (where the database has a clock), `read_only` and `first_due`."""
        table = self.table
        ahead = select(table.c.due_time, table.c.next_attempt).order_by(*in_order(table)).limit(LOOK_AHEAD)
        return Search(self._status(ahead), self._status(ahead.where(self._is_behind)))

    def _status(self, ahead: Select[Any]) -> Select[Any]:
        due_times = ahead.subquery("ahead")
        is_time = due_times.c.due_time >= literal(EARLIEST_DUE_TIME, UtcDateTime)  # not so a zero of MariaDB
        is_shown = ~is_parked(due_times)
        first_due = select(func.min(due_times.c.due_time)).where(is_time, is_shown).scalar_subquery()
        clock, read_only = self.dialect.clock(), self.dialect.read_only()
        return select(
            (null() if clock is None else clock).label("now"),
            (false() if read_only is None else read_only).label("read_only"),
            first_due.label("first_due"),
        )

    # Inserts.

    @memoized_property
    def inserts(self) -> Inserts:
        """Of a message without a latest delivery: they also serve the table of an earlier release."""
        return Inserts(self.table, self.partitions, self.dialect, NAMES)

    @memoized_property
    def inserts_with_not_after(self) -> Inserts:
        """Of a message with a latest delivery."""
        return Inserts(self.table, self.partitions, self.dialect, WITH_NOT_AFTER)

    # Changes of messages, by their ids.

    @memoized_property
    def waits(self) -> Select[Any]:
        """Whether a row has the id."""
        return select(self.table.c.message_id).where(row_with(self.table))

    @memoized_property
    def there(self) -> Select[Any]:
        """Those of `ids` that rows have."""
        return self.dialect.with_ids(self.table)

    @memoized_property
    def claimed(self) -> Select[Any]:
        """Those of `ids` that the claimer has claimed."""
        return self._owned(self.there)

    @memoized_property
    def mark(self) -> Update:
        """Mark due times; see `delaystore.message.marked`."""
        return self._freeing(update(self.table).values(due_time=self.dialect.marked(self.table.c.due_time)))

    @memoized_property
    def cancel(self) -> Delete:
        """Delete rows, with the dialect's additions."""
        return delete(self.table)

    @memoized_property
    def reschedule(self) -> Update:
        """A new due time, without failures, for the rows that the dialect adds; a latest delivery moves with it."""
        table = self.table
        new_time: BindParameter[Any] = bindparam("new_due_time", type_=UtcDateTime)
        values: dict[Any, Any] = {}
        if self.has_not_after:  # first, as MySQL goes by values that were set before
            not_after = table.c[NOT_AFTER]
            values[not_after] = self.dialect.moved(self.dialect.time_of_python(not_after), self.unmarked, new_time)
        values |= {table.c.due_time: new_time, table.c.next_attempt: new_time, table.c.failure_count: 0}
        return update(table).ordered_values(*values.items(), *self._free.items())

    @memoized_property
    def unmarked(self) -> ColumnElement[datetime]:
        """The due time without marks."""
        return self.dialect.unmarked(self.table)

    @memoized_property
    def shift(self) -> Update:
        """`reschedule` to the due time that a row has, and `microseconds` more."""
        table, dialect = self.table, self.dialect
        due_time = dialect.later(self.unmarked, bindparam("microseconds", type_=BigInteger))
        values: dict[Any, Any] = {}  # in this order, as MySQL goes by values that were set before
        if self.has_not_after:
            not_after = table.c[NOT_AFTER]
            values[not_after] = dialect.moved(dialect.time_of_python(not_after), self.unmarked, due_time)
        next_attempt = dialect.once_assigned(table.c.due_time, due_time)
        values |= {table.c.due_time: due_time, table.c.next_attempt: next_attempt, table.c.failure_count: 0}
        return update(table).ordered_values(*values.items(), *self._free.items())

    def is_within(self, first: datetime, last: datetime) -> ColumnElement[bool]:
        """Whether a row is due between two times, without marks."""
        return self.unmarked.between(literal(first, UtcDateTime), literal(last, UtcDateTime))

    @memoized_property
    def times(self) -> Select[Any]:
        """The times of the message of the id."""
        table = self.table
        return select(table.c.message_id, table.c.due_time, table.c.next_attempt).where(row_with(table))

    @memoized_property
    def set_due_time(self) -> Update:
        """Another due time for the message of the id, and nothing else."""
        due_time: BindParameter[Any] = bindparam("new_due_time", type_=UtcDateTime)
        return update(self.table).where(row_with(self.table)).values(due_time=due_time)

    @memoized_property
    def park(self) -> Update:
        """Hide rows whose destination is paused."""
        return self._freeing(update(self.table).values(next_attempt=literal(PARKED, UtcDateTime)))

    @memoized_property
    def unpark(self) -> Update:
        """Show rows at their due time again."""
        return self._freeing(update(self.table).values(next_attempt=self.table.c.due_time))

    # Settling.

    @memoized_property
    def remove_many(self) -> Executable:
        """Delete the claimed rows of `ids`."""
        return self.dialect.remove_many(self.table)

    @memoized_property
    def remove_stored(self) -> Delete:
        """Delete a claimed row by the text in place of an invalid id."""
        return self._owned(delete(self.table).where(self.dialect.has_stored_id(self.table)))

    def _settling(self, change: Update) -> Settling:
        rows = row_with(self.table), self.dialect.has_stored_id(self.table)
        return Settling(*(self._freeing(self._owned(change.where(is_row))) for is_row in rows))

    @memoized_property
    def increment(self) -> Settling:
        """Count a failure."""
        count = self.table.c.failure_count + 1
        failed = update(self.table).values(failure_count=count, next_attempt=bindparam("new_next_attempt"))
        return self._settling(failed)

    @memoized_property
    def count_failure(self) -> Settling:
        """Count a failure, and keep the line of its attempt."""
        table = self.table
        former = case((table.c.failures_of == table.c.message_id, table.c.failures), else_=literal("", Json()))
        lines = former.concat(bindparam("line", type_=Json()))
        failed = update(table).values(  # in the order of columns, as MySQL goes by values that were set before
            failure_count=table.c.failure_count + 1,
            next_attempt=bindparam("new_next_attempt"),
            failures=self.dialect.last_part(lines, KEPT),
            failures_of=table.c.message_id,
        )
        return self._settling(failed)

    @memoized_property
    def postpone(self) -> Settling:
        """Show a row at another time."""
        return self._settling(update(self.table).values(next_attempt=bindparam("new_next_attempt")))

    @memoized_property
    def park_claimed(self) -> Update:
        """`park` the claimed rows of `ids`."""
        return self._owned(self.park.where(self.dialect.among(self.table.c.message_id, "ids")))

    # What is shown, and counts.

    @memoized_property
    def shown(self) -> Select[Any]:
        """All of a message."""
        table = self.table
        more = (self.not_after, *(table.c[name] for name in (MESSAGE_KEY, FAILURES, FAILURES_OF)))
        return select(*message_columns(table), *more)

    @memoized_property
    def get(self) -> Select[Any]:
        """The message of the id."""
        return self.shown.where(row_with(self.table))

    @memoized_property
    def show(self) -> Select[Any]:
        """The messages of `ids`."""
        return self.shown.where(self.dialect.among(self.table.c.message_id, "ids"))

    @memoized_property
    def page(self) -> Search[Select[Any]]:
        """Messages in the order of positions."""
        page = self.shown.order_by(*in_order(self.table)).limit(self._limit)
        return Search(page, page.where(self._is_behind))

    @memoized_property
    def count(self) -> Select[Any]:
        """How many rows there are."""
        return select(func.count()).select_from(self.table)

    @memoized_property
    def count_some(self) -> Select[Any]:
        """How many rows there are, counted up to `limit`."""
        some = select(literal(1)).select_from(self.table).limit(self._limit).subquery("some")
        return select(func.count()).select_from(some)

    @memoized_property
    def numbered(self) -> Subquery:
        """The number of the bucket, and the destination, of each row."""
        number = self.dialect.bucket(self.unmarked, bindparam("seconds", type_=BigInteger)).label("number")
        return select(number, self.table.c.destination).subquery("numbered")

    @memoized_property
    def buckets(self) -> Select[Any]:
        """How many rows are in each bucket."""
        number = self.numbered.c.number
        return select(number, func.count().label("messages")).group_by(number).order_by(number)


class RowLockStatements(Statements):
    """Where claims are row locks."""

    @property
    def _located(self) -> LocatedRows:
        assert self.dialect.located is not None
        return self.dialect.located

    @memoized_property
    def due(self) -> Search[Select[Any]]:
        """Due rows, locked."""
        partition, location = self._located.location(self.table)
        due = self._due.add_columns(partition.label(PARTITION), location.label(LOCATION))
        searches = (self.dialect.claimed(each, self.table) for each in (due, due.where(self._is_behind)))
        return Search(*map(locked_and_fitting, searches))

    @memoized_property
    def remove_located(self) -> Executable:
        """Delete the locked rows at `locations`."""
        return self._located.remove_located(self.table)

    @memoized_property
    def end_located(self) -> Executable:
        """`remove_located`, with entries in the history."""
        return self._located.remove_located(self.table, self.entries)


class CandidateStatements(Statements):
    """Where claims are locks of candidates that were found without a lock."""

    @memoized_property
    def candidates(self) -> Search[Select[Any]]:
        """Positions and sizes of due rows."""
        order = in_order(self.table)
        found = select(*order).where(self._is_due).order_by(*order).limit(self._limit)
        searches = (found, found.where(self._is_behind))
        return Search(*(with_sizes(each, self.table, self.dialect) for each in searches))

    @memoized_property
    def lock_candidates(self) -> Select[Any]:
        """Those of `ids` that are due and not locked, locked."""
        table = self.table
        among = self.dialect.among(table.c.message_id, "ids")
        due = select(*message_columns(table), self.not_after).where(among, self._is_due).order_by(*in_order(table))
        return self.dialect.claimed(due, table)


class LeaseStatements(Statements):
    """Where claims are leases: `token` names the claimer, `lease_end` when the claim ends on its own."""

    _free: ClassVar[Mapping[str, Any]] = {"claimed_by": None, "claimed_until": None}

    @property
    @override
    def is_owned(self) -> list[ColumnElement[bool]]:
        return [owned(self.table)]

    @override
    def _freeing(self, change: Update) -> Update:
        return change.values(self._free)

    @override
    def _unclaimed(self, search: Select[Any]) -> Select[Any]:
        return search.where(self.table.c.claimed_by.is_(None))

    def _leasing(self, due: Select[Any]) -> ReturningUpdate[Any]:
        table = self.table
        lease: dict[str, Any] = {"claimed_by": bindparam("token"), "claimed_until": bindparam("lease_end")}
        ids = fitting_ids(self.dialect.claimed(due, table), table).scalar_subquery()
        leased = update(table).where(table.c.message_id.in_(ids)).values(lease)
        return leased.returning(*message_columns(table), self.not_after)

    @memoized_property
    def claim_due(self) -> Search[ReturningUpdate[Any]]:
        """Write a lease into due rows."""
        return Search(self._leasing(self._due), self._leasing(self._due.where(self._is_behind)))

    @memoized_property
    def release(self) -> Update:
        """End the claimer's leases."""
        return self._freeing(self._owned(update(self.table)))

    @memoized_property
    def first_lease_end(self) -> Select[Any]:
        """When the first claimed row is shown again."""
        table = self.table
        shows = func.max(table.c.claimed_until, table.c.next_attempt)  # the later of the two
        return select(func.min(shows, type_=UtcDateTime)).where(table.c.claimed_by.is_not(None))


@lru_cache(maxsize=128)
def statements_of(name: str, schema: str | None, dialect: StoreDialect) -> Statements:
    """The statements about the table `schema.name`: all stores of a process with that table share them."""
    table = delayed_table(name, schema, dialect)
    if dialect.located is not None:
        return RowLockStatements(table, dialect)
    return (LeaseStatements if dialect.claiming is Claiming.LEASES else CandidateStatements)(table, dialect)


_LAST: Final = chr(0x10FFFF)
_SURROGATES: Final = range(0xD800, 0xE000)


def begins_with(column: ColumnElement[str], prefix: str) -> Iterator[ColumnElement[bool]]:
    """Bounds on a text that is compared byte by byte: an index knows them."""
    yield column >= prefix
    bound = _successor(prefix)
    if bound is not None:
        yield column < bound


def _successor(prefix: str) -> str | None:
    """The first text behind all that begin with `prefix`, in the order of UTF-8; None: there is none."""
    prefix = prefix.rstrip(_LAST)
    if not prefix:
        return None
    following = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


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

    @property
    @abstractmethod
    def _sql_as_of(self) -> Statements:
        """The statements for the table as it is."""

    @override
    def get(self, message_id: str) -> DelayedMessage | None:
        check_message_id(message_id)
        row = self._execute(self._sql_as_of.get, {"id": message_id}).first()
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
        table = self._sql.table
        statement, position = self._sql_as_of.page.after(after)
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
        """By the primary key, this number of ids at a time."""
        found = {}
        for message_id in message_ids:
            check_message_id(message_id)
        for first in range(0, len(message_ids), _AT_ONCE):
            ids = [*message_ids[first : first + _AT_ONCE]]
            rows = self._execute(self._sql_as_of.show, {"ids": ids})
            found.update({row.message_id: to_shown_message(row) for row in rows})
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
        """Count as far as COUNTED; beyond that the database estimates, or counts if it cannot."""
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
