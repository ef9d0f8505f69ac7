"""The base of all dialects, and the common parts of most dialects."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice
from typing import Any, ClassVar, Final

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Delete,
    Engine,
    Executable,
    FromClause,
    Index,
    Insert,
    Select,
    Table,
    Update,
    bindparam,
    case,
    delete,
    func,
    insert,
    inspect,
    literal,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError

from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError
from delaystore.message import EARLIEST_DUE_TIME, MARKS, marked
from delaystore.stores.sql._history import EntryInserts, NewEntries
from delaystore.stores.sql.codec import UtcDateTime, in_order
from delaystore.stores.sql.drivers import Driver, driver_of
from delaystore.stores.sql.faults import Code, Fault, HostsInTurn, TableSize, code_of
from delaystore.stores.sql.rows import MessageRows

CONNECT_TIMEOUT: Final = 10
"""Seconds to wait for a server to answer a connection."""
CHUNK: Final = 1000
"""Rows in one insert of `insert_many`."""
LONGEST_IDLE: Final = 300
"""Seconds after which the database ends a dispatcher's transaction that says nothing: its host has vanished."""
PREPARED: Final = "delaystore_prepared"
"""The key of a connection's `info` that holds the result of `prepare`."""
OWN: Final = "delaystore_own"
"""The execution option of connections whose transactions are ours, and no caller's."""
BINARY: Final = "delaystore_binary"
"""The execution option of statements whose values the driver is to fetch in binary form, where it knows two forms."""
LONGEST_LOCK_WAIT: Final = 2_000_000
"""Seconds; PostgreSQL and SQLite count milliseconds in 32 bits."""

_MARKS: Final = literal_column(str(MARKS // timedelta(microseconds=1) - 1), BigInteger)
"""The most microseconds by which two times differ that differ by nothing but marks."""

Pair = Sequence[ColumnElement[Any]]
"""A time and an id: two columns, or the values of a position in their order."""
StatementChange = Delete | Update
RowChanges = Callable[[Any], tuple[Mapping[str, Any], ColumnElement[bool] | None]]
"""Makes, of the columns of a row that shall be inserted, the values for the row that is there, and a condition."""
Release = Callable[[], None]
"""Ends a lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """Something about the tables that is not as `delaystore setup` makes it.

    `text`: the defect, and after a semicolon the remedy, in one line. `is_obstacle`: until it is repaired, dispatchers
    cannot work, or messages may be lost. `missing`: the part that `setup` makes, such as "the index
    'sales_delayed_due'"; None: it only reports the defect.
    """

    text: str
    is_obstacle: bool = False
    missing: str | None = None


def made_by_setup(what: str, how: str = "missing", *, is_obstacle: bool = False) -> Defect:
    """The defect of `what`, such as "index 'sales_delayed_due'", that `delaystore setup` makes."""
    text = f"the {what} is {how}; run `delaystore setup` as a user who may change the tables"
    return Defect(text=text, is_obstacle=is_obstacle, missing=f"the {what}")


class Claiming(Enum):
    """How messages are claimed."""

    ROW_LOCKS = "row locks"
    CANDIDATE_LOCKS = "candidate locks"
    LEASES = "leases"


class SqlDialect(ABC):
    """One database: its clock, its locks, its order, its errors, its names."""

    default_driver: ClassVar[str | None] = None
    """The driver of a URL that names none; None: SQLAlchemy's own default."""
    async_drivers: ClassVar[Sequence[str]] = ()
    """The drivers for event loops; a URL that names none gets the first."""
    connect_arguments: ClassVar[Mapping[str, Any]] = {}
    """Arguments for the driver, such as time limits; the URL's query overrides them."""
    max_identifier_bytes: ClassVar[int]
    """The longest name. PostgreSQL cuts longer ones silently, so that two of them could mean one table."""
    is_file: ClassVar[bool] = False
    """Whether the database is a file that this process opens, not a server."""
    needs_primary_key: ClassVar[bool] = False
    """Whether only a search by primary key does not run into rows that others have locked."""
    takes_trailing_space: ClassVar[bool] = True
    """Whether a name may end with a space."""
    folds_names: ClassVar[bool] = False
    """Whether an unquoted name means its lower case."""
    may_ignore_capitals: ClassVar[bool] = False
    """Whether two tables' names that differ in capitals alone may mean one table."""
    reserved_prefix: ClassVar[str | None] = None
    """The prefix that no table's name may have, in upper or lower case; None: every prefix may be used."""
    transaction_isolation: ClassVar[str | None] = "READ COMMITTED"
    """The isolation level that claims need, with any default; None: the database has but one."""
    single_statement_isolation: ClassVar[str | None] = None
    """The isolation level in which one statement commits on its own, without another round trip; None: there is
    none."""
    default_port: ClassVar[int | None] = None
    """Where servers listen unless a URL says otherwise; None: its URLs name one host, or none."""
    several_hosts: ClassVar[Mapping[str, str]] = {}
    """Defaults of the query of a URL with several hosts."""
    code_type: ClassVar[type[Code] | None] = None
    """The numbering of its errors, which tells them from others'; None: they have no number."""
    faults: ClassVar[Mapping[Code, Fault]] = {}
    """The errors that callers act on, by their codes."""

    def __init__(self, name: str) -> None:
        self.name = name
        """SQLAlchemy's name of the database."""

    # Connections: which drivers will do, and what a new connection needs before the first statement.

    def check_driver(self, driver: str) -> None:  # noqa: B027 - most drivers will do
        """Raise ConfigurationError for a driver that lacks a required ability."""

    def connect(
        self,
        dialect: Dialect,
        arguments: Sequence[Any],
        parameters: Mapping[str, Any],
        hosts: HostsInTurn,  # noqa: ARG002 - for overriders
    ) -> Any:
        """A new connection of the driver's; of several `hosts`, to the first that will do."""
        return driver_of(dialect).connect(dialect, arguments, parameters)

    def prepare(self, connection: Any, driver: Driver, *, heed_pooler: bool) -> bool | None:  # noqa: B027 - for overriders
        """Set what statements rely on in a new connection of the driver's, which is in no transaction.

        True: all settings are ours, until the connection ends.

        `heed_pooler`: prepare no statements where a pooler is between, which may give the next one to another session.
        """

    def set_utc(self, engine: Engine) -> None:  # noqa: B027 - most need nothing
        """See to it that each connection reads and writes times without a zone as UTC."""

    # The clock and errors: databases tell the time, and what went wrong, each in words of its own.

    @abstractmethod
    def clock(self) -> ColumnElement[datetime] | None:
        """The database's own UTC clock; None: it uses this computer's."""

    def fault(self, error: DBAPIError) -> Fault | None:
        """The meaning of `error`; None: nothing that callers act on, or another database's error."""
        code = code_of(error)
        return None if code is None else self.faults.get(code)

    # Searches: the order of positions, and how a search finds rows by index and past the locks of others.

    def limited(self, statement: Select[Any], limit: int) -> Select[Any]:
        """The first rows of `statement`."""
        return statement.limit(limit)

    def behind(self, columns: Pair, position: Pair) -> ColumnElement[bool]:
        """Whether a row lies behind a position in the order of two columns."""
        return tuple_(*columns) > tuple_(*position)

    def up_to(self, columns: Pair, position: Pair) -> ColumnElement[bool]:
        """Whether a row does not lie behind a position in the order of two columns."""
        return tuple_(*columns) <= tuple_(*position)

    def lock_free(self, statement: Select[Any], table: Table) -> Select[Any]:  # noqa: ARG002 - for overriders
        """`statement` as a search that waits for no lock."""
        return statement

    def locked(self, statement: Select[Any], table: Table) -> Select[Any]:  # noqa: ARG002 - for overriders
        """`statement` as one that locks the rows it finds, and skips rows that others have locked."""
        return statement.with_for_update(skip_locked=True)

    def by_primary_key(self, statement: Select[Any], table: Table) -> Select[Any]:  # noqa: ARG002 - for overriders
        """`statement` as one that finds its rows by primary key, where `needs_primary_key`."""
        return statement

    def bytewise(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """The value of `column` for grouping byte by byte."""
        return column

    def prefer_indexes(self, connection: Connection) -> None:  # noqa: B027 - most need nothing
        """See to it that the transaction finds its rows by index, independent of statistics."""

    # Rights and locks of a session: only the database knows who may create tables, and who is the one at work.

    def may_create(self, connection: Connection, schema: str | None) -> bool:  # noqa: ARG002 - for overriders
        """Whether tables may be created; True also where the database does not say."""
        return True

    @abstractmethod
    def take_lock(self, connection: Connection, name: str, owner: str) -> Release | None:
        """Take the lock `name` for as long as the connection lives; None: another session has it.

        `owner`: the value that `lock_owner` shall return, where the database itself does not know who has the lock.
        """

    @abstractmethod
    def lock_owner(self, connection: Connection, name: str) -> str | None:
        """Which session has the lock; None: none has, or the database does not say."""

    def begin_writing(self, connection: Connection) -> None:
        """Begin a transaction for writing, unless one has begun: the driver's own cursor may write then, too."""
        if not connection.in_transaction():
            connection.begin()


# Abilities that only some databases have. A dialect has one if its class derives from the ability; a caller asks the
# attribute of StoreDialect, which is None for a database without it.


class LocatedRows(ABC):
    """Rows that are found again by their location for as long as they are locked."""

    @abstractmethod
    def location(self, table: Table) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        """In which partition a row of `table` lies (NULL: in none), and where there, while the row is locked."""

    @abstractmethod
    def remove_located(self, table: Table, entries: EntryInserts | None = None) -> Executable:
        """Delete the rows that this transaction has locked of those at the list parameter `locations` of `table`.

        `entries`: the inserts of their entries in the history; None: none are made.
        """


class CandidateRows(ABC):
    """Keys where claims are candidate locks: the row is looked up, locked and then changed."""

    @abstractmethod
    def reads_older_rows(self, connection: Connection) -> bool:
        """Whether the transaction reads rows as they were when it began, but locks present rows, and gaps beside
        them.
        """

    @abstractmethod
    def is_taken(self, connection: Connection, table: Table, message_id: str, key: str | None = None) -> bool:
        """Whether the message_id or the key is in use by now, also beyond the transaction's snapshot.

        Raises an error that is LOCKED where another open transaction decides it.
        """

    @abstractmethod
    def is_of_primary_key(self, error: DBAPIError) -> bool:
        """Whether an error that is a DUPLICATE is about the primary key."""


class KeyUpserts(ABC):
    """Keys where claims are row locks or leases: one statement decides."""

    notes_replaced: ClassVar[bool] = False
    """Whether that statement can also insert the entry of the message that it replaces."""

    @abstractmethod
    def insert_keyed(
        self,
        table: Table,
        partitions: Table | None,
        names: Sequence[str],
        changes: RowChanges,
        lock_timeout: float,
        entries: EntryInserts | None = None,
    ) -> Executable:
        """An insert of one row, of the columns `names`, that changes the row with its key instead, unless that is
        claimed.

        It returns the message_id and the next attempt of the row; none, or NULL, for a claimed row, for one that does
        not meet the condition of `changes`, and for a message_id in one of `partitions`. Where rows have locks it waits
        `lock_timeout` seconds for one. `entries`: see `notes_replaced`; with them, nothing is returned and written also
        where another transaction has stored a message with the key since the statement began.
        """


class Notifications(ABC):
    """One connection wakes another; without them dispatchers poll."""

    @abstractmethod
    def insert_and_notify(self, table: Table, partitions: Table | None, names: Sequence[str]) -> Executable:
        """`insert_alone` that also wakes dispatchers, in one statement that returns the message_id.

        Its parameters are `channel`, `payload`, and the columns with the prefix `new_`.
        """

    @abstractmethod
    def insert_enlisted(self, table: Table, partitions: Table | None, names: Sequence[str]) -> Executable:
        """`insert_and_notify` in a caller's transaction; it returns NULL where nothing was inserted."""

    @abstractmethod
    def notify(self, connection: Connection, channel: str, payload: str) -> None:
        """Wake the dispatchers that listen to `channel`, when the transaction commits."""


class BulkTables(ABC):
    """Bulk partitions: tables of a bulk load that the database reads with the endpoint's own, as one."""

    @abstractmethod
    def remove_partitioned(
        self, connection: Connection, partition: Any, locations: Sequence[Any], entries: NewEntries | None = None
    ) -> int:
        """As `LocatedRows.remove_located`, in a partition; returns how many rows: 0 where our role may not do that."""

    @abstractmethod
    def is_announced(self, partitions: Table, table: Table) -> ColumnElement[bool]:
        """Whether a row of `partitions` is in one that is not attached to `table`."""

    @abstractmethod
    def grant_alike(self, connection: Connection, table: Table, like: Table) -> None:
        """Give all roles the rights on `table` that they have on `like`."""

    @abstractmethod
    def open_to_senders(self, connection: Connection, partitions: Table, table: Table) -> None:
        """Let roles that may insert into `table` read `partitions`."""

    @abstractmethod
    def alter_partitions(self, connection: Connection, table: Table, partitions: Sequence[str]) -> None:
        """Give the `partitions` of `table` the parts that a change of it does not give them.

        These are the index of failed messages and, for partitions that are not attached, the column of failures.
        """


class StoreDialect(SqlDialect):
    """A database in which messages wait: how it claims, inserts, cancels and wakes."""

    claiming: ClassVar[Claiming] = Claiming.ROW_LOCKS
    """How messages are claimed."""
    table_options: ClassVar[Mapping[str, Any]] = {}
    """Options of SQLAlchemy's Table. SQLAlchemy loads all that it has of each database that options name."""
    history_options: ClassVar[Mapping[str, Any]] = {}
    """As `table_options`, of the history."""
    exports_snapshots: ClassVar[bool] = False
    """Whether several connections can read from one snapshot, and COPY rows out of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.located: LocatedRows | None = self if isinstance(self, LocatedRows) else None
        self.candidates: CandidateRows | None = self if isinstance(self, CandidateRows) else None
        self.upserts: KeyUpserts | None = self if isinstance(self, KeyUpserts) else None
        self.notifications: Notifications | None = self if isinstance(self, Notifications) else None
        self.bulk: BulkTables | None = self if isinstance(self, BulkTables) else None

    # Times: arithmetic on times in a statement, for which each database has functions of its own.

    def read_only(self) -> ColumnElement[bool] | None:
        """Whether the server takes no writes, as a standby does; None: that cannot be asked."""
        return None

    @abstractmethod
    def bucket(self, column: ColumnElement[datetime], seconds: ColumnElement[int]) -> ColumnElement[int]:
        """The number of the bucket that an instant falls into; buckets of `seconds` are counted from 1970."""

    @abstractmethod
    def microsecond(self, column: ColumnElement[datetime]) -> ColumnElement[int]:
        """The microseconds of an instant behind its second, or behind its minute."""

    def marked(self, due_time: ColumnElement[datetime]) -> ColumnElement[datetime]:
        """As `delaystore.message.marked`."""
        earliest, second = (literal(time, UtcDateTime) for time in (EARLIEST_DUE_TIME, marked(EARLIEST_DUE_TIME)))
        return case((due_time > earliest, self._microsecond_before(due_time)), else_=second)

    def unlike(self, due_time: ColumnElement[datetime], waiting: ColumnElement[datetime]) -> ColumnElement[datetime]:
        """The due time of a message that replaces another of its id, which has the due time `waiting`.

        As `delaystore.stores.shared.unlike`. Where nothing is replaced, `waiting` may be NULL.
        """
        is_same = (waiting <= due_time) & (self.capped(due_time, waiting, _MARKS) == due_time)
        return case((is_same, self.marked(waiting)), else_=due_time)

    @abstractmethod
    def _microsecond_before(self, time: ColumnElement[datetime]) -> ColumnElement[datetime]: ...

    def unmarked(self, table: FromClause) -> ColumnElement[datetime]:
        """The due time of a row as `delaystore.message.unmarked`."""
        due_time, next_attempt = table.c.due_time, table.c.next_attempt
        is_same = (self.capped(next_attempt, due_time, _MARKS) == next_attempt) & (
            self.capped(due_time, next_attempt, _MARKS) == due_time
        )
        return case((due_time == next_attempt, due_time), (is_same, next_attempt), else_=due_time)

    @abstractmethod
    def later(self, time: ColumnElement[datetime], microseconds: ColumnElement[int]) -> ColumnElement[datetime]:
        """So long after `time`, or before it."""

    def capped(
        self, at: ColumnElement[datetime], first: ColumnElement[datetime], microseconds: ColumnElement[int]
    ) -> ColumnElement[datetime]:
        """The earlier of `at`, and so long after `first`."""
        return func.least(at, self.later(first, microseconds), type_=UtcDateTime())

    def once_assigned(
        self,
        column: ColumnElement[Any],  # noqa: ARG002 - for overriders
        value: ColumnElement[Any],
    ) -> ColumnElement[Any]:
        """`value`, for the assignments of an UPDATE that come after the one of `value` to `column`."""
        return value

    @abstractmethod
    def moved(
        self, time: ColumnElement[datetime], since: ColumnElement[datetime], to: ColumnElement[datetime]
    ) -> ColumnElement[datetime]:
        """`time`, moved by as much as `to` is after `since`; NULL stays NULL.

        It is LATEST_DUE_TIME at the most, as in `delaystore.message.moved`.
        """

    def time_of_python(self, column: ColumnElement[datetime]) -> ColumnElement[datetime]:
        """A time that no check of the table keeps within those of Python; NULL for one that a driver cannot read."""
        return column

    # Claims: how a dispatcher takes rows that no other dispatcher has, and settles them.

    def claimed(self, statement: Select[Any], table: Table) -> Select[Any]:
        """`statement`, limited to rows that are not claimed; where claims are row locks, it takes them."""
        return self.locked(statement, table)

    def without_value_in_plan(self, parameter: ColumnElement[Any]) -> ColumnElement[Any]:
        """`parameter` as a bound that no plan is made for, where a plan made for its value may be a bad one."""
        return parameter

    def begin_claiming(self, connection: Connection) -> None:
        """Prepare our own transaction for claims by row locks.

        Its plans must not go by statistics, and it ends after LONGEST_IDLE seconds without a statement.
        """

    def among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        """Whether the value of `column` is in the list parameter `name`."""
        return column.in_(bindparam(name, expanding=True))

    def with_ids(self, table: Table) -> Select[Any]:
        """The message_ids in the table that are among the parameter `ids`."""
        return select(table.c.message_id).where(self.among(table.c.message_id, "ids"))

    def has_stored_id(self, table: Table) -> ColumnElement[bool]:
        """Whether a row's key is the parameter `id`, as in UnreadableMessage.stored_id."""
        return row_with(table)

    def remove_many(self, table: Table) -> Executable:
        """Delete the rows of the list parameter `ids`."""
        return delete(table).where(self.among(table.c.message_id, "ids"))

    def remove_with_entries(
        self,
        connection: Connection,
        removal: Executable,
        where: Sequence[ColumnElement[bool]],
        values: Mapping[str, Any],
        entries: NewEntries | None,
    ) -> int:
        """Do `removal` of the claimed rows that meet `where`, with their entries, if any; returns how many rows."""
        if entries is not None:
            self.insert_entries(connection, where, values, entries)
        return connection.execute(removal, values).rowcount

    def insert_entries(
        self,
        connection: Connection,
        where: Sequence[ColumnElement[bool]],
        values: Mapping[str, Any],
        entries: NewEntries,
    ) -> None:
        """Insert the entries of rows that meet `where`, and that no other session can change before they are
        removed.
        """
        connection.execute(entries.inserts.from_rows(*where), {**values, **entries.values})

    @abstractmethod
    def sha256(self, body: ColumnElement[bytes]) -> ColumnElement[bytes]:
        """The SHA-256 of a body, as bytes."""

    def delete_locked(self, connection: Connection, table: Table, column: str, numbers: Sequence[int]) -> None:
        """Delete the rows with these numbers in their primary key `column`, which are locked; touch no others."""
        statement = delete(table).where(table.c[column] == bindparam("number"))
        connection.execute(statement, [{"number": number} for number in numbers])

    @abstractmethod
    def change_unclaimed(
        self,
        connection: Connection,
        table: Table,
        change: StatementChange,
        values: dict[str, Any],
        now: datetime,
        returning: ColumnElement[Any] | None = None,
        entries: NewEntries | None = None,
    ) -> tuple[bool | None, Any]:
        """Do `change` to the row whose id is `values["id"]`, unless it is claimed (a lease: at `now`).

        Never waits. True: it is done; False: the row is claimed; None: there is none. With it, the value that the
        column `returning` of a changed row had, if one is named; `change` leaves that as it is, or deletes the row.
        `entries`: the entry that a deleted row gets; None: none.
        """

    @abstractmethod
    def change_unclaimed_of(
        self,
        connection: Connection,
        table: Table,
        change: StatementChange,
        ids: Sequence[str] | None,
        matches: Sequence[ColumnElement[bool]],
        values: Mapping[str, Any],
        now: datetime,
        returning: ColumnElement[Any] | None = None,
        entries: NewEntries | None = None,
    ) -> Mapping[str, Any]:
        """Do `change` to those rows of `ids` that match, and that are not claimed (a lease: at `now`).

        It waits for no other transaction. Without `ids`, it changes all such rows that match. Returns the value of
        `returning` by the id of each changed message. `entries`: as in `change_unclaimed`.
        """

    def delete_neighbours(
        self,
        connection: Connection,  # noqa: ARG002 - for overriders
        table: Table,  # noqa: ARG002
        first: Select[Any],  # noqa: ARG002
        matches: Sequence[ColumnElement[bool]],  # noqa: ARG002
        size: int,  # noqa: ARG002
        entries: NewEntries | None = None,  # noqa: ARG002
    ) -> tuple[str, int] | None:
        """Delete about `size` rows that match, and that are not claimed, near the one whose id the query `first` finds.

        Returns that id, and the number of deleted rows. None: there is none, or rows lie in the order of their ids.
        """
        return None

    # Inserts: a duplicate must not end the caller's transaction, and the wait for another one is bounded.

    def insert(self, table: Table) -> Insert:
        """An insert of one row that inserts nothing for a key that exists, or raises an error that is a DUPLICATE."""
        return insert(table)

    def insert_message(self, table: Table, partitions: Table | None, names: Sequence[str]) -> Insert:  # noqa: ARG002 - for overriders
        """`insert` that also inserts nothing for a key that is in one of `partitions`; `names`: the row's columns."""
        return self.insert(table)

    def insert_alone(self, table: Table, partitions: Table | None, names: Sequence[str]) -> Insert:
        """`insert_message`, alone in its transaction: our own caller may be whom it waits for."""
        return self.insert_message(table, partitions, names)

    def inserting(self, connection: Connection) -> AbstractContextManager[None]:  # noqa: ARG002 - for overriders
        """`insert_message` in the block waits no longer for others than it says, where the statement cannot say so."""
        return nullcontext()

    def storing(self, connection: Connection, *, alone: bool) -> AbstractContextManager[None]:  # noqa: ARG002 - for overriders
        """A bulk insert in the block waits no longer for others than the insert of one message does.

        `alone`: in a transaction of our own, which does nothing else.
        """
        return nullcontext()

    def insert_many(
        self,
        connection: Connection,
        table: Table,
        partitions: Table | None,  # noqa: ARG002 - for overriders
        rows: MessageRows,
    ) -> int:
        """Insert rows in bulk, unless one's id is there or in `partitions`; returns how many.

        Raises DuplicateMessageError, claimed or not, and MessageBeingDispatchedError where it has waited for a
        claimed one, and all that are there are claimed; the caller undoes earlier writes.
        """
        statement, count = insert(table), 0
        while rows.begin(connection):
            chunk = list(islice(rows.by_column(), CHUNK))
            ids = [row["message_id"] for row in chunk]
            try:
                with self.savepoint(connection):
                    connection.execute(statement, chunk)
            except IntegrityError:
                twice = [message_id for message_id, number in Counter(ids).items() if number > 1]
                duplicates = twice + self._there(connection, table, ids)
                if not duplicates:
                    raise
                raise DuplicateMessageError(duplicates) from None
            except OperationalError as error:
                waited = self.claiming is Claiming.CANDIDATE_LOCKS and self.fault(error) is Fault.LOCKED
                there = self._there(connection, table, ids) if waited else []
                if not there:
                    raise
                free = self.claimed(self.with_ids(table), table)
                unclaimed = connection.execute(free, {"ids": there}).scalars().all()
                if unclaimed:
                    raise DuplicateMessageError(unclaimed) from None
                raise MessageBeingDispatchedError(there) from None
            count += len(chunk)
        return count

    def _there(self, connection: Connection, table: Table, ids: Sequence[str]) -> list[str]:
        """Those of `ids` that are in the table."""
        return list(connection.execute(self.with_ids(table), {"ids": ids}).scalars())

    def is_message_id_locked(self, error: DBAPIError) -> bool:
        """Whether an insert's error may say that it waited for another transaction's message_id, not for a table."""
        return self.fault(error) is Fault.LOCKED

    def duplicates_in(self, error: DBAPIError) -> Sequence[str]:  # noqa: ARG002 - for overriders
        """The message_ids that an error names which is a DUPLICATE; none where the database names none."""
        return []

    # What has failed before: found by an index of its own.

    def failing_columns(self) -> Sequence[Column[Any]]:
        """Columns that a table needs so that messages that have failed before are found by index."""
        return ()

    def is_failing(self, table: Table) -> ColumnElement[bool]:
        """Whether forwarding a row's message has failed before, as the index of such rows says it."""
        return table.c.failure_count > literal_column("0")

    def failing_order(self, table: Table) -> list[ColumnElement[Any]]:
        """The columns by which that index is ordered: those of a position."""
        return in_order(table)

    def last_part(self, text: ColumnElement[str], length: int) -> ColumnElement[str]:
        """The last `length` characters of `text`."""
        return func.right(text, literal_column(str(length)), type_=text.type)

    # Transactions: savepoints, waits for locks, and whether a commit outlives its server.

    def savepoint(self, connection: Connection) -> AbstractContextManager[object]:
        """Undo the block's writes, and only these, when it raises."""
        return connection.begin_nested()

    @contextmanager
    def lock_wait(self, connection: Connection, seconds: float) -> Iterator[None]:
        """Let no statement in the block wait longer than `seconds` for a lock; the transaction must end with the block.

        MySQL and MariaDB take whole seconds, at least one.
        """
        restoring = self.limit_lock_wait(connection, min(seconds, LONGEST_LOCK_WAIT))
        try:
            yield
        finally:
            if restoring is not None and not connection.invalidated:
                _restore(connection, restoring)

    @contextmanager
    def brief_wait(self, connection: Connection, seconds: float, *, exactly: bool = False) -> Iterator[None]:  # noqa: ARG002 - for overriders
        """A savepoint in which statements wait no longer than `seconds` for a lock; the limit ends with the block.

        `exactly`: so long even where the session's own limit is shorter.
        """
        with self.savepoint(connection), self.lock_wait(connection, seconds):
            yield

    @abstractmethod
    def limit_lock_wait(self, connection: Connection, seconds: float) -> str | None:
        """Set the limit of `lock_wait`; returns the statement that undoes it; None: the transaction's end does."""

    def watch_commit(self, connection: Connection, *, alone: bool = False) -> bool:  # noqa: ARG002 - for overriders
        """Have `check_commit` tell of the commits of `connection` from now on.

        `alone`: each statement commits on its own. False: it cannot tell of these, so use a transaction.
        """
        return True

    def check_commit(self, connection: Connection) -> None:
        """Raise DurabilityUnknownError where a commit since `watch_commit` may not outlive its server."""

    def is_outage(self, error: DBAPIError) -> bool:
        """Whether `error` is about the state of the database, not about the rows."""
        return isinstance(error, OperationalError | InterfaceError)

    def has_ended_transaction(self, error: DBAPIError, connection: Connection) -> bool:  # noqa: ARG002 - for overriders
        """Whether `error` may have undone the whole transaction on `connection`, and not its statement alone."""
        return error.connection_invalidated

    def end_idle_sessions(self, engine: Engine) -> None:
        """End the connections of `engine` after LONGEST_IDLE seconds without a statement."""

    # Set-up and repair: what tables need beyond their columns, and what may be wrong with them.

    @abstractmethod
    def setup_lock(self, connection: Connection, name: str) -> AbstractContextManager[None]:
        """Keep other processes out of a table's set-up until the block ends; begins the transaction."""

    def alter_with_short_locks(self, connection: Connection, alter: Callable[[], None]) -> None:  # noqa: ARG002 - for overriders
        """Do `alter` to a table in use, so that others wait behind it only for a moment.

        Raises StoreUnavailableError where another transaction does not release the table.
        """
        alter()

    @contextmanager
    def locked_tables(self, connection: Connection, tables: Sequence[Table]) -> Iterator[None]:  # noqa: ARG002 - for overriders
        """Keep everybody else out of `tables`, which the block may drop; within `setup_lock`, all that SQLite needs."""
        yield

    def has_table(self, connection: Connection, table: Table) -> bool:
        """Whether `table` is there, perhaps in a caller's transaction: others may make it before that ends."""
        return inspect(connection).has_table(table.name, schema=table.schema)

    def allows_setup_on_second_connection(self, connection: Connection) -> bool:  # noqa: ARG002 - for overriders
        """Whether tables made by another connection could be used in the transaction that is open on this one."""
        return True

    def open_to_operators(self, connection: Connection, tables: Sequence[Table], table: Table) -> None:
        """Let roles that may delete from `table`, as dispatchers may, change `tables`; roles that may read it may
        read them.
        """

    def time_checks(self) -> Sequence[str]:
        """Statements, with `{table}` for the quoted name, that let a new table refuse times that Python does not have.

        One such row would make every fetch fail.
        """
        return ()

    def history_columns(self) -> Sequence[Column[Any]]:
        """Columns that the history needs besides those of an entry."""
        return ()

    def make_history(
        self, connection: Connection, history: str, partition_name: Callable[[str], str], table: Table
    ) -> None:
        """Complete the new table `history` beside `table`: its partition for any time, and the rights of roles.

        `partition_name`: makes the name of a partition of its end.
        """

    def partition_history(
        self,
        connection: Connection,
        history: Table,
        partition_name: Callable[[str], str],
        now: datetime,
        kept: timedelta,
    ) -> None:
        """Make the partitions that the history needs next, and drop those of entries that were kept long enough.

        `partition_name`: as in `make_history`. Commits.
        """

    def without_dated_partitions(self, history: Table, partition_name: Callable[[str], str]) -> Table:  # noqa: ARG002 - for overriders
        """The part of the history whose old entries are deleted, as it has no partitions that are dropped."""
        return history

    def storage_options(self) -> Sequence[str]:
        """Statements, with `{table}` for the quoted name, that tune a new table."""
        return ()

    def defects(self, connection: Connection, tables: Sequence[Table]) -> Iterable[Defect]:  # noqa: ARG002 - for overriders
        """Defects of `tables` that only this database can have, by one query; the first table has the messages.

        Tables that are missing are left out here: they are reported by name. `delaystore setup`, its `--check` and
        `health` report these; `health` only defects that keep dispatchers from working.
        """
        return ()

    def index_condition(self, condition: ColumnElement[bool]) -> Mapping[str, Any]:  # noqa: ARG002 - for overriders
        """Options of an Index of the rows that meet `condition`; where no index can be of some rows, it is of all."""
        return {}

    def has_condition(self, index: Index, found: Mapping[str, Any]) -> bool:
        """Whether an index that SQLAlchemy has found holds the rows that `index` is to hold."""
        wanted = index.dialect_kwargs.get(f"{self.name}_where")
        text = found.get("dialect_options", {}).get(f"{self.name}_where")
        return _plain_condition(wanted) == _plain_condition(text)

    def drop_invalid_indexes(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Drop invalid indexes of `tables` that no session is building, to be made again."""

    # Which database a connection leads to, and how large its tables are.

    def initialize_dialect(self, engine: Engine, lent: Connection) -> None:  # noqa: ARG002 - for overriders
        """Have SQLAlchemy ask the server its questions of an engine's first connection, which it rolls back then.

        `lent` is one in a caller's transaction.
        """
        engine.connect().close()

    @abstractmethod
    def identity(self, connection: Connection, table: Table) -> Sequence[Any]:
        """A value that is equal for two connections if, and only if, they lead to the same `table`."""

    def identity_of(self, url: URL) -> Sequence[Any] | None:  # noqa: ARG002 - for overriders
        """The `identity` of connections to `url`; None: only a connection can tell."""
        return None

    @abstractmethod
    def sizes(self, connection: Connection, table: Table) -> Sequence[TableSize]:
        """The sizes of `table`, and of tables that inherit from it, without reading them."""

    def estimate(self, connection: Connection, table: Table) -> int | None:
        """About how many rows `table` has, with tables that inherit from it; None: only counting tells."""
        rows = [size.rows for size in self.sizes(connection, table)]
        known = [number for number in rows if number is not None]
        return sum(known) if rows and len(known) == len(rows) else None


def _plain_condition(condition: Any) -> str:
    """The condition of a partial index as every database may write it: without quotes, brackets and a table's name."""
    if condition is None:
        return ""
    if isinstance(condition, ColumnElement):
        condition = condition.compile(compile_kwargs={"include_table": False, "literal_binds": True})
    return re.sub(r"""["`()\s]""", "", str(condition)).lower()


def _restore(connection: Connection, statement: str) -> None:
    """Restore the connection's setting before others get it from the pool; if that fails, they get a new connection."""
    try:
        connection.exec_driver_sql(statement)
    except SQLAlchemyError:  # must not hide whether the transaction has succeeded
        connection.invalidate()


@contextmanager
def driver_errors(connection: Connection, statement: str) -> Iterator[None]:
    """Raise errors of the driver's own cursor as SQLAlchemy's errors."""
    driver = connection.dialect.loaded_dbapi
    try:
        yield
    except driver.Error as error:
        raise DBAPIError.instance(statement, {}, error, driver.Error, dialect=connection.dialect) from None


def give_up(connection: Connection) -> None:
    """End the connection, and all idle ones in its pool, as SQLAlchemy does with lost ones; a caller's stays."""
    if OWN in connection.get_execution_options():
        connection.invalidate()
        connection.engine.dispose()


def floored(number: ColumnElement[int], step: ColumnElement[int]) -> ColumnElement[int]:
    """The multiple of `step` at or below `number`, which may be negative: a remainder has the sign of the number."""
    return number - (number % step + step) % step


def with_key(query: Select[Any], table: Table) -> Select[Any]:
    """A query for rows of `table` that have a key: bulk partitions have none, and no index of keys."""
    return query.with_hint(table, "ONLY", "postgresql")


def row_with(table: Table) -> ColumnElement[bool]:
    """Whether a row is the one of the parameter `id`."""
    return table.c.message_id == bindparam("id", type_=table.c.message_id.type)
