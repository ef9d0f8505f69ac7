"""What a dialect must say, and what most of them say alike."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from enum import Enum
from itertools import islice
from typing import Any, ClassVar, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Engine,
    Executable,
    Insert,
    Integer,
    Select,
    Table,
    Update,
    bindparam,
    delete,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from delaystore.errors import DuplicateMessageError
from delaystore.stores.abc import ManagementOutcome, WakeUpCallback, WakeUpSubscription
from delaystore.stores.sql.types import UtcDateTime

CHUNK: Final = 1000
"""Rows in one insert of `store_many`."""
NAMED_DUPLICATES: Final = 10
"""Message_ids that a DuplicateMessageError names at most."""
NEW_TIMES: Final = {
    "due_time": bindparam("new_due_time"),
    "next_attempt": bindparam("new_due_time"),
    "failure_count": 0,
}
"""What a reschedule sets."""


Change = Delete | Update


class Claiming(Enum):
    """How messages are claimed; see `claims`."""

    ROW_LOCKS = "row locks"
    CANDIDATE_LOCKS = "candidate locks"
    LEASES = "leases"


class SqlDialect(ABC):
    """One database's way of claiming, inserting, cancelling and waking."""

    claiming: ClassVar[Claiming] = Claiming.ROW_LOCKS
    """How messages are claimed."""
    single_statement_isolation: ClassVar[str | None] = None
    """The isolation level under which one statement commits itself without a round trip more; None: there is none."""
    transaction_isolation: ClassVar[str | None] = "READ COMMITTED"
    """The isolation level claims need; None: the database has but one."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.dialect.name

    @abstractmethod
    def clock(self) -> ColumnElement[datetime] | None:
        """The database's own UTC clock; None: this computer's is the one."""

    @abstractmethod
    def bucket(self, column: ColumnElement[datetime], seconds: ColumnElement[int]) -> ColumnElement[int]:
        """The number of the bucket of that length, counted from 1970, that an instant falls into."""

    @abstractmethod
    def setup_lock(self, connection: Connection, name: str) -> AbstractContextManager[None]:
        """Keep other processes out of a table's set-up until the block ends; begins the transaction."""

    def claimed(self, statement: Select[Any], table: Table) -> Select[Any]:  # noqa: ARG002 - for overriders
        """`statement`, locking the rows it finds and passing over those others have locked."""
        return statement.with_for_update(skip_locked=True)

    def limited(self, statement: Select[Any]) -> Select[Any]:
        """`statement`, returning at most as many rows as the parameter `limit` says."""
        return statement.limit(bindparam("limit", type_=Integer))

    def behind(self, table: Table, time: str, message_id: str) -> ColumnElement[bool]:
        """Whether a row lies behind the place given by two parameters, in the order of attention."""
        place = tuple_(bindparam(time, type_=UtcDateTime), bindparam(message_id, type_=table.c.message_id.type))
        return tuple_(table.c.next_attempt, table.c.message_id) > place

    def among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        """Whether a column's value is in a list parameter."""
        return column.in_(bindparam(name, expanding=True))

    def remove_many(self, table: Table) -> Executable:
        """Delete the rows of the list parameter `ids`."""
        return delete(table).where(self.among(table.c.message_id, "ids"))

    def insert(self, table: Table) -> Insert:
        """An insert of one row, that either inserts nothing or raises IntegrityError for a message_id that exists."""
        return insert(table)

    def is_duplicate(self, error: IntegrityError) -> bool:  # noqa: ARG002 - for overriders
        """Whether `error`, of an insert, says that the message_id exists; False where `insert` then inserts nothing."""
        return False

    @contextmanager
    def savepoint(self, connection: Connection) -> Iterator[None]:
        """Undo what the block wrote, and only that, when it raises."""
        with connection.begin_nested():
            yield

    def insert_many(self, connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> int:
        """Insert rows in bulk; returns how many. Raises DuplicateMessageError; the caller undoes what went before."""
        statement, iterator, count = insert(table), iter(rows), 0
        while chunk := list(islice(iterator, CHUNK)):
            try:
                with self.savepoint(connection):
                    connection.execute(statement, chunk)
            except IntegrityError:
                duplicates = self._duplicates(connection, table, [row["message_id"] for row in chunk])
                if not duplicates:
                    raise
                raise DuplicateMessageError(duplicates) from None
            count += len(chunk)
        return count

    def _duplicates(self, connection: Connection, table: Table, ids: Sequence[str]) -> Sequence[str]:
        """Some of `ids` that are there twice, or already in the table."""
        twice = [message_id for message_id, number in Counter(ids).items() if number > 1]
        existing = select(table.c.message_id).where(self.among(table.c.message_id, "ids"))
        return (twice + list(connection.execute(existing, {"ids": ids}).scalars()))[:NAMED_DUPLICATES]

    def cancel(self, connection: Connection, table: Table, message_id: str, now: datetime) -> ManagementOutcome:
        """Delete a row unless it is claimed; never waits."""
        return self.if_free(connection, table, delete(table), {"id": message_id}, now)

    def reschedule(
        self, connection: Connection, table: Table, message_id: str, due_time: datetime, now: datetime
    ) -> ManagementOutcome:
        """Give a row a new due time unless it is claimed; never waits."""
        change = update(table).values(NEW_TIMES)
        return self.if_free(connection, table, change, {"id": message_id, "new_due_time": due_time}, now)

    @abstractmethod
    def if_free(
        self, connection: Connection, table: Table, change: Change, values: dict[str, Any], now: datetime
    ) -> ManagementOutcome:
        """Do `change` to the row of the value `id`, unless it is claimed (at `now`, where claims end by themselves)."""

    def storage_options(self) -> Sequence[str]:
        """Statements, with `{table}` for the quoted name, that tune a new table."""
        return ()

    def insert_and_notify(self, table: Table) -> Executable | None:  # noqa: ARG002 - for overriders
        """`insert` that also wakes dispatchers, in one statement that returns the message_id; None: there is none.

        Its parameters are `channel`, `payload`, and the columns with the prefix `new_`.
        """
        return None

    def notify(self, connection: Connection, channel: str, payload: str) -> None:  # noqa: B027 - not all can
        """Wake the dispatchers that listen to `channel`, when the transaction commits."""

    def listen(self, engine: Engine, channel: str, on_wake_up: WakeUpCallback) -> WakeUpSubscription | None:  # noqa: ARG002 - for overriders
        """Listen to `channel`; None: this database cannot wake anybody."""
        return None


def row_with(table: Table) -> ColumnElement[bool]:
    """Whether a row is the one of the parameter `id`."""
    return table.c.message_id == bindparam("id", type_=table.c.message_id.type)


def exists_now(connection: Connection, table: Table, message_id: str) -> bool:
    """Whether the row exists, locked or not (SQL Server would wait for the lock)."""
    statement = select(table.c.message_id).with_hint(table, "WITH (NOLOCK)", "mssql").where(row_with(table))
    return connection.execute(statement, {"id": message_id}).first() is not None


def outcome_of(connection: Connection, table: Table, message_id: str, changed: int) -> ManagementOutcome:
    """What a cancel or reschedule that changed so many rows has done."""
    if changed:
        return ManagementOutcome.DONE
    if exists_now(connection, table, message_id):
        return ManagementOutcome.BEING_DISPATCHED
    return ManagementOutcome.NOT_FOUND
