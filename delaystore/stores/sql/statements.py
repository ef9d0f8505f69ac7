"""The statements of one table, built once, compiled once by SQLAlchemy's cache."""

from typing import Any

from sqlalchemy import Integer, Select, Table, bindparam, func, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from delaystore.stores.sql.dialects import SqlDialect
from delaystore.stores.sql.dialects.base import Claiming, row_with
from delaystore.stores.sql.dialects.sqlite import not_lost
from delaystore.stores.sql.rows import message_columns
from delaystore.stores.sql.types import UtcDateTime


class Statements:
    """Parameters: `at`, `limit`, `mark_time`, `mark_id`, `id`, `ids`, `now`, `channel`, `payload`."""

    def __init__(self, table: Table, dialect: SqlDialect) -> None:
        self.table = table
        order = (table.c.next_attempt, table.c.message_id)
        is_due = table.c.next_attempt <= bindparam("at", type_=UtcDateTime)
        due = dialect.limited(select(*message_columns(table)).where(is_due).order_by(*order))
        behind = dialect.behind(table, "mark_time", "mark_id")
        self.due = dialect.claimed(due, table)
        self.due_behind = dialect.claimed(due.where(behind), table)
        first = select(table.c.next_attempt).order_by(*order).limit(1)
        self.first = first
        self.first_behind = first.where(behind)
        self.insert = dialect.insert(table).execution_options(preserve_rowcount=True)
        self.insert_and_notify = dialect.insert_and_notify(table)
        self.remove_many = dialect.remove_many(table)
        self.increment = (
            update(table)
            .where(row_with(table))
            .values(failure_count=table.c.failure_count + 1, next_attempt=bindparam("new_next_attempt"))
        )
        self.get = select(*message_columns(table)).where(row_with(table))
        self.page = dialect.limited(select(*message_columns(table)).order_by(*order))
        self.page_behind = self.page.where(behind)
        self.count = select(func.count()).select_from(table)
        number = dialect.bucket(table.c.due_time, bindparam("seconds", type_=Integer)).label("number")
        self.numbered = select(number, table.c.destination).subquery("numbered")
        self.buckets = (
            select(self.numbered.c.number, func.count().label("messages"))
            .group_by(self.numbered.c.number)
            .order_by(self.numbered.c.number)
        )
        if dialect.claiming is Claiming.CANDIDATE_LOCKS:
            self._add_candidates(table, dialect)
        if dialect.claiming is Claiming.LEASES:
            self._add_leases(table, dialect)

    def _add_candidates(self, table: Table, dialect: SqlDialect) -> None:
        """The search without locks, and the locks."""
        due = table.c.next_attempt <= bindparam("at", type_=UtcDateTime)
        order = (table.c.next_attempt, table.c.message_id)
        found = dialect.limited(select(*reversed(order)).where(due).order_by(*order))
        self.candidates = found
        self.candidates_behind = found.where(dialect.behind(table, "mark_time", "mark_id"))
        locked = select(*message_columns(table)).where(dialect.among(table.c.message_id, "ids"), due)
        self.lock_candidates = dialect.claimed(locked.order_by(*order), table)

    def _add_leases(self, table: Table, dialect: SqlDialect) -> None:
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
