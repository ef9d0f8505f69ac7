"""A transaction of the in-memory store, with its claims, new messages and changes until it ends."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import ClassVar, NamedTuple

from typing_extensions import override

from delaystore.clock import Clock
from delaystore.errors import (
    DuplicateMessageError,
    KeyInUseError,
    MessageBeingDispatchedError,
    MessageBeingStoredError,
    MessageDeliveredError,
    StoreError,
)
from delaystore.filters import Shift
from delaystore.message import (
    DelayedMessage,
    KeyRule,
    OnKey,
    check_key,
    check_message_id,
    utc,
    waiting_until,
)
from delaystore.settings import TransactionMode
from delaystore.stores.abc import REJECT, ManagementOutcome
from delaystore.stores.history import DeduplicatingStore, HistoryEntry, without_history
from delaystore.stores.memory._schedules import MemorySchedules
from delaystore.stores.memory._waiting import (
    WaitingEntry,
    WaitingMessages,
    after_failed_delivery,
    after_failure,
    copied,
    fetched,
    parked,
    rescheduled,
    shown,
)
from delaystore.stores.operable import AuditedKeyedStore, OperableTransaction
from delaystore.stores.records import (
    AuditEntry,
    Change,
    ChangeAction,
    Ending,
    FailedDelivery,
    MessageBefore,
    is_postponed,
)
from delaystore.stores.schedules import ScheduleRows, SchedulingTransaction
from delaystore.stores.shared import (
    ClaimsInBatches,
    bounded,
    in_order_of_keys,
    key_of,
    refuse_duplicate,
    shifted,
    unlike,
    without_keys,
)


class _Write(NamedTuple):
    """The change of one waiting message that a transaction makes when it commits."""

    entry: WaitingEntry
    """The waiting message as it is now, claimed by the transaction."""
    message: DelayedMessage | None
    """The message after the commit, changed or not; None: it is removed."""


class InMemoryTransaction(
    ClaimsInBatches, AuditedKeyedStore, DeduplicatingStore, OperableTransaction, SchedulingTransaction
):
    """Claims fetched messages until the block ends, and keeps its writes to itself until then.

    Messages that the block stores are fetched only after its end, by others and by the block. It may settle messages
    that `owner`, the store it came from, has leased. `get`, `cancel` and `reschedule` see the block's own changes.
    `instead`: what to do once it has ended, for the error message.
    """

    keeps_not_after: ClassVar[bool] = True

    def __init__(self, waiting: WaitingMessages, clock: Clock, owner: object, instead: str) -> None:
        self._waiting = waiting
        self._clock = clock
        self._owner = owner
        self._instead = instead
        self._writes: dict[str, _Write] = {}
        """By message_id: waiting messages that the block has claimed."""
        self._stored: dict[str, WaitingEntry] = {}
        """By message_id: new messages. One may have the id of a message that the block has removed."""
        self._keys: dict[str, str] = {}
        """The message_id by key, of new messages."""
        self._noted: list[AuditEntry] = []
        self._entries: list[HistoryEntry] = []
        self._limits_as_of: int | None = None
        self._schedules = MemorySchedules(waiting.schedules, self, self._ids)
        self._ended = False

    @override
    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        """The store this block came from has been initialized."""

    @override
    def now(self) -> datetime:
        return self._clock.now()

    @property
    @override
    def schedule_rows(self) -> ScheduleRows:
        with self._waiting.lock:
            self._check_open()
        return self._schedules

    def _ids(self, prefix: str) -> Sequence[str]:
        """The ids of waiting and new messages that begin with `prefix`."""
        with self._waiting.lock:
            return [each for each in {*self._waiting.entries, *self._stored} if each.startswith(prefix)]

    @override
    def store(self, message: DelayedMessage) -> None:
        self.store_many([message])

    @override
    def store_many(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> int:
        """Reserve the ids and keys of all of `messages`, or of none; waits for no dispatcher."""
        keyed: list[DelayedMessage] = []
        new = [copied(message) for message in without_keys(messages, keyed)]
        with self._waiting.lock:
            self._check_open()
            self._check_new(new)
            stored = {message.message_id: WaitingEntry(message) for message in new}
            if not keyed:
                self._put(stored)
                return len(new)
            with self._all_or_nothing():
                self._put(stored)
                placed = (self._place(each, rule, change) == each.message_id for each in in_order_of_keys(keyed))
                return len(new) + sum(placed)

    @override
    def store_new(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> Mapping[str, str]:
        """As `store_many`; the history has messages that this block removes only after its end."""
        keyed: list[DelayedMessage] = []
        new = [copied(message) for message in without_keys(messages, keyed)]
        with self._waiting.lock, self._all_or_nothing():
            self._check_open()
            if self._waiting.history.since is None:
                raise without_history("if_delivered='reject'")
            self._check_new(new)
            self._put({message.message_id: WaitingEntry(message) for message in new})
            waiting = {message.message_id: message.message_id for message in new}
            waiting |= {each.message_id: self._place(each, rule, change) for each in in_order_of_keys(keyed)}
            if delivered := self._waiting.history.delivered(waiting):
                raise MessageDeliveredError(sorted(delivered))
            return waiting

    @override
    def store_keyed(self, message: DelayedMessage, rule: KeyRule, *, change: Change | None = None) -> str:
        """Store, keep or replace the message of the key, as `rule` says; returns the id of the message that waits then.

        Raises KeyInUseError at once while a dispatcher or another transaction has the message of the key.
        """
        with self._waiting.lock:
            self._check_open()
            return self._place(message, rule, change)

    @override
    def message_id_of(self, key: str) -> str | None:
        """Finds messages that this block has stored, too."""
        check_key(key)
        with self._waiting.lock:
            self._check_open()
            return self._keys.get(key) or self._waiting.keys.get(key)

    def _place(self, message: DelayedMessage, rule: KeyRule, change: Change | None) -> str:
        """Store, keep or replace; a replaced message is claimed until the block ends, and removed then."""
        key, now = key_of(message), self._clock.now()
        own = self._keys.get(key)
        entry = None if own is not None else self._entry_with(key, now)
        there = own if entry is None else entry.message.message_id
        if there is not None:
            if rule.on_key in (OnKey.KEEP, OnKey.REJECT):
                self._waiting.promise([there], self)
            refuse_duplicate(message, there, rule)
            if rule.on_key is OnKey.KEEP:
                return there
        first_sent = now
        if there is not None and rule.on_key is OnKey.DEBOUNCE:
            first_sent = (self._stored[there] if entry is None else entry).first_sent or now
        self._check_new([message], replaced=there)
        replaced = entry if own is None else self._stored[own]
        before = None if replaced is None else replaced.message
        new = bounded(message, first_sent, rule)
        if own is not None:
            self._forget(own)
        if entry is not None:
            self._waiting.claim(entry, self, None)
            self._writes[entry.message.message_id] = _Write(entry, None)
            new = unlike(new, entry.message.message_id, entry.message.due_time)
        self._put({new.message_id: WaitingEntry(copied(new), first_sent=first_sent)})
        self._keys[key] = new.message_id
        self._waiting.reserved_keys.add(key)
        if before is not None:
            by = None if change is None else change.by
            self._entries += self._waiting.history.made_of(before, Ending.REPLACED, now, by)
        if before is not None and change is not None:
            self._noted.append(change.of_message(now, MessageBefore.of(before), new.due_time, message.message_id))
        return message.message_id

    def _check_new(self, messages: Sequence[DelayedMessage], replaced: str | None = None) -> None:
        """Raise for an id that occurs twice, waits or is being stored; `replaced` is about to be removed.

        DuplicateMessageError: the sender relies on the waiting messages; see `WaitingMessages.promise`.
        MessageBeingDispatchedError: others have claimed all that wait.
        """
        now, entries, reserved = self._clock.now(), self._waiting.entries, self._waiting.reserved
        seen: set[str] = set()
        duplicates: list[str] = []
        claimed: list[str] = []
        for message in messages:
            message_id = message.message_id
            if message_id == replaced:
                continue
            entry = entries.get(message_id)
            if message_id in seen or message_id in self._stored:
                duplicates.append(message_id)
            elif entry is not None and not self._has_removed(message_id):
                is_taken = entry.claimer is not self and entry.is_claimed(now)
                (claimed if is_taken else duplicates).append(message_id)
            elif message_id in reserved:
                raise MessageBeingStoredError(message_id)
            seen.add(message_id)
        if duplicates:
            self._waiting.promise(duplicates, self)
            raise DuplicateMessageError(duplicates)
        if claimed:
            raise MessageBeingDispatchedError(claimed)

    def _entry_with(self, key: str, now: datetime) -> WaitingEntry | None:
        """The waiting message with `key`, unless this block removed it; raises KeyInUseError where others have it."""
        message_id = self._waiting.keys.get(key)
        if key in self._waiting.reserved_keys:
            raise KeyInUseError(key)
        if message_id is None or self._has_removed(message_id):
            return None
        entry = self._waiting.entries[message_id]
        if entry.claimer is not self and entry.is_claimed(now):
            raise KeyInUseError(key)
        if entry.claimer is not self:  # a lease that has expired: its dispatcher may come late
            self._waiting.free(entry)
        return entry

    def _put(self, stored: Mapping[str, WaitingEntry]) -> None:
        """Store these messages at the commit; their ids are reserved until then."""
        self._stored.update(stored)
        self._waiting.reserved.update(stored)

    def _forget(self, message_id: str) -> None:
        """Do not store a new message after all."""
        key = self._stored.pop(message_id).message.key
        self._waiting.reserved.discard(message_id)
        if key is not None:
            del self._keys[key]
            self._waiting.reserved_keys.discard(key)

    def _has_removed(self, message_id: str) -> bool:
        """Whether this block has removed the waiting message of that id, perhaps for a new one."""
        write = self._writes.get(message_id)
        return write is not None and write.message is None

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo the block's writes when it raises."""
        writes, stored, keys = dict(self._writes), dict(self._stored), dict(self._keys)
        noted, ended = len(self._noted), len(self._entries)
        try:
            yield
        except BaseException:
            for message_id in self._writes.keys() - writes:
                self._waiting.free(self._writes[message_id].entry)
            self._free_reserved()
            self._writes, self._stored, self._keys = writes, stored, keys
            del self._noted[noted:], self._entries[ended:]
            self._waiting.reserved.update(stored)
            self._waiting.reserved_keys.update(keys)
            raise

    def _free_reserved(self) -> None:
        self._waiting.reserved.difference_update(self._stored)
        self._waiting.reserved_keys.difference_update(self._keys)

    @override
    def fetch_batch(self, at: datetime, limit: int, most_bytes: int) -> Sequence[DelayedMessage]:
        """Claim until the block ends; messages that it has claimed already are not fetched again."""
        at = utc(at, "at")
        with self._waiting.lock:
            self._check_open()
            entries = self._waiting.claim_due(at, limit, most_bytes, self, self._clock.now(), None)
            self._writes.update((entry.message.message_id, _Write(entry, entry.message)) for entry in entries)
            return [fetched(entry.message) for entry in entries]

    @override
    def remove_many(self, messages: Sequence[DelayedMessage]) -> int:
        return self.remove_ended(messages, Ending.DELIVERED, self._clock.now())

    @override
    def remove_ended(self, messages: Sequence[DelayedMessage], ending: Ending, at: datetime) -> int:
        """Delete at the block's end."""
        count, at = 0, utc(at, "at")
        with self._waiting.lock:
            self._check_open()
            for message in messages:
                entry = self._claim(message.message_id)
                if entry is not None:
                    self._writes[message.message_id] = _Write(entry, None)
                    self._entries += self._waiting.history.made_of(entry.message, ending, at)
                    count += 1
        return count

    @override
    def increment_failure_count(self, message: DelayedMessage, next_attempt: datetime | None = None) -> bool:
        """Count at the block's end; the claim lasts until then."""
        again = self._clock.now() if next_attempt is None else utc(next_attempt, "next_attempt")
        return self._settle(message, partial(after_failure, next_attempt=again))

    @override
    def count_failures(self, failures: Sequence[FailedDelivery]) -> int:
        """Count at the block's end, as all of these; the claims last until then."""
        return sum(self._settle(each.message, partial(after_failed_delivery, failure=each)) for each in failures)

    @override
    def postpone(self, postponed: Sequence[tuple[DelayedMessage, datetime]]) -> int:
        times = [(message, utc(at, "next_attempt")) for message, at in postponed]
        return sum(self._settle(message, partial(replace, next_attempt=at)) for message, at in times)

    @override
    def promised(self, destinations: Collection[str]) -> Mapping[str, datetime]:
        """Another limit that slips in between is noticed at the block's end."""
        with self._waiting.lock:
            known = self._waiting.destinations
            self._limits_as_of = known.limits_as_of
            return known.promised(destinations, self._clock.now())

    @override
    def park_claimed(self, messages: Sequence[DelayedMessage]) -> Sequence[str]:
        """Park at the block's end those whose destination is paused then, too; the others are shown again."""
        with self._waiting.lock:
            now, destinations = self._clock.now(), self._waiting.destinations
            paused = [message for message in messages if destinations.is_paused(message.destination, now)]
        return [message.message_id for message in paused if self._settle(message, parked)]

    @override
    def next(self) -> datetime | None:
        """Leaves out what open transactions, such as this one, have claimed or stored."""
        with self._waiting.lock:
            self._check_open()
            return self._waiting.next()

    def get(self, message_id: str) -> DelayedMessage | None:
        """The waiting message as this transaction sees it; None: not (or no longer) in the store."""
        check_message_id(message_id)
        with self._waiting.lock:
            self._check_open()
            seen = self._stored.get(message_id) or self._writes.get(message_id) or self._waiting.entries.get(message_id)
            return None if seen is None or seen.message is None else copied(seen.message)

    @override
    def cancel(self, message_id: str, *, change: Change | None = None, by: str | None = None) -> ManagementOutcome:
        """Delete at the commit; messages of this transaction are gone at once. `by`: who, without a `change`."""
        check_message_id(message_id)
        with self._waiting.lock:
            self._check_open()
            outcome = self._take(message_id)
            if outcome is not ManagementOutcome.DONE:
                return outcome
            stored = self._stored.get(message_id)
            message = self._writes[message_id].message if stored is None else stored.message
            assert message is not None
            self._note(message, change)
            is_replaced = change is not None and change.action is ChangeAction.REPLACE
            ending, by = Ending.REPLACED if is_replaced else Ending.CANCELLED, by if change is None else change.by
            self._entries += self._waiting.history.made_of(message, ending, self._clock.now(), by)
            if stored is not None:
                self._forget(message_id)
            else:
                self._writes[message_id] = _Write(self._writes[message_id].entry, None)
            return outcome

    @override
    def reschedule(self, message_id: str, due_time: datetime, *, change: Change | None = None) -> ManagementOutcome:
        """Give the message a new due time and a failure count of 0 at the commit."""
        check_message_id(message_id)
        due_time = waiting_until(due_time, "due_time")
        return self._reschedule(message_id, lambda _: due_time, change)[0]

    @override
    def shift(
        self, message_id: str, by: Shift, *, change: Change | None = None
    ) -> tuple[ManagementOutcome, datetime | None]:
        """Move the due time that the message has in this transaction, at the commit."""
        check_message_id(message_id)
        return self._reschedule(message_id, partial(shifted, by=by), change)

    def _reschedule(
        self, message_id: str, due_time_of: Callable[[DelayedMessage], datetime], change: Change | None
    ) -> tuple[ManagementOutcome, datetime | None]:
        with self._waiting.lock:
            self._check_open()
            outcome = self._take(message_id)
            if outcome is not ManagementOutcome.DONE:
                return outcome, None
            stored = self._stored.get(message_id)
            message = self._writes[message_id].message if stored is None else stored.message
            assert message is not None
            due_time = due_time_of(message)
            self._note(message, change, due_time)
            if stored is not None:
                stored.message = rescheduled(message, due_time)
            else:
                self._writes[message_id] = _Write(self._writes[message_id].entry, rescheduled(message, due_time))
            return outcome, due_time

    @override
    def note_changes(self, entries: Sequence[AuditEntry]) -> None:
        """Keep them at the commit."""
        with self._waiting.lock:
            self._check_open()
            self._noted += entries

    def _note(self, message: DelayedMessage | None, change: Change | None, due_time: datetime | None = None) -> None:
        """Note, at the commit, a change of `message` as it is before; None: nothing is noted."""
        if message is not None and change is not None:
            self._noted.append(change.of_message(self._clock.now(), MessageBefore.of(message), due_time))

    def _take(self, message_id: str) -> ManagementOutcome:
        """Claim a waiting message until the transaction's end, so that no other one changes or dispatches it."""
        write, entry = self._writes.get(message_id), self._waiting.entries.get(message_id)
        if message_id in self._stored:
            return ManagementOutcome.DONE
        if write is not None:
            return ManagementOutcome.NOT_FOUND if write.message is None else ManagementOutcome.DONE
        if entry is None:
            return ManagementOutcome.NOT_FOUND
        if entry.is_claimed(self._clock.now()):
            return ManagementOutcome.BEING_DISPATCHED
        self._waiting.claim(entry, self, None)
        self._writes[message_id] = _Write(entry, entry.message)
        return ManagementOutcome.DONE

    def _settle(self, message: DelayedMessage, change: Callable[[DelayedMessage], DelayedMessage]) -> bool:
        """Change a claimed message at the block's end; False: it is gone, or the claim is."""
        with self._waiting.lock:
            self._check_open()
            entry = self._claim(message.message_id)
            if entry is None:
                return False
            write = self._writes.get(message.message_id)
            current = entry.message if write is None or write.message is None else write.message
            self._writes[message.message_id] = _Write(entry, change(current))
        return True

    def _claim(self, message_id: str) -> WaitingEntry | None:
        """The waiting message of that id, claimed by this block or its owner, now by this block; or None."""
        entry = self._waiting.entries.get(message_id)
        if entry is None or entry.claimer not in (self, self._owner) or self._has_removed(message_id):
            return None
        if entry.claimer is not self:
            self._waiting.claim(entry, self, None)
        return entry

    def commit(self) -> None:
        """Show the writes and free the other messages."""
        with self._waiting.lock:
            for message_id, (entry, message) in self._writes.items():
                if message is None:
                    self._waiting.drop(message_id)
                else:
                    entry.message = message if message is entry.message else self._as_kept(message)
                    self._waiting.free(entry)
            self._waiting.add(self._stored)
            self._waiting.changes += self._noted
            self._waiting.history.entries += self._entries
            self._end(committed=True)

    def _as_kept(self, message: DelayedMessage) -> DelayedMessage:
        """`message` as it is kept: shown, if its destination was resumed or got another limit meanwhile."""
        destinations = self._waiting.destinations
        is_stale = self._limits_as_of not in (None, destinations.limits_as_of)
        if is_stale and is_postponed(message):
            return shown(message)
        return destinations.settled(message, self._clock.now())

    def rollback(self) -> None:
        """Forget the writes and free the claimed messages."""
        with self._waiting.lock:
            for write in self._writes.values():
                self._waiting.free(write.entry)
            self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        self._schedules.end(committed=committed)
        self._free_reserved()
        self._ended = True

    def _check_open(self) -> None:
        if self._ended:
            raise StoreError(f"this transaction has ended; {self._instead}")
