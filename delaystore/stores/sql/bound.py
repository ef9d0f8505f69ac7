"""A store bound to one connection, and so to one transaction."""

import builtins
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from sqlalchemy import ColumnElement, Connection, Delete, Table, Update, or_, select
from typing_extensions import override

from delaystore.errors import (
    DuplicateMessageError,
    KeyInUseError,
    MessageBeingDispatchedError,
    MessageDeliveredError,
    StoreError,
    StorePermissionError,
)
from delaystore.filters import Shift
from delaystore.message import (
    EARLIEST_DUE_TIME,
    DelayedMessage,
    KeyRule,
    are_same_time,
    check_key,
    check_message_id,
    utc,
    waiting_until,
)
from delaystore.settings import MAXIMUM_SLEEP, TransactionMode
from delaystore.stores.abc import REJECT, ManagementOutcome, StoreStatus
from delaystore.stores.history import DeduplicatingStore, without_history
from delaystore.stores.operable import AuditedKeyedStore, OperableTransaction
from delaystore.stores.records import (
    REMOVED,
    TICK,
    AuditEntry,
    Change,
    ChangeAction,
    Ending,
    FailedDelivery,
    name_of_load,
)
from delaystore.stores.schedules import ScheduleRows, SchedulingTransaction
from delaystore.stores.shared import ClaimsInBatches, in_order_of_keys, shifted, without_keys
from delaystore.stores.sql._claims import Claims
from delaystore.stores.sql._history import NewEntries
from delaystore.stores.sql._keyed import AnswerT, Duplicate, Messages, decided
from delaystore.stores.sql._listener import payload_of
from delaystore.stores.sql._parts import StoreParts
from delaystore.stores.sql._statements import LookUp, Settling, Statements
from delaystore.stores.sql.codec import LOAD
from delaystore.stores.sql.dialects import Claiming
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.faults import TableSize
from delaystore.stores.sql.operating.audit import AuditTrail
from delaystore.stores.sql.operating.history import HistoryQueries
from delaystore.stores.sql.operating.loads import LoadChanges, LoadQueries
from delaystore.stores.sql.operating.schedules import ScheduleQueries
from delaystore.stores.sql.rows import MessageRows, position_of_row, stored_id, time_or_earliest, to_message
from delaystore.stores.sql.schema import is_of_load, paused_names, promised_times

AT_ONCE: Final = 20_000
"""Messages of a generator that are kept in memory, and so can be stored again."""
NOTIFY_WITHIN: Final = MAXIMUM_SLEEP + timedelta(seconds=5)
"""Messages due later need no wake-up: dispatchers search on their own; 5 s are for clocks that differ."""
READ_ONLY: Final = (
    "the database is read-only, as a standby is; lead the URL to the primary (PostgreSQL: "
    "?target_session_attrs=read-write)"
)
_OUTCOMES: Final[Mapping[bool | None, ManagementOutcome]] = {
    True: ManagementOutcome.DONE,
    False: ManagementOutcome.BEING_DISPATCHED,
    None: ManagementOutcome.NOT_FOUND,
}
"""By the result of `StoreDialect.change_unclaimed`."""


class BoundSqlStore(
    ClaimsInBatches, AuditedKeyedStore, DeduplicatingStore, LookUp, OperableTransaction, SchedulingTransaction
):
    """The store's interface on one connection; commit and rollback are its owner's."""

    keeps_not_after: ClassVar[bool] = True

    def __init__(self, parts: StoreParts, connection: Connection, claims: Claims) -> None:
        self._connection = connection
        self._claims = claims
        self._parts = parts
        self._sql = parts.statements
        self._dialect = parts.dialect
        self._fetched: set[str] = set()
        self._unsettled: set[str] = set()
        self._earliest: datetime | None = None
        self._deferred: list[Callable[[], object]] = []
        self._entries: list[AuditEntry] = []

    @property
    def parts(self) -> StoreParts:
        """What all connections of the store share."""
        return self._parts

    @property
    def connection(self) -> Connection:
        """The connection in whose transaction everything happens; write to it what shall be committed with it."""
        return self._connection

    @property
    @override
    def schedule_rows(self) -> ScheduleRows:
        return ScheduleQueries(self)

    @property
    @override
    def _sql_as_of(self) -> Statements:
        with translated_errors():
            return self._sql.as_of(self._parts.version, self.connection)

    @override
    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        """A bound store has been initialized by the store it came from."""

    @override
    def now(self) -> datetime:
        """The clock of the server behind `connection`, asked there: this takes no second connection."""
        return self._parts.clock.now_on(self.connection)

    @override
    def store(self, message: DelayedMessage) -> None:
        """Insert. A duplicate is no error of the database, so that the caller's transaction survives it.

        Waits for the dispatcher that has claimed the message of this id; not on SQLite, where no dispatcher can settle
        a claim while the caller's transaction is open.
        """
        if message.key is not None:
            self.store_keyed(message, REJECT)
        else:
            self._unless_claimed(lambda: self.insert(message))

    def insert(self, message: DelayedMessage) -> None:
        """As `store`, of a message without a key; for a duplicate it waits and decides nothing: see `refusal`."""
        self.written()
        with translated_errors():
            self._parts.insert(self.connection, message)
        self._waits_until(message.next_attempt)

    def _unless_claimed(self, write: Callable[[], AnswerT], messages: Messages | None = None) -> AnswerT:
        """The result of `write`, in the caller's transaction; made again while a dispatcher has the message of the id.

        A row that is reported to the caller as waiting stays locked until the transaction ends, as it is marked.
        Dispatchers leave it out meanwhile, so they are woken then.
        """

        def refusal(error: Duplicate) -> StoreError | None:
            with translated_errors(), self._dialect.savepoint(self.connection):
                refused = self.refusal(error)
            if isinstance(refused, Duplicate):
                self._waits_until(EARLIEST_DUE_TIME)
            return refused

        is_alone = self._dialect.claiming is Claiming.LEASES
        return decided(write, refusal, 0.0 if is_alone else self._parts.keyed.timeout, messages)

    def refusal(self, error: Duplicate) -> StoreError | None:
        """Why the ids or the key of `error` cannot be stored, by their rows as they are now; None: the rows have gone.

        A row that no dispatcher has claimed is marked, and will be forwarded after this.
        """
        message_ids = error.message_ids if isinstance(error, DuplicateMessageError) else (error.message_id,)
        unclaimed = self._marked(message_ids)
        duplicates = [message_id for message_id in message_ids if message_id in unclaimed]
        if duplicates:
            return DuplicateMessageError(duplicates) if isinstance(error, DuplicateMessageError) else error
        there = list(self.waiting_ids(message_ids))
        if not there:
            return None
        return (
            MessageBeingDispatchedError(there) if isinstance(error, DuplicateMessageError) else KeyInUseError(error.key)
        )

    def _marked(self, message_ids: Sequence[str]) -> Collection[str]:
        """Those of these ids that wait unclaimed. They are marked, by the statement that finds them unclaimed.

        No dispatcher then takes them for messages that it has sent already: see `delaystore.message.marked`. A lease
        that has expired ends, so that its dispatcher cannot remove the row any more.
        """
        dialect, table = self._dialect, self._sql.table
        try:
            with translated_errors():
                return dialect.change_unclaimed_of(
                    self.connection, table, self._sql.mark, message_ids, (), {}, self.now()
                )
        except StorePermissionError:
            raise StorePermissionError(
                f"cannot check whether the message {message_ids[0]!r} is waiting, because the database user "
                f"may not UPDATE {table.fullname}; grant SELECT, INSERT and UPDATE on it to each user that sends"
            ) from None

    @override
    def get_unclaimed(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        """Locks them until the transaction ends, where claims are row locks."""
        for message_id in message_ids:
            check_message_id(message_id)
        self.written()
        return self.get_many(list(self._marked(message_ids)))

    def unclaimed_ids(self, message_ids: Sequence[str]) -> Sequence[str]:
        """As `get_unclaimed`, for callers that need no bodies: those of these ids that wait unclaimed."""
        self.written()
        with translated_errors():
            return list(self._marked(message_ids))

    @override
    def store_keyed(self, message: DelayedMessage, rule: KeyRule, *, change: Change | None = None) -> str:
        """Store, keep or replace the message of the key, as `rule` says; returns the id of the message that waits then.

        Waits for the dispatcher or the transaction that has the message of this key or id; not on SQLite, where no
        other transaction can write meanwhile.
        """

        def write() -> str:
            with translated_errors():
                return self.place(message, rule, change)

        return self._unless_claimed(write)

    def place(self, message: DelayedMessage, rule: KeyRule, change: Change | None) -> str:
        """As `store_keyed`, but raises the driver's errors."""
        self.written()
        keyed, now = self._parts.keyed_in(self.connection, message), self.now()
        by = None if change is None else change.by
        entries = self.new_entries(Ending.REPLACED, now, by) if rule.replaces else None
        place = keyed.place_and_tell if rule.replaces and change is not None else keyed.place
        placed = place(self.connection, message, rule, now, entries)
        if change is not None and placed.replaced is not None:
            self._note([change.of_message(now, placed.replaced, placed.next_attempt, placed.message_id)])
        self._waits_until(placed.next_attempt)  # also where one is kept: until the commit dispatchers leave it out
        return placed.message_id

    @override
    def message_id_of(self, key: str) -> str | None:
        check_key(key)
        with translated_errors():
            return self._parts.keyed.message_id_of(self.connection, key)

    @override
    def newest_message_id_of(self, key: str) -> str | None:
        check_key(key)
        with translated_errors():
            return self._parts.keyed.newest_message_id_of(self.connection, key)

    @override
    def store_many(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> int:
        """Those with a key come last, and are kept in memory until then."""
        self.written()
        all_of_them, dialect = Messages(messages, AT_ONCE), self._dialect

        def write() -> int:
            with translated_errors(), dialect.savepoint(self.connection), self._without_entries_of_failure():
                return self._store_all(all_of_them, rule, change, alone=False)

        return self._unless_claimed(write, all_of_them)

    def store_many_alone(self, messages: Iterable[DelayedMessage], rule: KeyRule, change: Change | None) -> int:
        """As `store_many`, in a transaction that does nothing else, and has to be rolled back if it raises."""
        self.written()
        with translated_errors():
            return self._store_all(messages, rule, change, alone=True)

    @override
    def store_new(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> Mapping[str, str]:
        self.written()
        all_of_them, dialect = Messages(messages, AT_ONCE), self._dialect

        def write() -> Mapping[str, str]:
            with translated_errors(), dialect.savepoint(self.connection), self._without_entries_of_failure():
                return self.place_new(all_of_them, rule, change, alone=False)

        return self._unless_claimed(write, all_of_them)

    def place_new(
        self, messages: Iterable[DelayedMessage], rule: KeyRule, change: Change | None, *, alone: bool
    ) -> Mapping[str, str]:
        """As `store_new`, in a transaction or savepoint that has to be rolled back if it raises; `alone`: in our own.

        It inserts first, and then reads the history: if a message of an id was delivered, its row has gone by then, so
        its entry is committed.
        """
        self.written()
        self.require_history("if_delivered='reject'")
        waiting, keyed = dict[str, str](), list[DelayedMessage]()

        def noted() -> Iterator[DelayedMessage]:
            for message in messages:
                waiting[message.message_id] = message.message_id
                yield message

        with self._dialect.storing(self.connection, alone=alone):
            self._insert_many(without_keys(noted(), keyed))
        for message in in_order_of_keys(keyed):
            waiting[message.message_id] = self.place(message, rule, change)
        delivered = HistoryQueries(self).delivered_ids(list(waiting))
        if delivered:
            raise MessageDeliveredError(sorted(delivered))
        return waiting

    def require_history(self, option: str) -> None:
        """Raise ConfigurationError, which names `option`, where no history is kept."""
        with translated_errors():
            if not self._parts.history.is_kept(self.connection):
                raise without_history(option)

    def _store_all(
        self, messages: Iterable[DelayedMessage], rule: KeyRule, change: Change | None, *, alone: bool
    ) -> int:
        keyed: list[DelayedMessage] = []
        with self._dialect.storing(self.connection, alone=alone):
            count = self._insert_many(without_keys(messages, keyed))
        return count + self.place_many(keyed, rule, change)

    def _insert_many(self, messages: Iterable[DelayedMessage]) -> int:
        rows = MessageRows(messages, self._parts.version.require_latest_deliveries)
        count = self._dialect.insert_many(self.connection, self._sql.table, self._sql.partitions, rows)
        if count:
            self._waits_until(rows.earliest)
        return count

    def place_many(self, keyed: builtins.list[DelayedMessage], rule: KeyRule, change: Change | None) -> int:
        """Store messages with keys one after the other; returns how many were not left out for one that is kept."""
        return sum(self.place(message, rule, change) == message.message_id for message in in_order_of_keys(keyed))

    @override
    def fetch_batch(self, at: datetime, limit: int, most_bytes: int) -> Sequence[DelayedMessage]:
        """Search from the position where the last search ended, or from the beginning; see `scan`."""
        if limit < 1:
            return []
        scan, at = self._parts.scan, utc(at, "at")
        after = scan.start()
        began = time.monotonic()
        with translated_errors():
            rows = self._claims.claim(at, limit, most_bytes, after)
            if rows:
                self._parts.history.takes_entries(self.connection)
        scan.ended(after, time.monotonic() - began, position_of_row(rows[-1]) if rows else None)
        messages = [to_message(row, None, (), row[8]) for row in rows]  # by number, which is faster than by name
        ids = [message.message_id for message in messages]
        self._fetched.update(ids)
        self._unsettled.update(ids)
        return messages

    @override
    def remove_many(self, messages: Sequence[DelayedMessage]) -> int:
        return self.remove_ended(messages, Ending.DELIVERED, self.now()) if messages else 0

    @override
    def remove_ended(self, messages: Sequence[DelayedMessage], ending: Ending, at: datetime) -> int:
        if not messages:
            return 0
        self.written()
        if ending in REMOVED:
            LoadChanges(self).note(Counter(self.loads_of([each.message_id for each in messages]).values()), ending)
        self._unsettled.difference_update(message.message_id for message in messages)
        entries, count = self.new_entries(ending, utc(at, "at")), 0
        ids = [message.message_id for message in messages if stored_id(message) is None]
        with translated_errors():
            if ids:
                count += self._claims.remove(ids, entries)
            for message in messages:
                if stored_id(message) is not None:
                    count += self._remove_stored(stored_id(message), entries)
        return count

    def _remove_stored(self, stored: Any, entries: NewEntries | None) -> int:
        """Remove a row by the text in place of an invalid id; returns whether it was there."""
        values, sql = {"id": stored, **self._claims.identity()}, self._sql
        where = [self._dialect.has_stored_id(sql.table), *sql.is_owned]
        return self._dialect.remove_with_entries(self.connection, sql.remove_stored, where, values, entries)

    def new_entries(self, ending: Ending, at: datetime, by: str | None = None) -> NewEntries | None:
        """The entries that messages get in the history which end in this way; None: no history is kept."""
        with translated_errors():
            is_kept = self._parts.history.takes_entries(self.connection)
        return NewEntries(self._sql.entries, ending, at, by) if is_kept else None

    def note_moved(self, rows: Table, where: ColumnElement[bool]) -> None:
        """Make the entries of messages that a migration has moved away, if a history is kept.

        `rows`: the table of the migration, which has the messages' columns. `where`: which of its rows.
        """
        entries = self.new_entries(Ending.MIGRATED, self.now())
        if entries is not None:
            moved = replace(entries, inserts=self._sql.entries_of(rows))
            with translated_errors():
                self._dialect.insert_entries(self.connection, [where], {}, moved)

    @override
    def increment_failure_count(self, message: DelayedMessage, next_attempt: datetime | None = None) -> bool:
        return self.increment_failure_counts([(message, next_attempt or self.now())]) == 1

    @override
    def increment_failure_counts(self, failures: Sequence[tuple[DelayedMessage, datetime]]) -> int:
        self.written()
        return self._show_again([(*each, {}) for each in failures], self._sql.increment)

    @override
    def count_failures(self, failures: Sequence[FailedDelivery]) -> int:
        self.written()
        counted = [(each.message, each.next_attempt, {"line": each.attempt.line()}) for each in failures]
        return self._show_again(counted, self._sql.count_failure)

    @override
    def postpone(self, postponed: Sequence[tuple[DelayedMessage, datetime]]) -> int:
        """Written last where a first write would lock everybody out while the rest of the batch is being sent."""
        if self._claims.is_alone_in_writing and postponed:
            self._deferred.append(lambda: self.postpone(postponed))
            claimed = {"ids": [message.message_id for message, _ in postponed], **self._claims.identity()}
            return len(self._execute(self._sql.claimed, claimed).all())
        again = [(*each, dict[str, Any]()) for each in postponed]
        return self._show_again(again, self._sql.postpone)

    @override
    def promised(self, destinations: Collection[str]) -> Mapping[str, datetime]:
        """Who sets another limit waits for the end of the transaction."""
        with translated_errors():
            self._dialect.begin_writing(self.connection)
        times = promised_times(self._sql.operating_tables, destinations).with_for_update(read=True)
        return {row.name: row.promised or self.now() for row in self._execute(times, {})}

    @override
    def park_claimed(self, messages: Sequence[DelayedMessage]) -> Sequence[str]:
        """As `postpone`, and then messages that were resumed meanwhile are shown again.

        Elsewhere who resumes one of the destinations waits for the end of the transaction.
        """
        known = {each.message_id: each for each in messages if stored_id(each) is None}
        if not known:
            return []
        loads = {message_id: name_of_load(number) for message_id, number in self.loads_of(list(known)).items()}
        named = {each.destination for each in known.values()} | {*loads.values()}
        resumes_not = paused_names(self._sql.operating_tables, self.now(), named).with_for_update(read=True)
        paused = set(self._execute(resumes_not, {}).scalars())
        chosen = {
            name: each for name, each in known.items() if not paused.isdisjoint((each.destination, loads.get(name)))
        }
        claimed = {"ids": list(chosen), **self._claims.identity()}
        ours = list(self._execute(self._sql.claimed, claimed).scalars()) if chosen else []
        if ours and self._claims.is_alone_in_writing:
            parked = [chosen[message_id] for message_id in ours]
            self._deferred.append(lambda: self._park_or_show(parked))
        elif ours:
            self._execute(self._sql.park_claimed, claimed)
            self._unsettled.difference_update(ours)
        return ours

    @override
    def loads_of(self, message_ids: Sequence[str], numbers: Collection[int] | None = None) -> Mapping[str, int]:
        """By the primary key; no message has a load in tables of an earlier release."""
        table, number = self._sql.table, self._sql.table.c[LOAD]
        if not message_ids or not LoadChanges(self).has_loads:
            return {}
        is_wanted = (
            number.is_not(None) if numbers is None else or_(*(is_of_load(table, each) for each in sorted(numbers)))
        )
        these = self._dialect.among(table.c.message_id, "ids"), is_wanted
        found = select(table.c.message_id, number).where(*these)
        return {row.message_id: row.load_number for row in self._execute(found, {"ids": [*message_ids]})}

    @override
    def load_ids(self, numbers: Collection[int]) -> Mapping[int, str]:
        return LoadQueries(self).ids(numbers)

    def _park_or_show(self, messages: Sequence[DelayedMessage]) -> None:
        with translated_errors():
            self._dialect.begin_writing(self.connection)
        parked = set(self.park_claimed(messages))
        self.postpone([(each, each.due_time) for each in messages if each.message_id not in parked])

    def _show_again(self, shown: Sequence[tuple[DelayedMessage, datetime, dict[str, Any]]], change: Settling) -> int:
        """Settle messages that are shown again at a time, by a statement that may take more values."""
        claimer = self._claims.identity()
        plain: list[dict[str, Any]] = []
        stored: list[dict[str, Any]] = []
        for message, next_attempt, more in shown:
            again, key = utc(next_attempt, "next_attempt"), stored_id(message)
            self._waits_until(again)
            values = {"id": message.message_id if key is None else key, "new_next_attempt": again, **claimer, **more}
            (plain if key is None else stored).append(values)
        self._unsettled.difference_update(message.message_id for message, *_ in shown)
        count = self._execute(change.by_id, plain).rowcount if plain else 0
        for values in stored:
            count += self._execute(change.by_stored_id, values).rowcount
        return count

    @override
    def next(self) -> datetime | None:
        """The first next attempt or end of a lease; or when to search from the beginning, if that is sooner."""
        after = self._parts.scan.start()
        with translated_errors():
            times = [self._claims.first_end()]
        first = self._execute(*self._sql.first.after(after)).scalar()
        times.append(None if first is None else time_or_earliest(first))
        if after is not None:
            times.append(self.now() + self._parts.scan.until_full_scan())
        return min((time for time in times if time is not None), default=None)

    @override
    def status(self) -> StoreStatus:
        """One statement. It looks at the due times of the first 1000 messages by next attempt."""
        row = self._execute(*self._sql.status.after(self._parts.scan.start())).one()
        return StoreStatus(
            now=self._parts.clock.now_read(row.now),
            first_due=row.first_due if isinstance(row.first_due, datetime) else None,  # or it was written by hand
            read_only=READ_ONLY if row.read_only else None,
        )

    def sizes(self) -> Sequence[TableSize]:
        """As `SqlDelayedMessageStore.sizes`."""
        with translated_errors():
            return self._dialect.sizes(self.connection, self._sql.table)

    @override
    def cancel(
        self,
        message_id: str,
        *,
        change: Change | None = None,
        ending: Ending = Ending.CANCELLED,
        counted: bool = True,
    ) -> ManagementOutcome:
        """`counted`: its load counts that it has left; False: the caller notes that."""
        check_message_id(message_id)
        self.written()
        if change is not None and change.action is ChangeAction.REPLACE:
            ending = Ending.REPLACED
        return self._manage(self._sql.cancel, {"id": message_id}, change, ending=ending, counted=counted)

    @override
    def reschedule(self, message_id: str, due_time: datetime, *, change: Change | None = None) -> ManagementOutcome:
        check_message_id(message_id)
        self.written()
        due_time = waiting_until(due_time, "due_time")
        values = {"id": message_id, "new_due_time": due_time}
        outcome = self._manage(self._sql_as_of.reschedule, values, change, due_time)
        if outcome is ManagementOutcome.DONE:
            self._waits_until(due_time)
        return outcome

    @override
    def shift(
        self, message_id: str, by: Shift, *, change: Change | None = None
    ) -> tuple[ManagementOutcome, datetime | None]:
        """The mark locks the row, and has the transaction read it as it is now, also with an older snapshot."""
        check_message_id(message_id)
        self.written()
        outcome = self._manage(self._sql.mark, {"id": message_id}, None)
        if outcome is not ManagementOutcome.DONE:
            return outcome, None
        row = self._execute(self._sql.times, {"id": message_id}).one()
        are_times = isinstance(row.due_time, datetime) and isinstance(row.next_attempt, datetime)
        if are_times and not are_same_time(row.due_time, row.next_attempt):
            # `unmarked` cannot find the mark of a message that has failed, so it is taken back here.
            self._execute(self._sql.set_due_time, {"id": message_id, "new_due_time": row.due_time + TICK})
            row = self._execute(self._sql.times, {"id": message_id}).one()
        due_time = shifted(row, by)
        return self.reschedule(message_id, due_time, change=change), due_time

    @override
    def note_changes(self, entries: Sequence[AuditEntry]) -> None:
        self.written()
        self._note(entries)

    @contextmanager
    def _without_entries_of_failure(self) -> Iterator[None]:
        """Forget the entries that the block has noted when it raises, as a savepoint undoes their changes."""
        noted = len(self._entries)
        try:
            yield
        except BaseException:
            del self._entries[noted:]
            raise

    def _note(self, entries: Sequence[AuditEntry]) -> None:
        """Keep entries of the audit trail; they are written together, ahead of the commit."""
        self._entries += entries

    def written(self) -> None:
        """Note that something is written on `connection`: a later fetch must not commit it."""
        self._claims.written()
        deferred, self._deferred = self._deferred, []
        for write in deferred:
            write()

    def stored(self, earliest: datetime) -> None:
        """Messages were written through `connection`; their first next attempt is at `earliest`.

        The commit then wakes dispatchers as it does after `store`.
        """
        self.written()
        self._waits_until(earliest)

    def before_commit(self) -> None:
        """Make the last writes, also of the audit trail; wake other processes' dispatchers, once.

        These are woken if a next attempt comes before they search by themselves.
        """
        if self._deferred:
            self.written()
        if self._entries:
            AuditTrail(self).note(self._entries)
        if self._dialect.notifications is None or self._earliest is None:
            return
        if self._earliest <= self.now() + NOTIFY_WITHIN:
            self._notify(payload_of(self._earliest))

    def rolled_back(self) -> None:
        """After a rollback nothing is settled: all claims on fetched messages are to be ended."""
        self._unsettled |= self._fetched
        self._deferred.clear()

    def release(self) -> None:
        """End claims on messages that were fetched and not settled, where the transaction's end has not."""
        if self._unsettled:
            with translated_errors():
                self._claims.release()

    def after_end(self) -> None:
        """After commit or rollback: find messages again that were fetched and not settled, which lie before the
        position.
        """
        if self._unsettled:
            self._parts.scan.search_from_beginning()
        elif self._earliest is not None:
            self._parts.scan.search_from_beginning(self._earliest)

    def _manage(
        self,
        statement: Delete | Update,
        values: dict[str, Any],
        change: Change | None,
        due_time: datetime | None = None,
        *,
        ending: Ending | None = None,
        counted: bool = False,
    ) -> ManagementOutcome:
        """Change the message of `values["id"]`, and note `change` with the message as it was before.

        `ending`: how the message leaves the store; None: it stays. `counted`: its load counts it then.
        """
        table, dialect = self._sql.table, self._dialect
        before = None if change is None else AuditTrail(self).before(values["id"])
        now, number, entries = self.now(), None, None
        if counted and LoadChanges(self).has_loads:
            number = table.c[LOAD]
        if ending is not None:
            entries = self.new_entries(ending, now, None if change is None else change.by)
        with translated_errors():
            done, load = dialect.change_unclaimed(self.connection, table, statement, values, now, number, entries)
        outcome = _OUTCOMES[done]
        if load is not None and ending is not None:
            LoadChanges(self).note({load: 1}, ending)
        if change is not None and before is not None and outcome is ManagementOutcome.DONE:
            self._note([change.of_message(now, before, due_time)])
        return outcome

    def _waits_until(self, at: datetime) -> None:
        if self._earliest is None or at < self._earliest:
            self._earliest = at

    def _notify(self, payload: str) -> None:
        if self._dialect.notifications is not None:
            with translated_errors():
                self._dialect.notifications.notify(self.connection, self._parts.channel, payload)
