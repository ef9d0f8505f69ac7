"""A block of the in-memory store: what it writes shows at its end, or never."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import ClassVar

from typing_extensions import override

from delaystore.clock import Clock
from delaystore.errors import KeyInUseError, StoreError
from delaystore.keys import KeyRule, OnKey
from delaystore.message import DelayedMessage, utc
from delaystore.settings import TransactionMode
from delaystore.stores._keys import bounded, in_order_of_keys, key_of, refuse_duplicate, unlike, without_keys
from delaystore.stores.abc import REJECT, KeyedDelayedMessageStore
from delaystore.stores.memory._destinations import parked, shown
from delaystore.stores.memory._stored import Stored
from delaystore.stores.memory._waiting import (
    Entry,
    WaitingMessages,
    after_failed_delivery,
    after_failure,
    copied,
    fetched,
)
from delaystore.stores.operable import (
    AuditEntry,
    Change,
    FailedDelivery,
    MessageBefore,
    OperableTransaction,
    is_postponed,
)


class InMemoryTransaction(KeyedDelayedMessageStore, OperableTransaction):
    """Claims what it fetches until the block ends, and keeps its writes to itself until then.

    What the block has stored is fetched, by others and by itself, only after its end. It may settle what `owner`,
    the store it came from, has leased.
    """

    _instead: ClassVar[str] = "begin another one with store.transaction()"

    def __init__(self, waiting: WaitingMessages, clock: Clock, owner: object) -> None:
        self._waiting = waiting
        self._clock = clock
        self._owner = owner
        self._claimed: dict[str, Entry] = {}
        self._removed: set[str] = set()
        self._changed: dict[str, DelayedMessage] = {}
        self._stored = Stored(waiting)
        self._noted: list[AuditEntry] = []
        self._limits_as_of: int | None = None
        self._ended = False

    @override
    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        """The store this block came from has been initialized."""

    @override
    def now(self) -> datetime:
        return self._clock.now()

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
            with self._all_or_nothing():
                self._check_new(new, self._removed, self._stored.messages)
                for message in new:
                    self._stored.add(message)
                placed = (self._place(each, rule, change) == each.message_id for each in in_order_of_keys(keyed))
                return len(new) + sum(placed)

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
        """Finds what this block has stored, too."""
        with self._waiting.lock:
            return self._stored.keys.get(key) or self._waiting.keys.get(key)

    def _place(self, message: DelayedMessage, rule: KeyRule, change: Change | None) -> str:
        """Store, keep or replace; what is replaced is claimed until the block ends, and removed then."""
        key, now = key_of(message), self._clock.now()
        own = self._stored.keys.get(key)
        entry = None if own is not None else self._entry_with(key, now)
        there = own if entry is None else entry.message.message_id
        if there is not None and rule.on_key in (OnKey.KEEP, OnKey.REJECT):
            self._waiting.promise([there], self)
        if there is not None:
            refuse_duplicate(message, there, rule)
        if there is not None and rule.on_key is OnKey.KEEP:
            return there
        first_sent = now
        if there is not None and rule.on_key is OnKey.DEBOUNCE:
            first_sent = (self._stored.first_sent.get(there) if entry is None else entry.first_sent) or now
        removed = self._removed if there is None else self._removed | {there}
        self._check_new([message], removed, self._stored.messages.keys() - {own})
        before = entry.message if entry is not None else self._stored.messages[own] if own is not None else None
        if own is not None:
            self._stored.drop(own)
        if entry is not None:
            self._waiting.claim(entry, self, None)
            self._claimed[entry.message.message_id] = entry
            self._removed.add(entry.message.message_id)
        new = bounded(message, first_sent, rule)
        if entry is not None:
            new = unlike(new, entry.message.message_id, entry.message.due_time)
        self._stored.add(copied(new), first_sent)
        if before is not None and change is not None:
            self._noted.append(change.of_message(now, MessageBefore.of(before), new.due_time, message.message_id))
        return message.message_id

    def _check_new(self, messages: Sequence[DelayedMessage], removed: Set[str], own: Collection[str]) -> None:
        self._waiting.check_new(messages, self, self._clock.now(), removed=removed, own=own)

    def _entry_with(self, key: str, now: datetime) -> Entry | None:
        """What waits with `key`, unless this block has removed it; raises KeyInUseError where others have it."""
        message_id = self._waiting.keys.get(key)
        if key in self._waiting.reserved_keys:
            raise KeyInUseError(key)
        if message_id is None or message_id in self._removed:
            return None
        entry = self._waiting.entries[message_id]
        if entry.claimer is not self and entry.is_claimed(now):
            raise KeyInUseError(key)
        if entry.claimer is not self:  # a lease that has expired: its dispatcher may come late
            self._waiting.free(entry)
        return entry

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo what the block stores when it raises."""
        claimed, removed, stored = dict(self._claimed), set(self._removed), self._stored.copy()
        noted = len(self._noted)
        try:
            yield
        except BaseException:
            for message_id in self._claimed.keys() - claimed:
                self._waiting.free(self._claimed[message_id])
            self._claimed, self._removed = claimed, removed
            self._stored.restore(stored)
            del self._noted[noted:]
            raise

    @override
    def fetch_next_due_timeout(self, at: datetime) -> DelayedMessage | None:
        return next(iter(self.fetch_due(at, 1)), None)

    @override
    def fetch_due(self, at: datetime, limit: int) -> Sequence[DelayedMessage]:
        return self.fetch_batch(at, limit, sys.maxsize)

    @override
    def fetch_batch(self, at: datetime, limit: int, most_bytes: int) -> Sequence[DelayedMessage]:
        """Claim until the block ends; what it has claimed already is not fetched again."""
        at = utc(at, "at")
        with self._waiting.lock:
            self._check_open()
            entries = self._waiting.claim_due(at, limit, most_bytes, self, self._clock.now(), None)
            self._claimed.update((entry.message.message_id, entry) for entry in entries)
            return [fetched(entry.message) for entry in entries]

    @override
    def remove(self, message: DelayedMessage) -> bool:
        """Delete at the block's end."""
        message_id = message.message_id
        with self._waiting.lock:
            self._check_open()
            if self._claim(message_id) is None:
                return False
            self._changed.pop(message_id, None)
            self._removed.add(message_id)
        return True

    @override
    def increment_failure_count(self, message: DelayedMessage, next_attempt: datetime | None = None) -> bool:
        """Count at the block's end; the claim lasts until then."""
        again = self._clock.now() if next_attempt is None else utc(next_attempt, "next_attempt")
        return self._change(message, lambda waiting: after_failure(waiting, again))

    @override
    def count_failures(self, failures: Sequence[FailedDelivery]) -> int:
        """Count at the block's end, as all of these; the claims last until then."""
        return sum(self._change(each.message, partial(after_failed_delivery, failure=each)) for each in failures)

    @override
    def postpone(self, postponed: Sequence[tuple[DelayedMessage, datetime]]) -> int:
        times = [(message, utc(at, "next_attempt")) for message, at in postponed]
        return sum(self._change(message, partial(replace, next_attempt=at)) for message, at in times)

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
        return [message.message_id for message in paused if self._change(message, parked)]

    @override
    def next(self) -> datetime | None:
        """Leaves out what this block has claimed or stored."""
        with self._waiting.lock:
            self._check_open()
            return self._waiting.next()

    def commit(self) -> None:
        """Show what was written and free the rest."""
        with self._waiting.lock:
            for message_id in self._removed:
                self._waiting.drop(message_id)
            now, destinations = self._clock.now(), self._waiting.destinations
            is_stale = self._limits_as_of not in (None, destinations.limits_as_of)
            for message_id, message in self._changed.items():
                is_allowed = not (is_stale and is_postponed(message))
                self._claimed[message_id].message = destinations.settled(message, now) if is_allowed else shown(message)
            for message in self._stored.messages.values():
                self._waiting.add(message, self._stored.first_sent.get(message.message_id))
            self._waiting.reports.note(self._noted)
            self._end()

    def rollback(self) -> None:
        """Forget what was written and free what was claimed."""
        with self._waiting.lock:
            self._removed.clear()
            self._end()

    def _end(self) -> None:
        for message_id in self._claimed.keys() - self._removed:
            self._waiting.free(self._claimed[message_id])
        self._stored.end()
        self._ended = True

    def _change(self, message: DelayedMessage, change: Callable[[DelayedMessage], DelayedMessage]) -> bool:
        """Change a claimed message at the block's end. False: it is gone, or the claim is."""
        message_id = message.message_id
        with self._waiting.lock:
            self._check_open()
            entry = self._claim(message_id)
            if entry is None:
                return False
            self._changed[message_id] = change(self._changed.get(message_id, entry.message))
        return True

    def _claim(self, message_id: str) -> Entry | None:
        """The entry of a message to settle, claimed by this block; None: it is gone, or the claim is."""
        entry = self._waiting.entries.get(message_id)
        if entry is None or message_id in self._removed or entry.claimer not in (self, self._owner):
            return None
        self._waiting.claim(entry, self, None)
        self._claimed[message_id] = entry
        return entry

    def _check_open(self) -> None:
        if self._ended:
            raise StoreError(f"this transaction has ended; {self._instead}")
