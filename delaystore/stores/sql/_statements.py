"""The statements of one table, built once, compiled once by SQLAlchemy's cache."""

from typing import Any, Final, TypeVar

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    FromClause,
    Integer,
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

from delaystore.failures import KEPT
from delaystore.message import EARLIEST_DUE_TIME, LATEST_DUE_TIME, PARKED, Position
from delaystore.sql.columns import FAILURES, FAILURES_OF, MESSAGE_KEY, in_order, message_columns
from delaystore.sql.dialects import Claiming, StoreDialect
from delaystore.sql.dialects.base import row_with
from delaystore.sql.dialects.sqlite import owned
from delaystore.sql.types import Json, UtcDateTime
from delaystore.stores.operable import GRID, TICK
from delaystore.stores.sql._fitting import LOCATION, SHELF, fitting_ids, locked_and_fitting, with_sizes
from delaystore.stores.sql.schema import shelves_table, whole_table, with_keys

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
        self.shelves = shelves_table(table, dialect)
        order = in_order(table)
        is_due = table.c.next_attempt <= dialect.undisclosed(bindparam("at", type_=UtcDateTime))
        limit = bindparam("limit", type_=Integer)
        due = select(*message_columns(table)).where(is_due).order_by(*order).limit(limit)
        position = [bindparam(_AFTER + column.name, type_=column.type) for column in order]
        is_behind = dialect.behind(order, position)
        if dialect.claiming is Claiming.ROW_LOCKS:
            shelf, location = dialect.location(table)
            located = due.add_columns(shelf.label(SHELF), location.label(LOCATION))
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
        self.insert = dialect.insert_message(table, self.shelves).execution_options(preserve_rowcount=True)
        self.insert_alone = dialect.insert_alone(table, self.shelves).execution_options(preserve_rowcount=True)
        self.insert_and_notify = dialect.insert_and_notify(table, self.shelves) if dialect.has_notifications else None
        self.insert_enlisted = dialect.insert_enlisted(table, self.shelves) if dialect.has_notifications else None
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
