"""The statements of one table, built once, compiled once by SQLAlchemy's cache."""

from typing import Any

from sqlalchemy import Integer, Select, Table, bindparam, delete, func, literal_column, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from delaystore.stores.sql.dialects import SqlDialect
from delaystore.stores.sql.dialects.base import row_with
from delaystore.stores.sql.rows import message_columns
from delaystore.stores.sql.types import UtcDateTime


class Statements:
    """Parameters: `at`, `limit`, `mark_time`, `mark_id`, `id`, `ids`, `now`, `channel`, `payload`."""

    def __init__(self, table: Table, dialect: SqlDialect) -> None:
        self.table = table
        order = (table.c.next_attempt, table.c.message_id)
        due = (
            select(*message_columns(table))
            .where(table.c.next_attempt <= bindparam("at", type_=UtcDateTime))
            .order_by(*order)
            .limit(bindparam("limit", type_=Integer))
        )
        behind = dialect.behind(table, "mark_time", "mark_id")
        self.due = dialect.claimed(due, table)
        self.due_behind = dialect.claimed(due.where(behind), table)
        first = select(table.c.next_attempt).order_by(*order).limit(1)
        self.first = first
        self.first_behind = first.where(behind)
        self.insert = dialect.insert(table)
        self.insert_and_notify = dialect.insert_and_notify(table)
        self.remove = delete(table).where(row_with(table))
        self.remove_many = delete(table).where(dialect.among(table.c.message_id, "ids"))
        self.increment = (
            update(table)
            .where(row_with(table))
            .values(failure_count=table.c.failure_count + 1, next_attempt=bindparam("new_next_attempt"))
        )
        self.get = select(*message_columns(table)).where(row_with(table))
        self.page = select(*message_columns(table)).order_by(*order).limit(bindparam("limit", type_=Integer))
        self.page_behind = self.page.where(behind)
        self.count = select(func.count()).select_from(table)
        number = dialect.bucket(table.c.due_time, bindparam("seconds", type_=Integer)).label("number")
        self.buckets = (
            select(number, func.count()).group_by(literal_column("number")).order_by(literal_column("number"))
        )
        if dialect.claims_by_lease:
            self._add_leases(table, dialect)

    def _add_leases(self, table: Table, dialect: SqlDialect) -> None:
        """Claims as leases: `token` names the claimer, `lease_end` when the claim ends by itself."""
        mine = table.c.claimed_by == bindparam("token", type_=table.c.claimed_by.type)
        not_lost = table.c.claimed_by.is_(None) | mine
        lease = {"claimed_by": bindparam("token"), "claimed_until": bindparam("lease_end")}
        free = {"claimed_by": None, "claimed_until": None}

        def claim(statement: Select[Any]) -> ReturningUpdate[Any]:
            ids = statement.with_only_columns(table.c.message_id).scalar_subquery()
            return update(table).where(table.c.message_id.in_(ids)).values(lease).returning(*message_columns(table))

        self.claim_due = claim(self.due)
        self.claim_due_behind = claim(self.due_behind)
        self.release = update(table).where(mine, dialect.among(table.c.message_id, "ids")).values(free)
        self.remove = self.remove.where(not_lost)
        self.remove_many = self.remove_many.where(not_lost)
        self.increment = self.increment.where(not_lost).values(free)
        self.first = self.first.where(table.c.claimed_by.is_(None))
        self.first_behind = self.first_behind.where(table.c.claimed_by.is_(None))
        self.first_lease_end = select(func.min(table.c.claimed_until)).where(table.c.claimed_by.is_not(None))
