"""A block of the in-memory store: what it writes shows at its end, or never."""

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime

from typing_extensions import override

from delaystore.clock import Clock
from delaystore.errors import StoreError
from delaystore.message import DelayedMessage, utc
from delaystore.settings import TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.memory._waiting import Entry, WaitingMessages, after_failure, copied


class InMemoryTransaction(DelayedMessageStore):
    """Claims what it fetches until the block ends, and keeps its writes to itself until then.

    What the block has stored is fetched, by others and by itself, only after its end. It may settle what `owner`,
    the store it came from, has leased.
    """

    def __init__(self, waiting: WaitingMessages, clock: Clock, owner: object) -> None:
        self._waiting = waiting
        self._clock = clock
        self._owner = owner
        self._claimed: dict[str, Entry] = {}
        self._removed: set[str] = set()
        self._changed: dict[str, DelayedMessage] = {}
        self._stored: dict[str, DelayedMessage] = {}
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
    def store_many(self, messages: Iterable[DelayedMessage]) -> int:
        """Reserve the ids of all of `messages`, or of none."""
        new = [copied(message) for message in messages]
        with self._waiting.lock:
            self._check_open()
            self._waiting.check_new(new, self._removed)
            for message in new:
                self._stored[message.message_id] = message
                self._waiting.reserved.add(message.message_id)
        return len(new)

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
            return [copied(entry.message) for entry in entries]

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
        message_id = message.message_id
        with self._waiting.lock:
            self._check_open()
            entry = self._claim(message_id)
            if entry is None:
                return False
            self._changed[message_id] = after_failure(self._changed.get(message_id, entry.message), again)
        return True

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
            for message_id, message in self._changed.items():
                self._claimed[message_id].message = message
            for message in self._stored.values():
                self._waiting.add(message)
            self._end()

    def rollback(self) -> None:
        """Forget what was written and free what was claimed."""
        with self._waiting.lock:
            self._removed.clear()
            self._end()

    def _end(self) -> None:
        for message_id in self._claimed.keys() - self._removed:
            self._waiting.free(self._claimed[message_id])
        self._waiting.reserved.difference_update(self._stored)
        self._ended = True

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
            raise StoreError("this transaction has ended; begin another one with store.transaction()")
