"""Messages with a key, and message ids that are taken."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Select,
    Update,
    bindparam,
    case,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.util import memoized_property
from typing_extensions import override

from delaystore.errors import (
    DuplicateKeyError,
    DuplicateMessageError,
    KeyInUseError,
    MessageBeingStoredError,
    MessageDeliveredError,
    StoreError,
    StoreUnavailableError,
)
from delaystore.message import DelayedMessage, KeyRule, OnKey, new_message_id, time_left, unmarked
from delaystore.processes import pause, yield_to_loop
from delaystore.stores.records import MessageBefore
from delaystore.stores.shared import (
    LONGEST_PAUSE,
    bounded,
    key_of,
    latest_due_time,
    refuse_duplicate,
    retried_while_claimed,
    unlike,
)
from delaystore.stores.sql._history import NewEntries
from delaystore.stores.sql._statements import Statements
from delaystore.stores.sql.codec import FIRST_SENT, MESSAGE_KEY, NOT_AFTER
from delaystore.stores.sql.dialects import Claiming
from delaystore.stores.sql.dialects.base import CandidateRows, KeyUpserts, row_with, with_key
from delaystore.stores.sql.faults import Fault
from delaystore.stores.sql.rows import to_row

_MAX_WAIT: Final = "max_wait"
"""The parameter of a bound, in microseconds."""


class Placed(NamedTuple):
    """The message that has the key now, and when it is shown. `replaced`: whose place it took, as far as was asked."""

    message_id: str
    next_attempt: datetime
    replaced: MessageBefore | None = None


class Keyed(ABC):
    """Outcomes of storing a message with a key; `timeout`: seconds to wait for the transaction that has the key's
    row.
    """

    def __init__(self, sql: Statements, timeout: float) -> None:
        self._sql, self._dialect, self._table, self.timeout = sql, sql.dialect, sql.table, timeout

    @memoized_property
    def _has_key(self) -> ColumnElement[bool]:
        key = self._table.c[MESSAGE_KEY]
        return key == bindparam("key", type_=key.type)

    @memoized_property
    def _find(self) -> Select[Any]:
        return with_key(select(self._table.c.message_id), self._table).where(self._has_key)

    def message_id_of(self, connection: Connection, key: str) -> str | None:
        """The message that has `key`; None: none has."""
        found: str | None = connection.execute(self._find, {"key": key}).scalar()
        return found

    newest_message_id_of = message_id_of
    """As `message_id_of`, for a change that follows, which also takes rows that the transaction does not see yet."""

    def place(
        self,
        connection: Connection,
        message: DelayedMessage,
        rule: KeyRule,
        now: datetime,
        entries: NewEntries | None = None,
        *,
        alone: bool = False,
    ) -> Placed:
        """Store `message`, or apply `rule`. Raises as `store_keyed`, and the driver's errors.

        Its own errors leave the transaction as it was. `entries`: the entry that a replaced message gets in the
        history; None: none. `alone`: each statement of the connection commits on its own, as PostgreSQL's may.
        """
        with self._explained(message), nullcontext() if alone else self._apart(connection):
            return self._place(connection, bounded(message, now, rule), rule, now, entries)

    @abstractmethod
    def place_and_tell(
        self,
        connection: Connection,
        message: DelayedMessage,
        rule: KeyRule,
        now: datetime,
        entries: NewEntries | None = None,
    ) -> Placed:
        """As `place`, for a rule that replaces, and tell which message was replaced."""

    @contextmanager
    def _explained(self, message: DelayedMessage) -> Iterator[None]:
        """Raise the error that the driver's errors mean for `message`."""
        key = key_of(message)
        try:
            yield
        except DBAPIError as error:
            fault = self._dialect.fault(error)
            if fault is Fault.LOCKED and self._dialect.claiming is not Claiming.LEASES:
                raise KeyInUseError(key) from None
            if fault is Fault.DUPLICATE:  # of the message_id: the key's index is what the statement goes by
                raise DuplicateMessageError([message.message_id]) from None
            raise

    def _new_row(self, message: DelayedMessage, first_sent: datetime) -> dict[str, Any]:
        """The values of the row that a message with a key gets.

        Where the table has latest deliveries, the row has one or NULL, so that none is left of a replaced message.
        """
        row = to_row(message) | {MESSAGE_KEY: message.key, FIRST_SENT: first_sent}
        return row | {NOT_AFTER: message.not_after} if self._sql.has_not_after else row

    @abstractmethod
    def _apart(self, connection: Connection) -> AbstractContextManager[object]:
        """A block that is undone when it raises, and waits no longer than our timeout."""

    @abstractmethod
    def _place(
        self,
        connection: Connection,
        message: DelayedMessage,
        rule: KeyRule,
        now: datetime,
        entries: NewEntries | None = None,
    ) -> Placed: ...


class OneStatement(Keyed):
    """PostgreSQL and SQLite."""

    def __init__(self, sql: Statements, upserts: KeyUpserts, timeout: float) -> None:
        super().__init__(sql, timeout)
        self._upserts = upserts
        self._statements: dict[tuple[OnKey, bool, bool], Executable] = {}

    @memoized_property
    def _lock(self) -> Select[Any]:
        table = self._table
        names = ("message_id", "destination", "due_time", "next_attempt")
        found = with_key(select(*(table.c[name] for name in names)), table).where(self._has_key)
        return found if self._dialect.claiming is Claiming.LEASES else found.with_for_update()

    @override
    def _apart(self, connection: Connection) -> AbstractContextManager[object]:
        return self._dialect.savepoint(connection)

    @override
    def place_and_tell(
        self,
        connection: Connection,
        message: DelayedMessage,
        rule: KeyRule,
        now: datetime,
        entries: NewEntries | None = None,
    ) -> Placed:
        """Lock the row of the key first, for the statement does not tell whether it has inserted or changed a row.

        Where there is none, the message is stored unless another transaction stores one with that key meanwhile.
        """
        while True:
            # Between this look and the statement below another transaction may take the key. The rule REJECT of the
            # second branch notices that, and the loop begins again with the row that is there now.
            replaced = self._locked(connection, message)
            if replaced is not None:
                return self.place(connection, message, rule, now, entries)._replace(replaced=replaced)
            try:
                return self.place(connection, bounded(message, now, rule), KeyRule(), now)
            except (DuplicateKeyError, DuplicateMessageError):
                if self.message_id_of(connection, key_of(message)) is None:
                    raise

    def _locked(self, connection: Connection, message: DelayedMessage) -> MessageBefore | None:
        """The message of the key, locked; None: there is none. Waits for who has it, as long as our timeout lasts."""
        self._dialect.begin_writing(connection)
        timeout = min(self.timeout, time_left())
        with self._explained(message), self._dialect.brief_wait(connection, timeout):
            row = connection.execute(self._lock, {"key": message.key}).first()
        if row is None:
            return None
        return MessageBefore(
            message_id=row.message_id, destination=row.destination, due_time=unmarked(row), key=message.key
        )

    @override
    def _place(
        self,
        connection: Connection,
        message: DelayedMessage,
        rule: KeyRule,
        now: datetime,
        entries: NewEntries | None = None,
    ) -> Placed:
        values: dict[str, Any] = self._new_row(message, now) | {"now": now}
        noted = entries if self._upserts.notes_replaced else None
        if noted is not None:
            values |= noted.values
        elif entries is not None:  # nothing else can write until this transaction ends
            self._dialect.insert_entries(connection, [self._has_key], {"key": message.key}, entries)
        is_bounded = latest_due_time(now, rule) is not None
        if is_bounded and rule.max_wait is not None:
            values[_MAX_WAIT] = round(rule.max_wait.total_seconds() * 1_000_000)
        row = connection.execute(self._statement(rule.on_key, is_bounded, noted is not None), values).first()
        if row is None or row.message_id is None:
            raise self._refusal(connection, message, rule)
        if row.message_id != message.message_id:
            refuse_duplicate(message, row.message_id, rule)  # what was written to find it changes nothing
        return Placed(row.message_id, row.next_attempt)

    def _statement(self, on_key: OnKey, is_bounded: bool, is_noted: bool) -> Executable:
        chosen = (on_key, is_bounded, is_noted)
        if chosen not in self._statements:
            table = self._table

            def changes(new: Any) -> tuple[Mapping[str, Any], ColumnElement[bool] | None]:
                """To keep a row is to mark it: that waits for who has it, and tells the message_id."""
                if on_key is OnKey.KEEP:
                    return {"due_time": self._dialect.marked(table.c.due_time)}, None
                if on_key is OnKey.REJECT:  # to write the key again waits as well
                    return {MESSAGE_KEY: new[MESSAGE_KEY]}, table.c.message_id != new.message_id
                values = {name: new[name] for name in (*self._sql.names, FIRST_SENT)}
                if on_key is OnKey.DEBOUNCE:
                    values[FIRST_SENT] = first = func.coalesce(table.c[FIRST_SENT], new[FIRST_SENT])
                    if is_bounded:
                        span = bindparam(_MAX_WAIT, type_=BigInteger)
                        capped = self._dialect.capped(new.due_time, first, span)
                        values |= {"due_time": capped, "next_attempt": capped}
                        if self._sql.has_not_after:
                            values[NOT_AFTER] = self._dialect.moved(new[NOT_AFTER], new.due_time, capped)
                unlike = self._dialect.unlike(values["due_time"], table.c.due_time)
                is_same = table.c.message_id == new.message_id
                values["due_time"] = case((is_same, unlike), else_=values["due_time"])
                return values, None

            names = (*self._sql.names, MESSAGE_KEY, FIRST_SENT)
            entries = self._sql.entries if is_noted else None
            self._statements[chosen] = self._upserts.insert_keyed(
                table, self._sql.partitions, names, changes, self.timeout, entries
            )
        return self._statements[chosen]

    def _refusal(self, connection: Connection, message: DelayedMessage, rule: KeyRule) -> Exception:
        """Why nothing was written: the id waits, or is in a partition that others do not see yet; or else a dispatcher
        has the message of the key, or another transaction stored one since the statement began.
        """
        key, message_id = key_of(message), message.message_id
        found = self.message_id_of(connection, key)
        if found == message_id and rule.on_key is OnKey.REJECT:
            return DuplicateMessageError([message_id])
        if self._sql.partitions is None:
            return KeyInUseError(key)
        waits = connection.execute(self._sql.waits, {"id": message_id}).first() is not None
        if waits:
            return DuplicateMessageError([message_id])
        in_partition = select(self._sql.partitions.c.message_id).where(row_with(self._sql.partitions))
        is_being_stored = connection.execute(in_partition, {"id": message_id}).first() is not None
        return MessageBeingStoredError(message_id) if is_being_stored else KeyInUseError(key)


class LockedRow(Keyed):
    """MariaDB and MySQL.

    A failed insert leaves a lock on the key's entry in the index, for which the removal of that row would wait; so who
    has a transaction of its own ends it, and begins again.
    In a caller's transaction the search may read older rows than there are: a locked row is always the newest.
    """

    def __init__(self, sql: Statements, candidates: CandidateRows, timeout: float) -> None:
        super().__init__(sql, timeout)
        self._candidates = candidates

    @memoized_property
    def _lock(self) -> Select[Any]:
        names = ("message_id", MESSAGE_KEY, FIRST_SENT, "next_attempt", "due_time", "destination")
        columns = select(*(self._table.c[name] for name in names))
        locked = columns.where(row_with(self._table)).with_for_update(nowait=True)
        return self._dialect.by_primary_key(locked, self._table)

    @memoized_property
    def _find_newest(self) -> Select[Any]:
        return self._find.with_for_update(read=True)

    @memoized_property
    def _insert(self) -> Insert:
        return insert(self._table)

    @memoized_property
    def _mark(self) -> Update:
        marked = self._dialect.marked(self._table.c.due_time)
        return update(self._table).where(row_with(self._table)).values(due_time=marked)

    @memoized_property
    def _replace(self) -> Update:
        table = self._table
        new = {
            table.c[name]: bindparam(f"new_{name}", type_=table.c[name].type) for name in (*self._sql.names, FIRST_SENT)
        }
        return update(table).where(row_with(table)).values(new)

    place_and_tell = Keyed.place  # it locks the row that it replaces, and so knows it

    @override
    def newest_message_id_of(self, connection: Connection, key: str) -> str | None:
        """None also for a key that another transaction is just storing."""
        if not self._candidates.reads_older_rows(connection):
            return self.message_id_of(connection, key)
        try:
            is_taken = self._candidates.is_taken(connection, self._table, new_message_id(), key)
        except OperationalError as error:
            if self._dialect.fault(error) is not Fault.LOCKED:
                raise
            return None
        return self._newest(connection, key) if is_taken else None

    def _newest(self, connection: Connection, key: str) -> str | None:
        """The message whose key has just refused an insert, which has locked its entry; so nothing is waited for."""
        found: str | None = connection.execute(self._find_newest, {"key": key}).scalar()
        return found

    @override
    def _apart(self, connection: Connection) -> AbstractContextManager[object]:
        """The database undoes only a statement that has waited too long; a savepoint would give back none of its
        locks.
        """
        return self._dialect.lock_wait(connection, min(self.timeout, time_left()))

    @override
    def _place(
        self,
        connection: Connection,
        message: DelayedMessage,
        rule: KeyRule,
        now: datetime,
        entries: NewEntries | None = None,
    ) -> Placed:
        deadline = time.monotonic() + min(self.timeout, time_left())
        while True:
            placed = self._attempt(connection, message, rule, now, entries)
            if placed is not None:
                return placed
            if time.monotonic() > deadline:
                raise KeyInUseError(key_of(message))
            pause(LONGEST_PAUSE / 4)

    def _attempt(
        self,
        connection: Connection,
        message: DelayedMessage,
        rule: KeyRule,
        now: datetime,
        entries: NewEntries | None = None,
    ) -> Placed | None:
        """None: another transaction has the row, or it has gone meanwhile.

        Raises KeyInUseError where a transaction has it that would wait for ours.
        """
        key = key_of(message)
        # The plain search comes first: a locking search that finds nothing would lock a gap of the index, and other
        # keys could not be stored until this transaction ends.
        found = self.message_id_of(connection, key)
        if found is not None:
            try:
                row = self._locked(connection, found, key)
            except KeyInUseError:
                return None
            if row is not None:
                return self._changed(connection, row, message, rule, now, entries)
        if self._is_inserted(connection, message, now):
            return Placed(message.message_id, message.next_attempt)
        row = self._locked(connection, self._newest(connection, key), key)
        return None if row is None else self._changed(connection, row, message, rule, now, entries)

    def _changed(
        self,
        connection: Connection,
        row: Any,
        message: DelayedMessage,
        rule: KeyRule,
        now: datetime,
        entries: NewEntries | None = None,
    ) -> Placed:
        """The outcome for the locked row of the key."""
        found: str = row.message_id
        refuse_duplicate(message, found, rule)
        if rule.on_key is OnKey.KEEP:
            connection.execute(self._mark, {"id": found})
            return Placed(found, row.next_attempt)
        first_sent = now
        if rule.on_key is OnKey.DEBOUNCE and row[2] is not None:
            first_sent = row[2]
        message = unlike(bounded(message, first_sent, rule), found, row.due_time)
        values = {f"new_{name}": value for name, value in self._new_row(message, first_sent).items()}
        with nullcontext() if entries is None else self._dialect.savepoint(connection):
            if entries is not None:
                self._dialect.insert_entries(connection, [row_with(self._table)], {"id": found}, entries)
            connection.execute(self._replace, {"id": found, **values})
        replaced = MessageBefore(
            message_id=found, destination=row.destination, due_time=unmarked(row), key=row.message_key
        )
        return Placed(message.message_id, message.next_attempt, replaced)

    def _is_inserted(self, connection: Connection, message: DelayedMessage, now: datetime) -> bool:
        """False: another message has the key."""
        try:
            connection.execute(self._insert, self._new_row(message, now))
        except IntegrityError as error:
            if self._dialect.fault(error) is not Fault.DUPLICATE or self._candidates.is_of_primary_key(error):
                raise
            return False
        return True

    def _locked(self, connection: Connection, message_id: str | None, key: str) -> Any:
        """The row, locked; None: it is gone, or has another key. Raises KeyInUseError where it is locked."""
        try:
            row = connection.execute(self._lock, {"id": message_id}).first()
        except OperationalError as error:
            if self._dialect.fault(error) is not Fault.LOCKED:
                raise
            raise KeyInUseError(key) from None
        return None if row is None or row[1] != key else row


@lru_cache(maxsize=128)
def keyed_of(sql: Statements, timeout: float) -> Keyed:
    """Serves messages with a key of one endpoint's table; stores share it, as they share the statements."""
    if sql.dialect.upserts is not None:
        return OneStatement(sql, sql.dialect.upserts, timeout)
    assert sql.dialect.candidates is not None
    return LockedRow(sql, sql.dialect.candidates, timeout)


LOOK_AHEAD: Final = 64 * 2**20
"""Bytes of bodies that are taken from a generator to see whether it has many messages."""
_TWICE: Final = "twice among these messages, or waiting in the store until just now"
_AGAIN: Final = "give each id to one message, and send again"
AnswerT = TypeVar("AnswerT")
Duplicate = DuplicateMessageError | DuplicateKeyError
"""An id, or a key, that is taken."""
DuplicateRefusal = Callable[[Duplicate], StoreError | None]
"""Why these ids, or this key, cannot be stored, by their rows as they are now; None: the rows have gone."""


class Messages:
    """Messages to store; the first `count` are kept in memory, fewer if their bodies are large."""

    def __init__(self, messages: Iterable[DelayedMessage], count: int) -> None:
        self._iterator: Iterator[DelayedMessage] = iter(())
        if isinstance(messages, Sequence):
            self.first: Sequence[DelayedMessage] = messages
        else:
            self._iterator = iter(messages)
            self.first = _first_of(self._iterator, count)
        self._next = list(islice(self._iterator, 1))

    @property
    def are_kept(self) -> bool:
        """Whether all of them are in memory, and can be stored again."""
        return not self._next

    def repeat_what_is_taken(self, error: Duplicate) -> bool:
        """Whether two of those in memory have one message_id, or one key, as `error` says of a message that waits."""
        taken = [
            message.message_id if isinstance(error, DuplicateMessageError) else message.key for message in self.first
        ]
        present = [each for each in taken if each is not None]
        return len(set(present)) < len(present)

    def __iter__(self) -> Iterator[DelayedMessage]:
        return chain(self.first, self._next, self._iterator)


def decided(
    write: Callable[[], AnswerT],
    refusal: DuplicateRefusal,
    timeout: float,
    messages: Messages | None = None,
    taken: Duplicate | None = None,
) -> AnswerT:
    """The result of `write`, made again for `timeout` seconds while a dispatcher has a message of its ids or keys.

    `messages`: the messages that `write` stores, where they may be several; it is made once if they are not kept.
    `taken`: the error that `write` has just raised; None: `write` is made first.
    Raises DuplicateMessageError, DuplicateKeyError, MessageBeingDispatchedError, KeyInUseError, StoreUnavailableError
    where the database refuses an id twice and has no row of it, and the errors of `write`.
    """
    repeatable = messages is None or messages.are_kept

    def attempt() -> AnswerT:
        nonlocal taken
        error, taken = taken, None
        if error is None:
            try:
                return write()
            except MessageDeliveredError:
                raise
            except (DuplicateMessageError, DuplicateKeyError) as raised:
                error = raised
        refused = refusal(error)
        if refused is None and not repeatable:
            refused = error
            if isinstance(error, DuplicateMessageError):
                refused = DuplicateMessageError(error.message_ids, _TWICE, _AGAIN)
        if refused is not None:
            raise refused
        try:
            return write()
        except MessageDeliveredError:
            raise
        except (DuplicateMessageError, DuplicateKeyError) as error:
            refused = refusal(error)  # a row may have come meanwhile
            if refused is None and not (messages is not None and messages.repeat_what_is_taken(error)):
                refused = _without_a_row(error)
            raise refused or error from None

    return retried_while_claimed(attempt, timeout if repeatable else 0.0)


def _without_a_row(error: Duplicate) -> StoreError:
    if isinstance(error, DuplicateKeyError):
        return KeyInUseError(error.key)
    named = ", ".join(repr(message_id) for message_id in error.message_ids)
    return StoreUnavailableError(
        f"the database refuses message_id {named} as a duplicate, and has no message of this id; nothing was stored: "
        "send again, and if the error remains, drop unique indexes and constraints that you have added to the "
        "store's table"
    )


def _first_of(messages: Iterator[DelayedMessage], count: int) -> Sequence[DelayedMessage]:
    """The next `count`; fewer where there are no more, or their bodies are large."""
    first: list[DelayedMessage] = []
    room = LOOK_AHEAD
    for number, message in enumerate(islice(messages, count)):
        yield_to_loop(number)
        first.append(message)
        room -= len(message.body)
        if room < 0:
            break
    return first
