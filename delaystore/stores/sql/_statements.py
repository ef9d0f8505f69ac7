"""The statements of one table, built once, compiled once by SQLAlchemy's cache."""

from typing import Any, Final, TypeVar

from sqlalchemy import BindParameter, Integer, Select, Table, bindparam, delete, false, func, null, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from delaystore.message import Position
from delaystore.sql.columns import in_order, message_columns
from delaystore.sql.dialects import Claiming, StoreDialect
from delaystore.sql.dialects.base import row_with
from delaystore.sql.dialects.sqlite import not_lost
from delaystore.sql.types import UtcDateTime

LOOK_AHEAD: Final = 1000
"""Of how many messages, by next attempt, `status` looks at the due time; as many as are fetched at once."""
_AFTER: Final = "after_"
_S = TypeVar("_S")


def search(beginning: _S, behind: _S, after: Position | None) -> tuple[_S, dict[str, Any]]:
    """The statement that searches behind `after` (None: from the beginning), and what it takes for the position."""
    if after is None:
        return beginning, {}
    return behind, {_AFTER + name: value for name, value in after._asdict().items()}


class Statements:
    """Parameters: `at`, `limit`, `id`, `ids`, `now`, `new_due_time`, `channel`, `payload`, and those of a position."""

    def __init__(self, table: Table, dialect: StoreDialect) -> None:
        self.table = table
        order = in_order(table)
        is_due = table.c.next_attempt <= bindparam("at", type_=UtcDateTime)
        limit = bindparam("limit", type_=Integer)
        due = select(*message_columns(table)).where(is_due).order_by(*order).limit(limit)
        is_behind = dialect.behind(order, [bindparam(_AFTER + column.name, type_=column.type) for column in order])
        self.due = dialect.claimed(due, table)
        self.due_behind = dialect.claimed(due.where(is_behind), table)
        first = select(table.c.next_attempt).order_by(*order).limit(1)
        self.first = first
        self.first_behind = first.where(is_behind)
        ahead = select(table.c.due_time).order_by(*order).limit(LOOK_AHEAD)
        self.status = self._status(dialect, ahead)
        self.status_behind = self._status(dialect, ahead.where(is_behind))
        self.insert = dialect.insert(table).execution_options(preserve_rowcount=True)
        self.insert_and_notify = dialect.insert_and_notify(table) if dialect.has_notifications else None
        self.remove_many = dialect.remove_many(table)
        self.cancel = delete(table)
        new_time: BindParameter[Any] = bindparam("new_due_time")
        self.reschedule = update(table).values(due_time=new_time, next_attempt=new_time, failure_count=0)
        self.increment = (
            update(table)
            .where(row_with(table))
            .values(failure_count=table.c.failure_count + 1, next_attempt=bindparam("new_next_attempt"))
        )
        self.get = select(*message_columns(table)).where(row_with(table))
        self.page = select(*message_columns(table)).order_by(*order).limit(limit)
        self.page_behind = self.page.where(is_behind)
        self.count = select(func.count()).select_from(table)
        number = dialect.bucket(table.c.due_time, bindparam("seconds", type_=Integer)).label("number")
        self.numbered = select(number, table.c.destination).subquery("numbered")
        self.buckets = (
            select(self.numbered.c.number, func.count().label("messages"))
            .group_by(self.numbered.c.number)
            .order_by(self.numbered.c.number)
        )
        if dialect.claiming is Claiming.CANDIDATE_LOCKS:
            found = select(*order).where(is_due).order_by(*order).limit(limit)
            self.candidates = found
            self.candidates_behind = found.where(is_behind)
            locked = select(*message_columns(table)).where(dialect.among(table.c.message_id, "ids"), is_due)
            self.lock_candidates = dialect.claimed(locked.order_by(*order), table)
        if dialect.claiming is Claiming.LEASES:
            self._add_leases(table, dialect)

    def _status(self, dialect: StoreDialect, ahead: Select[Any]) -> Select[Any]:
        """One row of `now` (where the database has a clock), `read_only` and `first_due`."""
        due_times = ahead.subquery("ahead")
        first_due = select(func.min(due_times.c.due_time)).scalar_subquery()
        clock, read_only = dialect.clock(), dialect.read_only()
        return select(
            (null() if clock is None else clock).label("now"),
            (false() if read_only is None else read_only).label("read_only"),
            first_due.label("first_due"),
        )

    def _add_leases(self, table: Table, dialect: StoreDialect) -> None:
        """Claims as leases: `token` names the claimer, `lease_end` when the claim ends by itself."""
        lease: dict[str, Any] = {"claimed_by": bindparam("token"), "claimed_until": bindparam("lease_end")}
        free: dict[str, Any] = {"claimed_by": None, "claimed_until": None}

        def claim(statement: Select[Any]) -> ReturningUpdate[Any]:
            ids = statement.with_only_columns(table.c.message_id).scalar_subquery()
            return update(table).where(table.c.message_id.in_(ids)).values(lease).returning(*message_columns(table))

        mine = table.c.claimed_by == bindparam("token", type_=table.c.claimed_by.type)
        self.claim_due = claim(self.due)
        self.claim_due_behind = claim(self.due_behind)
        self.release = update(table).where(mine, dialect.among(table.c.message_id, "ids")).values(free)
        self.increment = self.increment.where(not_lost(table)).values(free)
        self.first = self.first.where(table.c.claimed_by.is_(None))
        self.first_behind = self.first_behind.where(table.c.claimed_by.is_(None))
        self.first_lease_end = select(func.min(table.c.claimed_until)).where(table.c.claimed_by.is_not(None))
