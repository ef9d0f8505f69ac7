"""The SQL statements of a store, built when they are first used, and look-ups by message_id."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    CursorResult,
    Executable,
    FromClause,
    Integer,
    Row,
    Select,
    Table,
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
from delaystore.stores.operable import GRID, TICK
from delaystore.stores.shared import check_number, seconds_of, start_of
from delaystore.stores.sql.codec import FAILURES, FAILURES_OF, MESSAGE_KEY, Json, UtcDateTime, in_order, message_columns
from delaystore.stores.sql.dialects import Claiming, StoreDialect
from delaystore.stores.sql.dialects.base import row_with
from delaystore.stores.sql.dialects.sqlite import owned
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.rows import has_position, to_shown_message
from delaystore.stores.sql.schema import partitions_table, whole_table, with_keys

PARTITION = "shelf"
LOCATION = "location"
"""The labels of where a row lies: in which partition, and where there."""
SIZE = "size"
"""The label of a body's length in bytes."""


def size_of(body: ColumnElement[Any]) -> ColumnElement[int]:
    """The length of a body in bytes; the database knows it without reading the body."""
    return func.length(body).label(SIZE)


def locked_and_fitting(locking: Select[Any]) -> Select[Any]:
    """The first rows of a search that locks what it finds; those that do not fit stay locked, and unread."""
    locked = locking.cte("locked")
    sized = select(*locked.c, size_of(locked.c.body)).subquery("sized")
    return _fitting(sized, [*message_columns(sized), sized.c[PARTITION], sized.c[LOCATION]])


def fitting_ids(statement: Select[Any], table: Table) -> Select[Any]:
    """The message_ids of the first rows of a search."""
    sized = statement.with_only_columns(*in_order(table), size_of(table.c.body)).subquery("sized")
    return _fitting(sized, [sized.c.message_id])


def with_sizes(statement: Select[Any], table: Table, dialect: StoreDialect) -> Select[Any]:
    """A search of positions in an index alone, and then the sizes, by primary key, of what it finds."""
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


def search(beginning: _S, behind: _S, after: Position | None) -> tuple[_S, dict[str, Any]]:
    """The statement that searches behind `after` (None: from the beginning), and what it takes for the position."""
    if after is None:
        return beginning, {}
    return behind, {_AFTER + name: value for name, value in after._asdict().items()}


def is_parked(table: FromClause) -> ColumnElement[bool]:
    """Whether a row waits for its destination to be resumed; see `DelayedMessage.is_parked`."""
    parked = literal(PARKED, UtcDateTime)
    return (table.c.next_attempt >= parked) & (table.c.due_time < parked)


def is_postponed(table: FromClause, dialect: StoreDialect) -> ColumnElement[bool]:
    """Whether a limit has postponed a row; see `postponed_until`."""
    later = table.c.next_attempt > table.c.due_time
    return later & (dialect.microsecond(table.c.next_attempt) % (GRID // TICK) == 0)


class Statements:
    """Parameters: `at`, `limit`, `most_bytes`, `id`, `ids`, `locations`, `now`, `new_due_time`, `new_next_attempt`,
    `seconds`, `channel`, `payload`, and those of a position.
    """

    def __init__(self, table: Table, dialect: StoreDialect) -> None:
        self.table = table
        self.keyed_table = with_keys(table)
        """The same with the columns of keys, which statements without keys do not name."""
        self.whole_table = whole = whole_table(table, dialect)
        """The same with all columns, for what shows messages, and for what operators do."""
        self.partitions = partitions_table(table, dialect)
        order = in_order(table)
        is_due = table.c.next_attempt <= dialect.undisclosed(bindparam("at", type_=UtcDateTime))
        limit = bindparam("limit", type_=Integer)
        due = select(*message_columns(table)).where(is_due).order_by(*order).limit(limit)
        position = [bindparam(_AFTER + column.name, type_=column.type) for column in order]
        is_behind = dialect.behind(order, position)
        if dialect.claiming is Claiming.ROW_LOCKS:
            partition, location = dialect.location(table)
            located = due.add_columns(partition.label(PARTITION), location.label(LOCATION))
            self.due = locked_and_fitting(dialect.claimed(located, table))
            self.due_behind = locked_and_fitting(dialect.claimed(located.where(is_behind), table))
            self.remove_located = dialect.remove_located(table)
        is_time = table.c.next_attempt <= literal(LATEST_DUE_TIME, UtcDateTime)  # text in SQLite may be later
        first = select(table.c.next_attempt).where(is_time).order_by(*order).limit(1)
        self.first = first
        self.first_behind = first.where(is_behind)
        ahead = select(table.c.due_time, table.c.next_attempt).order_by(*order).limit(LOOK_AHEAD)
        self.status = self._status(dialect, ahead)
        self.status_behind = self._status(dialect, ahead.where(is_behind))
        self.insert = dialect.insert_message(table, self.partitions).execution_options(preserve_rowcount=True)
        self.insert_alone = dialect.insert_alone(table, self.partitions).execution_options(preserve_rowcount=True)
        self.insert_and_notify = (
            dialect.insert_and_notify(table, self.partitions) if dialect.has_notifications else None
        )
        self.insert_enlisted = dialect.insert_enlisted(table, self.partitions) if dialect.has_notifications else None
        self.waits = select(table.c.message_id).where(row_with(table))
        self.there = dialect.with_ids(table)
        self.mark = update(table).values(due_time=dialect.marked(table.c.due_time))
        self.remove_many = dialect.remove_many(table)
        self.cancel = delete(table)
        new_time: BindParameter[Any] = bindparam("new_due_time")
        self.reschedule = update(table).values(due_time=new_time, next_attempt=new_time, failure_count=0)
        failed = update(table).values(
            failure_count=table.c.failure_count + 1, next_attempt=bindparam("new_next_attempt")
        )
        self.increment = failed.where(row_with(table))
        self.remove_stored = delete(table).where(dialect.has_stored_id(table))
        self.increment_stored = failed.where(dialect.has_stored_id(table))
        self._add_settling(dialect)
        self.shown = shown = select(
            *message_columns(whole), whole.c[MESSAGE_KEY], whole.c[FAILURES], whole.c[FAILURES_OF]
        )
        self.get = shown.where(row_with(whole))
        self.show = shown.where(dialect.among(whole.c.message_id, "ids"))
        self.page = shown.order_by(*in_order(whole)).limit(limit)
        self.page_behind = self.page.where(dialect.behind(in_order(whole), position))
        self.count = select(func.count()).select_from(table)
        some = select(literal(1)).select_from(table).limit(limit).subquery("some")
        self.count_some = select(func.count()).select_from(some)
        number = dialect.bucket(table.c.due_time, bindparam("seconds", type_=BigInteger)).label("number")
        self.numbered = select(number, table.c.destination).subquery("numbered")
        self.buckets = (
            select(self.numbered.c.number, func.count().label("messages"))
            .group_by(self.numbered.c.number)
            .order_by(self.numbered.c.number)
        )
        if dialect.claiming is Claiming.CANDIDATE_LOCKS:
            found = select(*order).where(is_due).order_by(*order).limit(limit)
            self.candidates = with_sizes(found, table, dialect)
            self.candidates_behind = with_sizes(found.where(is_behind), table, dialect)
            locked = select(*message_columns(table)).where(dialect.among(table.c.message_id, "ids"), is_due)
            self.lock_candidates = dialect.claimed(locked.order_by(*order), table)
        if dialect.claiming is Claiming.LEASES:
            self._add_leases(dialect.claimed(due, table), dialect.claimed(due.where(is_behind), table))

    def _status(self, dialect: StoreDialect, ahead: Select[Any]) -> Select[Any]:
        """One row of `now` (where the database has a clock), `read_only` and `first_due`."""
        due_times = ahead.subquery("ahead")
        is_time = due_times.c.due_time >= literal(EARLIEST_DUE_TIME, UtcDateTime)  # not so a zero of MariaDB
        is_shown = ~is_parked(due_times)
        first_due = select(func.min(due_times.c.due_time)).where(is_time, is_shown).scalar_subquery()
        clock, read_only = dialect.clock(), dialect.read_only()
        return select(
            (null() if clock is None else clock).label("now"),
            (false() if read_only is None else read_only).label("read_only"),
            first_due.label("first_due"),
        )

    def _add_settling(self, dialect: StoreDialect) -> None:
        """What operators and dispatchers do besides removing: `line`: that of a failed attempt."""
        whole = self.whole_table
        again: BindParameter[Any] = bindparam("new_next_attempt")
        former = case((whole.c.failures_of == whole.c.message_id, whole.c.failures), else_=literal("", Json()))
        lines = former.concat(bindparam("line", type_=Json()))
        failed = update(whole).values(  # in the order of columns, as MySQL goes by values that were set before
            failure_count=whole.c.failure_count + 1,
            next_attempt=again,
            failures=dialect.last_part(lines, KEPT),
            failures_of=whole.c.message_id,
        )
        self.count_failure = failed.where(row_with(whole))
        self.count_failure_stored = failed.where(dialect.has_stored_id(whole))
        postponed = update(whole).values(next_attempt=again)
        self.postpone = postponed.where(row_with(whole))
        self.postpone_stored = postponed.where(dialect.has_stored_id(whole))
        self.park = update(whole).values(next_attempt=literal(PARKED, UtcDateTime))
        self.unpark = update(whole).values(next_attempt=whole.c.due_time)
        self.cancel_matching = delete(whole)
        new_time: BindParameter[Any] = bindparam("new_due_time")
        self.reschedule_matching = update(whole).values(due_time=new_time, next_attempt=new_time, failure_count=0)
        self.claimed = dialect.with_ids(whole)
        self.park_claimed = self.park.where(dialect.among(whole.c.message_id, "ids"))

    def _add_leases(self, due: Select[Any], due_behind: Select[Any]) -> None:
        """Claims as leases: `token` names the claimer, `lease_end` when the claim ends by itself."""
        table = self.table
        lease: dict[str, Any] = {"claimed_by": bindparam("token"), "claimed_until": bindparam("lease_end")}
        free: dict[str, Any] = {"claimed_by": None, "claimed_until": None}

        def claim(statement: Select[Any]) -> ReturningUpdate[Any]:
            ids = fitting_ids(statement, table).scalar_subquery()
            return update(table).where(table.c.message_id.in_(ids)).values(lease).returning(*message_columns(table))

        self.claim_due = claim(due)
        self.claim_due_behind = claim(due_behind)
        self.release = update(table).where(owned(table)).values(free)
        self.increment = self.increment.where(owned(table)).values(free)
        self.remove_stored = self.remove_stored.where(owned(table))
        self.increment_stored = self.increment_stored.where(owned(table)).values(free)
        for name in ("count_failure", "count_failure_stored", "postpone", "postpone_stored", "park_claimed"):
            setattr(self, name, getattr(self, name).where(owned(self.whole_table)).values(free))
        self.claimed = self.claimed.where(owned(self.whole_table))
        for name in ("reschedule", "reschedule_matching", "park", "unpark", "mark"):
            setattr(self, name, getattr(self, name).values(free))
        self.first = self.first.where(table.c.claimed_by.is_(None))
        self.first_behind = self.first_behind.where(table.c.claimed_by.is_(None))
        shows = func.max(table.c.claimed_until, table.c.next_attempt)  # the later of the two
        self.first_lease_end = select(func.min(shows, type_=UtcDateTime)).where(table.c.claimed_by.is_not(None))


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
