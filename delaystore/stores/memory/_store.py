"""The in-memory store."""

import heapq
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import ClassVar, Final, Self
from urllib.parse import urlsplit

from typing_extensions import override

from delaystore.clock import Clock, SystemClock
from delaystore.errors import ConfigurationError, UnsupportedModeError
from delaystore.keys import KEY_PATIENCE, KeyRule
from delaystore.message import DelayedMessage, Position, check_key, check_message_id, position_of, utc, waiting_until
from delaystore.settings import TransactionMode, check_lease
from delaystore.stores._buckets import number_of, seconds_of, start_of
from delaystore.stores._checks import check_number
from delaystore.stores._keys import patiently
from delaystore.stores.abc import (
    REJECT,
    ManagementOutcome,
    Page,
    StoreStatus,
)
from delaystore.stores.memory._enlisted import EnlistedInMemoryStore, TransactionHooks, enlisted_in
from delaystore.stores.memory._operable import OperableInMemoryStore
from delaystore.stores.memory._transaction import InMemoryTransaction
from delaystore.stores.memory._waiting import WaitingMessages, copied, fetched, rescheduled
from delaystore.stores.operable import AuditedKeyedStore, Change

_SYSTEM_CLOCK: Final = SystemClock()


class InMemoryDelayedMessageStore(OperableInMemoryStore, AuditedKeyedStore):
    """Keeps messages in this process's memory: they are lost with it. For tests and demos.

    Outside `transaction()`, what is fetched is claimed for `lease` by `clock`. A fetch takes O(log n) of what waits;
    `list` and the counts read everything. `memory`, what waits by endpoint, is for `share`.

    Honours every transaction mode but TRANSACTION_SCOPE: no transport shares its transactions.
    """

    key_patience: ClassVar = KEY_PATIENCE
    """Seconds for which a message waits to be stored whose id or key is being dispatched."""

    def __init__(
        self,
        clock: Clock = _SYSTEM_CLOCK,
        *,
        lease: timedelta = timedelta(seconds=60),
        memory: dict[str, WaitingMessages] | None = None,
    ) -> None:
        self._clock = clock
        self._lease = check_lease(lease)
        self._memory = {} if memory is None else memory
        self._endpoint: str | None = None

    def share(self) -> Self:
        """Another store on the same messages with its own claims, as in another process; initialize it before use."""
        return type(self)(self._clock, lease=self._lease, memory=self._memory)

    @override
    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        """Bind to `endpoint`; each has messages of its own."""
        if not isinstance(endpoint, str) or not endpoint.strip():
            raise ConfigurationError(f"the endpoint's name is {endpoint!r}; give it a name")
        if mode is TransactionMode.TRANSACTION_SCOPE:
            raise UnsupportedModeError(
                "the in-memory store shares its transactions with no transport;"
                " use another transaction_mode than transaction_scope, or a SQL store with a SQL queue"
            )
        if self._endpoint not in (None, endpoint):
            raise ConfigurationError(
                f"this store is bound to endpoint {self._endpoint!r}, not {endpoint!r}; make a store for each"
            )
        self._memory.setdefault(endpoint, WaitingMessages())
        self._endpoint = endpoint

    @override
    @contextmanager
    def transaction(self) -> Iterator[InMemoryTransaction]:
        """What the block writes shows at its end; an exception undoes it. Others do not wait for it."""
        transaction = self._begin()
        try:
            yield transaction
        except BaseException:
            transaction.rollback()
            raise
        transaction.commit()

    def enlist(
        self,
        target: TransactionHooks,
        on_end: Callable[[], None] | None = None,
        *,
        set_up: bool = False,  # noqa: ARG002 - there is nothing to set up
    ) -> EnlistedInMemoryStore:
        """What is written shows to others once `target` tells of its commit, and is gone after its rollback.

        The same store again for the same `target`, until it tells of its end. `on_end` is called after a commit.
        Raises ConfigurationError for what has no `on_commit` and `on_rollback`.
        """
        return enlisted_in(self._waiting(), target, self._begin_enlisted, on_end)

    @override
    def store(self, message: DelayedMessage) -> None:
        if message.key is not None:
            self.store_keyed(message, REJECT)
        else:
            self.store_many([message])

    @override
    def store_many(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> int:
        """Keeps all of `messages` in memory, to store them again after a dispatcher."""
        kept = list(messages)

        def attempt() -> int:
            with self.transaction() as transaction:
                return transaction.store_many(kept, rule, change=change)

        return patiently(attempt, self.key_patience)

    @override
    def store_keyed(self, message: DelayedMessage, rule: KeyRule, *, change: Change | None = None) -> str:
        def attempt() -> str:
            with self.transaction() as transaction:
                return transaction.store_keyed(message, rule, change=change)

        return patiently(attempt, self.key_patience)

    @override
    def message_id_of(self, key: str) -> str | None:
        check_key(key)
        waiting = self._waiting()
        with waiting.lock:
            return waiting.keys.get(key)

    @override
    def fetch_next_due_timeout(self, at: datetime) -> DelayedMessage | None:
        return next(iter(self.fetch_due(at, 1)), None)

    @override
    def fetch_due(self, at: datetime, limit: int) -> Sequence[DelayedMessage]:
        return self.fetch_batch(at, limit, sys.maxsize)

    @override
    def fetch_batch(self, at: datetime, limit: int, most_bytes: int) -> Sequence[DelayedMessage]:
        at, now, waiting = utc(at, "at"), self._clock.now(), self._waiting()
        with waiting.lock:
            entries = waiting.claim_due(at, limit, most_bytes, self, now, now + self._lease)
            return [fetched(entry.message) for entry in entries]

    @override
    def remove(self, message: DelayedMessage) -> bool:
        with self.transaction() as transaction:
            return transaction.remove(message)

    @override
    def increment_failure_count(self, message: DelayedMessage, next_attempt: datetime | None = None) -> bool:
        with self.transaction() as transaction:
            return transaction.increment_failure_count(message, next_attempt)

    @override
    def next(self) -> datetime | None:
        """Leaves out what open transactions have claimed."""
        waiting = self._waiting()
        with waiting.lock:
            return waiting.next()

    @override
    def status(self) -> StoreStatus:
        """Reads everything."""
        first = min((each.due_time for each in self._messages(None) if not each.is_parked), default=None)
        return StoreStatus(now=self._clock.now(), first_due=first)

    @override
    def get(self, message_id: str) -> DelayedMessage | None:
        waiting = self._waiting()
        with waiting.lock:
            entry = waiting.entries.get(message_id)
            return None if entry is None else copied(entry.message)

    @override
    def get_unclaimed(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return {each: copied(waiting.entries[each].message) for each in waiting.unclaimed(message_ids, now)}

    @override
    def list(
        self,
        *,
        destination: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        limit: int = 100,
    ) -> Page:
        check_number(limit, "limit")
        since = None if since is None else utc(since, "since")
        until = None if until is None else utc(until, "until")
        found = (
            message
            for message in self._messages(destination)
            if (since is None or message.next_attempt >= since)
            and (until is None or message.next_attempt < until)
            and (after is None or position_of(message) > after)
        )
        messages = heapq.nsmallest(limit + 1, found, key=position_of)
        more = len(messages) > limit
        page = [copied(message) for message in messages[:limit]]
        return Page(page, position_of(page[-1]) if more else None)

    @override
    def count(self, *, destination: str | None = None) -> int:
        return len(self._messages(destination))

    @override
    def count_by_due_time(self, bucket: timedelta, *, destination: str | None = None) -> Mapping[datetime, int]:
        seconds_of(bucket)
        numbers = Counter(number_of(message.due_time, bucket) for message in self._messages(destination))
        return {start_of(number, bucket): numbers[number] for number in sorted(numbers)}

    @override
    def cancel(self, message_id: str, *, change: Change | None = None) -> ManagementOutcome:
        check_message_id(message_id)
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            outcome = _may_change(waiting, message_id, now)
            if outcome is ManagementOutcome.DONE:
                waiting.note(waiting.entries[message_id].message, change, now)
                waiting.drop(message_id)
            return outcome

    @override
    def reschedule(self, message_id: str, due_time: datetime, *, change: Change | None = None) -> ManagementOutcome:
        check_message_id(message_id)
        due_time = waiting_until(due_time, "due_time")
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            outcome = _may_change(waiting, message_id, now)
            if outcome is ManagementOutcome.DONE:
                waiting.note(waiting.entries[message_id].message, change, now, due_time)
                waiting.change(message_id, rescheduled(waiting.entries[message_id].message, due_time))
            return outcome

    def _begin(self) -> InMemoryTransaction:
        return InMemoryTransaction(self._waiting(), self._clock, self)

    def _begin_enlisted(self) -> EnlistedInMemoryStore:
        return EnlistedInMemoryStore(self._waiting(), self._clock, self)

    @override
    def _waiting(self) -> WaitingMessages:
        if self._endpoint is None:
            raise ConfigurationError("the store is not initialized; call initialize(endpoint, mode) first")
        return self._memory[self._endpoint]


def _may_change(waiting: WaitingMessages, message_id: str, now: datetime) -> ManagementOutcome:
    entry = waiting.entries.get(message_id)
    if entry is None:
        return ManagementOutcome.NOT_FOUND
    return ManagementOutcome.BEING_DISPATCHED if entry.is_claimed(now) else ManagementOutcome.DONE


_named: Final[dict[str, InMemoryDelayedMessageStore]] = {}


def open_memory_store(url: str) -> InMemoryDelayedMessageStore:
    """`memory://` opens a store of its own; `memory://NAME` another handle on this process's store of that name.

    Raises ConfigurationError for anything more in the URL.
    """
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigurationError("an in-memory store's URL has nothing but a name; use memory:// or memory://NAME")
    if not parts.netloc:
        return InMemoryDelayedMessageStore()
    return _named.setdefault(parts.netloc, InMemoryDelayedMessageStore()).share()
