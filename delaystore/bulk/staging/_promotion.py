"""Making a load visible, in one transaction."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Index,
    Integer,
    Select,
    Table,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from delaystore.bulk.options import REJECTED, DeliveredRows, OnDuplicate
from delaystore.bulk.staging._database import LoadDatabase
from delaystore.bulk.staging._dialects import distinct_ids, there_already, twice, waiting_already
from delaystore.bulk.staging._registry import Registry, finished_load
from delaystore.bulk.staging.abc import FinishedLoad, LoadKey, StagedAttempt
from delaystore.errors import (
    NAMED_DUPLICATES,
    DuplicateMessageError,
    KeyInUseError,
    LoadLostError,
    MessageBeingDispatchedError,
    MessageBeingStoredError,
    MessageDeliveredError,
    StoreUnavailableError,
)
from delaystore.message import DelayedMessage, KeyRule
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.records import Change, Ending
from delaystore.stores.shared import unlike
from delaystore.stores.sql.bound import BoundSqlStore
from delaystore.stores.sql.bulk_partitions import PendingPartition
from delaystore.stores.sql.codec import ATTEMPT, LOAD, MESSAGE_KEY, NOT_AFTER, WITH_NOT_AFTER, in_order, message_columns
from delaystore.stores.sql.dialects.base import with_key
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.faults import Fault
from delaystore.stores.sql.operating.history import is_delivered
from delaystore.stores.sql.operating.loads import LoadChanges
from delaystore.stores.sql.rows import time_or_earliest, to_readable_message
from delaystore.stores.sql.schema import is_cancelled

TRIES: Final = 5
"""The most attempts at a promotion, if other transactions come in the way."""
CLAIM_TIMEOUT: Final = 600.0
"""Seconds to wait for dispatchers' leases on messages that are to be replaced."""
LOOKED_AT: Final = 10_000
"""Message ids in one statement: it fits into a packet of MariaDB, and it searches by the primary key.

Waiting messages that are locked at once, for a moment, to see whether dispatchers have them.
"""
INDEXED: Final = 300
"""Ids from which the staging gets an index; without one, PostgreSQL 13 compares each row with each id."""
LISTED: Final = 500_000
"""Ids of waiting messages that are kept in memory at once."""
_POLL: Final = 0.5
_WAITING: Final = "already waiting in the store"
_TWICE: Final = "twice in the load"
_NOT_AGAIN: Final = "leave it out, or set the option onDuplicate to ignore or replace"
_DELIVERED: Final = "leave their rows out, or set the option ifDelivered to skip"
_ONE_EACH: Final = "leave one row of each, or set the option onDuplicate to ignore, which keeps any one of them"


_COLUMNS: Final = [*WITH_NOT_AFTER, LOAD]
"""The columns that a row of a load has in the table of messages."""


class Rules(NamedTuple):
    """The rules for messages whose id or key waits already, the audit entry of replaced ones, if any, and the rule for
    messages that were delivered.
    """

    on_duplicate: OnDuplicate
    key_rule: KeyRule = REJECTED
    noted_as: Change | None = None
    if_delivered: DeliveredRows = DeliveredRows.LOAD


class _Staged(NamedTuple):
    """Figures about the staged rows.

    `earliest`: the first next attempt, also of rows that were left out; None: nothing was staged. `due`: the first and
    the last due time; none without rows. `plain` and `keyed`: how many are to be stored, without a key and with one.
    `fit`: there are no rows but those to be stored, and none with a key.
    """

    earliest: datetime | None = None
    due: Sequence[Any] = ()
    plain: int = 0
    keyed: int = 0
    fit: bool = False


class Promotion:
    """The promotion of one load's attempts."""

    def __init__(
        self,
        database: LoadDatabase,
        token: str,
        lease: timedelta,
        key: LoadKey,
        attempts: Sequence[StagedAttempt],
        rules: Rules,
    ) -> None:
        self._database, self._registry = database, Registry(database)
        self._token, self._lease, self._key = token, lease, key
        self._expected = {int(attempt.attempt): attempt.count for attempt in attempts if attempt.count}
        self._rejected = sum(attempt.rejected for attempt in attempts)
        self._number = 0
        self._on_duplicate, self._key_rule, self._noted_as, self._if_delivered = rules
        self._staging = database.staging(token)
        self._partition: PendingPartition | None = None
        self._staged_rows = _Staged()
        self._replaced = 0

    def run(self) -> FinishedLoad:
        """Promote, once; see the contract."""
        try:
            return self._run_in_partition()
        except _FinishedError as error:
            return error.load

    def _run_in_partition(self) -> FinishedLoad:
        """Many rows wait in a bulk partition of their own, unless some wait already."""
        self._settle_delivered()
        if self._on_duplicate is OnDuplicate.IGNORE:
            with self._holding():
                pass
            self._leave_out_waiting()
        partitions = self._database.store.partitions
        rows, fewest = sum(self._expected.values()), None
        if partitions is not None and rows >= partitions.limits.fewest_rows:
            with translated_errors():
                fewest = partitions.fewest_rows(rows)
        if partitions is None or fewest is None or rows < fewest:
            return self._run()
        with self._holding() as bound:
            self._staged_rows = self._check(bound.connection)
            adopts = self._staged_rows.fit and partitions.may_adopt(bound.connection, self._staging)
        fill, staging = (self._keep, self._staging) if adopts else (self._fill, None)
        try:
            with translated_errors(), partitions.filled(fill, fewest, self._number, staging) as self._partition:
                return self._run()
        except (DuplicateMessageError, StoreUnavailableError) as error:
            self._partition = None  # `_run` decides about others' messages
            outage = error if isinstance(error, StoreUnavailableError) else None
        try:
            return self._run()
        except LoadLostError as error:
            raise LoadLostError(f"{error}; it failed before with: {outage}") if outage else error from None

    def _fill(self, connection: Connection, table: Table) -> int:
        """In the order in which they become due: neighbours are dispatched together."""
        self._database.dialect.take_time(connection)
        self._lock_load(connection)
        self._staged_rows = self._check(connection)
        staged = self._staged().order_by(*in_order(self._staging))
        statement = insert(table).from_select(_COLUMNS, staged, include_defaults=False)
        stored = connection.execute(statement, execution_options={"preserve_rowcount": True}).rowcount
        if stored != self._staged_rows.plain:
            raise self._lost(stored, self._staged_rows.plain)
        return stored

    def _keep(self, connection: Connection, _: Table) -> int:
        """All rows are in it, as checked before; they are counted once more before it is attached."""
        self._database.dialect.take_time(connection)
        self._lock_load(connection)
        return sum(self._expected.values())

    def _run(self) -> FinishedLoad:
        deadline = time.monotonic() + CLAIM_TIMEOUT
        tries = 0
        while True:
            try:
                with self._database.writing() as bound:
                    return self._promote(bound)
            except (_ClaimedError, _AnnouncedError, KeyInUseError, MessageBeingDispatchedError) as error:
                self._pause(deadline, error)
            except MessageDeliveredError:
                if self._if_delivered is not DeliveredRows.SKIP or self._partition is not None:
                    raise
                self._settle_delivered()  # of an id that a dispatcher had until just now
            except _ConflictError as conflict:
                if isinstance(conflict, _DuplicatesError):
                    if self._on_duplicate is OnDuplicate.IGNORE:
                        self._leave_out_waiting()
                    elif self._are_claimed():
                        self._pause(deadline, _ClaimedError())
                        continue
                tries += 1
                if tries == TRIES:
                    raise StoreUnavailableError(
                        f"the load {self._key.load_id!r} failed after {TRIES} conflicts with other transactions; "
                        "run it again"
                    ) from None

    def _pause(self, deadline: float, error: Exception) -> None:
        if time.monotonic() > deadline:
            raise StoreUnavailableError(f"{error} for {CLAIM_TIMEOUT:.0f} s; load again") from None
        with self._holding():
            pass
        self._database.store.clean_up()
        time.sleep(_POLL)

    def _settle_delivered(self) -> None:
        """Leave staged rows out whose ids were delivered, or raise MessageDeliveredError, as the options say."""
        if self._if_delivered is DeliveredRows.LOAD:
            return
        with self._holding() as bound:
            if self._if_delivered is DeliveredRows.SKIP:
                staging = self._staging
                self._database.dialect.prefer_indexes(bound.connection)  # the history may be far larger than the load
                left_out = update(staging).values({staging.c[ATTEMPT]: _left_out(staging.c[ATTEMPT])})
                bound.connection.execute(left_out.where(self._chosen(), self._was_delivered()))
            self._refuse_delivered(bound)

    def _refuse_delivered(self, bound: BoundSqlStore) -> None:
        """Raise MessageDeliveredError if ids of rows that are to be stored were delivered.

        After the insert, in its transaction, none of the ids is being delivered any more.
        """
        if self._if_delivered is DeliveredRows.LOAD:
            return
        bound.require_history("the option ifDelivered")
        self._database.dialect.prefer_indexes(bound.connection)
        message_id = self._staging.c.message_id
        found = select(message_id).where(self._chosen(), self._was_delivered()).order_by(message_id)
        if ids := bound.connection.execute(found.limit(NAMED_DUPLICATES)).scalars().all():
            raise MessageDeliveredError(ids, remedy=_DELIVERED)

    def _was_delivered(self) -> ColumnElement[bool]:
        history = self._database.tables.history
        return exists().where(history.c.message_id == self._staging.c.message_id, is_delivered(history))

    def _leave_out_waiting(self) -> None:
        """Leave a staged row out if the message of its id waits, and no dispatcher has claimed it.

        A claimed message is waited for; if its dispatcher removes it, the staged row is stored. Each transaction locks
        a few thousand messages for a moment, so dispatchers take the others. After a crash the load is run again.
        """
        database, after, claimed = self._database, "", list[str]()
        while True:
            with database.reading() as connection:
                database.dialect.take_time(connection)
                self._lock_load(connection)
                there = there_already(self._staged(), database.live, after, LISTED)
                ids = connection.execute(there).scalars().all()
            claimed += self._looked_at(ids)
            if len(ids) < LISTED:
                break
            after = ids[-1]
        deadline = time.monotonic() + CLAIM_TIMEOUT
        while claimed:
            self._pause(deadline, _ClaimedError())
            claimed = self._looked_at(claimed)

    def _looked_at(self, ids: Sequence[str]) -> list[str]:
        """Leave out the ids that wait unclaimed, LOOKED_AT in each transaction; returns claimed ones."""
        if len(ids) >= INDEXED:
            with self._holding() as bound:
                # by the token: PostgreSQL and SQLite have one namespace for the indexes of all tables
                Index(f"{self._token}_ids", self._staging.c.message_id).create(bound.connection, checkfirst=True)
        claimed: list[str] = []
        for some in _chunks(ids):
            with self._holding() as bound:
                claimed += self._look_at(bound, some)
        return claimed

    def _look_at(self, bound: BoundSqlStore, ids: Sequence[str]) -> list[str]:
        dialect, staging, live = self._database.dialect, self._staging, self._database.live
        dialect.prefer_indexes(bound.connection)
        unclaimed = bound.unclaimed_ids(ids)
        if unclaimed:
            left_out = update(staging).values({staging.c[ATTEMPT]: _left_out(staging.c[ATTEMPT])})
            these = dialect.among(staging.c.message_id, "ids")
            bound.connection.execute(left_out.where(self._has_no_key(), these), {"ids": unclaimed})
        rest = sorted(set(ids).difference(unclaimed))
        there = select(live.c.message_id).where(dialect.among(live.c.message_id, "ids"))
        return list(bound.connection.execute(there, {"ids": rest}).scalars()) if rest else []

    def _promote(self, bound: BoundSqlStore) -> FinishedLoad:
        connection = bound.connection
        self._database.dialect.take_time(connection)
        self._lock_load(connection)
        if self._partition is None:
            self._staged_rows = self._check(connection)
        stored, expected, earliest = 0, sum(self._expected.values()), self._staged_rows.earliest
        self._replaced = 0
        if earliest is not None:
            stored, keyed, left_out = self._store(bound)
            wanted = self._staged_rows.plain + self._staged_rows.keyed
            if self._on_duplicate is OnDuplicate.ERROR and stored + keyed + left_out != wanted:
                raise self._lost(stored + keyed + left_out, wanted)
            self._refuse_delivered(bound)
            self._note_replaced(bound)
            bound.stored(earliest)
            # without keys, a replaced row counts as two in some databases
            stored = stored + keyed if self._on_duplicate is OnDuplicate.IGNORE else wanted - left_out
        finished = FinishedLoad(self._key, bound.now(), stored, expected - stored)
        self._registry.finish(connection, finished, self._rejected, self._staged_rows.due)
        return finished

    def _count_replaced(self, bound: BoundSqlStore) -> int | None:
        """Count the waiting messages that rows without a key are about to replace; the loads that stored them note it.

        A new bulk partition replaces no message_id: it does not come here. Where a history is kept, the messages are
        locked, and get their entries. Returns how many were locked then; None: no history is kept.
        """
        live, dialect, connection = self._database.live, self._database.dialect, bound.connection
        ids = select(self._staging.c.message_id).where(self._has_no_key())
        these, locked = live.c.message_id.in_(ids), None
        by = None if self._noted_as is None else self._noted_as.by
        entries = bound.new_entries(Ending.REPLACED, bound.now(), by)
        if entries is not None:
            locked = dialect.lock_waiting(connection, live, ids)
            dialect.insert_entries(connection, [these], {}, entries)
        counted = select(live.c[LOAD], func.count().label("messages")).where(these)
        counts = {row[0]: row.messages for row in connection.execute(counted.group_by(live.c[LOAD]))}
        LoadChanges(bound).note({number: n for number, n in counts.items() if number is not None}, Ending.REPLACED)
        self._replaced = sum(counts.values())
        return locked

    def _note_replaced(self, bound: BoundSqlStore) -> None:
        """Note how many waiting messages were replaced, as one entry of the audit trail.

        The entry is in the promotion's transaction: it is there if, and only if, the messages are replaced.
        """
        if self._noted_as is not None and self._replaced:
            batch = "" if self._key.batch is None else f", batch {self._key.batch}"
            about = f"messages of the load {self._key.load_id}{batch}"
            bound.note_changes([self._noted_as.of_many(bound.now(), about, self._replaced)])

    @contextmanager
    def _holding(self) -> Iterator[BoundSqlStore]:
        """A transaction that has the load locked, as by `_lock_load`; its lease begins again."""
        with self._database.writing() as bound:
            self._database.dialect.take_time(bound.connection)
            self._lock_load(bound.connection)
            self._registry.prolong(bound.connection, self._key.load_id, self._token, self._lease)
            yield bound

    def _lock_load(self, connection: Connection) -> None:
        """Lock the load, so that no other process gives it up.

        Raises:
            LoadLostError: Another run has the load.
            _FinishedError: The load is finished.

        """
        row = self._registry.locked(connection, self._key.load_id, wait=True)
        if row is not None and (finished := finished_load(row, self._key)) is not None:
            raise _FinishedError(finished)
        if row is not None and is_cancelled(row):
            raise LoadLostError(
                f"the load {self._key.load_id!r} was cancelled by {row.cancelled_by}; nothing of it was stored; choose "
                "another load id, or set the option again, which loads it once more"
            )
        if row is None or row.token != self._token:
            raise LoadLostError(
                f"the load {self._key.load_id!r} was taken over, or given up after a time without a sign of life; "
                "nothing of it was stored; run it again"
            )
        self._number = row.number

    def _check(self, connection: Connection) -> _Staged:
        """Count the rows of the winning attempts. LoadLostError if some are missing."""
        if not self._expected:
            return _Staged()
        columns = self._staging.c
        figures = (func.min(columns.next_attempt), func.min(columns.due_time), func.max(columns.due_time))
        counts = (func.count(), func.count(columns[MESSAGE_KEY]), *figures)
        rows = connection.execute(select(columns[ATTEMPT], *counts).group_by(columns[ATTEMPT])).all()
        chosen = [row for row in rows if max(row[0], _left_out(row[0])) in self._expected]
        found = Counter[int]()
        for row in chosen:
            found[max(row[0], _left_out(row[0]))] += row[1]
        if dict(found) != self._expected:
            raise self._lost(sum(found.values()), sum(self._expected.values()))
        winners = [row for row in chosen if row[0] in self._expected]
        keyed = sum(row[2] for row in winners)
        return _Staged(
            earliest=min(row[3] for row in chosen),
            due=(min(row[4] for row in winners), max(row[5] for row in winners)) if winners else (),
            plain=sum(row[1] for row in winners) - keyed,
            keyed=keyed,
            fit=len(rows) == len(winners) and not keyed,
        )

    def _lost(self, left: int, staged: int) -> LoadLostError:
        return LoadLostError(
            f"{left} rows of the load {self._key.load_id!r} are left where {staged} were staged (a database that "
            "crashes loses staged rows); nothing of it was stored; run it again"
        )

    def _store(self, bound: BoundSqlStore) -> tuple[int, int, int]:
        """How many were stored without a key and with one, and how many of the latter were left out."""
        if self._partition is None:
            stored = self._insert(bound)
            return stored, *self._place_keyed(bound)
        placed: list[tuple[int, int]] = []
        self._partition.move_in(bound.connection, lambda: placed.append(self._place_keyed(bound)))
        return self._partition.rows, *placed[0]

    def _insert(self, bound: BoundSqlStore) -> int:
        connection, dialect, staged = bound.connection, self._database.dialect, self._staged()
        wanted = staged
        replaces = self._on_duplicate is OnDuplicate.REPLACE
        if dialect.is_claimed(connection, self._database.live, staged, bound.now()):
            raise _ClaimedError
        if replaces and dialect.replaces_twice and connection.execute(twice(staged)).first() is not None:
            raise _DuplicatesError
        live, partitions = self._database.live, self._database.store.partitions
        parent = None if partitions is None else partitions.parent
        try:
            locked = self._count_replaced(bound) if replaces else None
            staged = dialect.except_in_partitions(connection, live, parent, staged, self._on_duplicate)
            if locked is None:
                stored = self._move(connection, staged, self._on_duplicate)
            else:
                waits = exists().where(live.c.message_id == self._staging.c.message_id)
                stored = self._move(connection, staged.where(waits), OnDuplicate.REPLACE)
                new = self._move(connection, staged.where(~waits), OnDuplicate.ERROR)
                if new != self._staged_rows.plain - locked:  # a message came after the lock, and has no entry
                    raise _ConflictError
                stored += new
        except DuplicateMessageError:
            raise _DuplicatesError from None
        except MessageBeingStoredError:
            raise _AnnouncedError from None
        except DBAPIError as error:
            fault = dialect.fault(error)
            if fault is Fault.DUPLICATE:
                raise _DuplicatesError from None
            if fault in (Fault.CONFLICT, Fault.LOCKED):
                raise _ConflictError from None
            raise
        if self._on_duplicate is OnDuplicate.IGNORE and connection.execute(distinct_ids(wanted)).scalar_one() != stored:
            raise _DuplicatesError  # which have come since they were left out: dispatchers may have them
        return stored

    def _move(self, connection: Connection, staged: Select[Any], rule: OnDuplicate) -> int:
        """Insert staged rows; returns how many rows the database counts."""
        statement = self._database.dialect.promoting(self._database.live, _COLUMNS, staged, rule)
        return connection.execute(statement, execution_options={"preserve_rowcount": True}).rowcount

    def _place_keyed(self, bound: BoundSqlStore) -> tuple[int, int]:
        """Store messages with a key, the first due first: the later one of two with one key is the new one.

        One after the other: a bulk partition does not support keys. Returns how many were stored, and how many left
        out.
        """
        if not self._staged_rows.keyed:
            return 0, 0
        connection, staging, stored = bound.connection, self._staging, list[str]()
        columns = [*message_columns(staging), staging.c[MESSAGE_KEY], staging.c[NOT_AFTER]]
        keyed = select(*columns).where(self._has_key()).order_by(*in_order(staging))
        rows = connection.execute(keyed).all()
        due_times = self._due_times_of_replaced(connection)
        replaced = self._holders_of_keys(connection)
        former = dict[str, int]()
        for ids in _chunks(sorted(replaced.union(due_times))):
            former.update(bound.loads_of(ids))
        for row in rows:
            message = to_readable_message(row, row.message_key, row.not_after)
            try:
                if message.message_id in due_times:
                    message = unlike(message, message.message_id, due_times[message.message_id])
                    is_stored = self._put_in_place(bound, message)
                    if is_stored:
                        replaced.add(message.message_id)
                else:
                    is_stored = bound.store_keyed(message, self._key_rule) == message.message_id
            except DuplicateMessageError:
                if self._on_duplicate is OnDuplicate.REPLACE:
                    raise _DuplicatesError from None  # it has come since the due times were read
                if self._on_duplicate is OnDuplicate.ERROR:
                    raise
                is_stored = False
            if is_stored:
                stored.append(message.message_id)
        live = self._database.live
        of_load = update(live).values({live.c[LOAD]: self._number})
        these = of_load.where(self._database.dialect.among(live.c.message_id, "ids"))
        left = sum(connection.execute(these, {"ids": ids}).rowcount for ids in _chunks(stored))
        gone = Counter(former[message_id] for message_id in replaced & former.keys())
        gone[self._number] += len(stored) - left  # by later rows of the load, with the same key
        LoadChanges(bound).note(+gone, Ending.REPLACED)
        self._replaced += len(replaced)
        return len(stored), len(rows) - len(stored)

    def _due_times_of_replaced(self, connection: Connection) -> Mapping[str, datetime]:
        """The due times of the waiting messages whose ids rows with a key have, by id; none unless they are replaced.

        Raises DuplicateMessageError for such an id that is twice in the load.
        """
        if self._on_duplicate is not OnDuplicate.REPLACE:
            return {}
        live, staging = self._database.live, self._staging
        ids = select(staging.c.message_id).where(self._has_key())
        repeated = twice(select(staging.c.message_id).where(self._chosen(), staging.c.message_id.in_(ids)))
        if found := connection.execute(repeated).scalars().all():
            raise DuplicateMessageError(found, _TWICE, _ONE_EACH)
        waiting = select(live.c.message_id, live.c.due_time).where(live.c.message_id.in_(ids))
        return {row.message_id: time_or_earliest(row.due_time) for row in connection.execute(waiting)}

    def _holders_of_keys(self, connection: Connection) -> set[str]:
        """The ids of the waiting messages whose keys rows have that replace them; none where that is not noted."""
        if self._noted_as is None or not self._key_rule.replaces:
            return set()
        live = self._database.live
        keys = select(self._staging.c[MESSAGE_KEY]).where(self._has_key())
        holders = with_key(select(live.c.message_id), live).where(live.c[MESSAGE_KEY].in_(keys))
        return set(connection.execute(holders).scalars())

    def _put_in_place(self, bound: BoundSqlStore, message: DelayedMessage) -> bool:
        """Store a message with a key in the place of the waiting one of its id, whose own key is no conflict.

        False: another message has the key, and is kept; then the one of the id is kept, too.
        """
        try:
            with self._database.dialect.savepoint(bound.connection):
                if (
                    bound.cancel(message.message_id, ending=Ending.REPLACED, counted=False)
                    is ManagementOutcome.BEING_DISPATCHED
                ):
                    raise MessageBeingDispatchedError([message.message_id])
                if bound.store_keyed(message, self._key_rule) != message.message_id:
                    raise _KeyKeptError
        except _KeyKeptError:
            return False
        return True

    def _are_claimed(self) -> bool:
        """Whether dispatchers have the duplicates that were found; False: they have gone. DuplicateMessageError: they
        wait, or are twice in the load.
        """
        staged = self._staged()
        with self._database.reading() as connection:
            repeated = connection.execute(twice(staged)).scalars().all()
            known: Sequence[str] = ()
            if not repeated and self._on_duplicate is OnDuplicate.ERROR:
                known = connection.execute(waiting_already(staged, self._database.live)).scalars().all()
        if repeated:
            raise DuplicateMessageError(repeated, _TWICE, _ONE_EACH) from None
        waiting = list(self._database.store.get_unclaimed(known)) if known else []
        if waiting:
            raise DuplicateMessageError(waiting, _WAITING, _NOT_AGAIN) from None
        return bool(known)

    def _staged(self) -> Select[Any]:
        """Those without a key, in the order in which they lie. Each chunk is sorted, as suits the primary key."""
        staging, number = self._staging, literal(self._number, Integer)
        return select(*(staging.c[name] for name in WITH_NOT_AFTER), number.label(LOAD)).where(self._has_no_key())

    def _has_no_key(self) -> ColumnElement[bool]:
        return self._chosen() & self._staging.c[MESSAGE_KEY].is_(None)

    def _has_key(self) -> ColumnElement[bool]:
        return self._chosen() & self._staging.c[MESSAGE_KEY].is_not(None)

    def _chosen(self) -> ColumnElement[bool]:
        return self._staging.c[ATTEMPT].in_(list(self._expected))


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The ids, LOOKED_AT at a time."""
    return (ids[start : start + LOOKED_AT] for start in range(0, len(ids), LOOKED_AT))


_Number = TypeVar("_Number", int, ColumnElement[int])


def _left_out(attempt: _Number) -> _Number:
    """The number that a row of `attempt` has once it is left out, which is below 0; and the other way round."""
    return -1 - attempt


class _FinishedError(Exception):
    """Another process of the same run, or an earlier call, has finished the load."""

    def __init__(self, load: FinishedLoad) -> None:
        self.load = load


class _ClaimedError(Exception):
    """A dispatcher has claimed a message of the load's ids, which it may remove at any moment."""

    def __str__(self) -> str:
        return "messages of the load's ids were claimed by dispatchers"


class _AnnouncedError(Exception):
    """A message_id is in a bulk partition that is not attached yet."""

    def __str__(self) -> str:
        return "messages of the load were just being stored by others"


class _ConflictError(Exception):
    """Another transaction came in the way."""


class _DuplicatesError(_ConflictError):
    """A message_id is there twice."""


class _KeyKeptError(Exception):
    """Rolls back to the savepoint: the waiting message of a key is kept."""
