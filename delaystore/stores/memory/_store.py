"""The in-memory store."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final, Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

from typing_extensions import override

from delaystore.clock import Clock, SystemClock
from delaystore.errors import (
    ConfigurationError,
    UnsupportedModeError,
)
from delaystore.message import (
    KEY_TIMEOUT,
    DelayedMessage,
    KeyRule,
    Position,
    check_key,
    position_of,
    utc,
)
from delaystore.settings import TransactionMode, check_lease
from delaystore.stores.abc import REJECT, ManagementOutcome, Page, StoreStatus
from delaystore.stores.memory._operating import OperableInMemoryStore
from delaystore.stores.memory._transaction import InMemoryTransaction
from delaystore.stores.memory._waiting import (
    WaitingMessages,
    copied,
    counted,
    fetched,
)
from delaystore.stores.operable import AuditedKeyedStore
from delaystore.stores.records import Change
from delaystore.stores.shared import (
    ClaimsInBatches,
    check_number,
    in_transaction,
    retried_while_claimed,
)

_SYSTEM_CLOCK: Final = SystemClock()


@runtime_checkable
class TransactionHooks(Protocol):
    """A transaction that tells of its end, such as a double in a test; one object for each transaction, or for many.

    Registered functions are called once, at the end of the transaction that is open now.
    """

    def on_commit(self, action: Callable[[], None]) -> Any:
        """Have a function called after the commit.

        Args:
            action: The function.

        Returns:
            Anything; it is ignored.

        """
        ...

    def on_rollback(self, action: Callable[[], None]) -> Any:
        """Have a function called after the rollback.

        Args:
            action: The function.

        Returns:
            Anything; it is ignored.

        """
        ...


class InMemoryDelayedMessageStore(ClaimsInBatches, OperableInMemoryStore, AuditedKeyedStore):
    """Keeps messages in this process's memory: they are lost with it. For tests and demos.

    A fetch takes O(log n) of the waiting messages; `list` and the counts read everything. It honours every transaction
    mode but TRANSACTION_SCOPE: no transport shares its transactions.

    Args:
        clock: The store's clock.
        lease: How long a message stays claimed that was fetched outside `transaction()`, by `clock`.
        memory: The waiting messages by endpoint, for `share`; None: a new store, without messages.

    Raises:
        ConfigurationError: The lease is not above 0, or too long.

    Example:
        ```python
        store = InMemoryDelayedMessageStore()
        with DelayedDelivery("sales", store) as delivery:
            delivery.send("billing", b"{}", delay=60)
        ```

    """

    keeps_not_after: ClassVar[bool] = True
    key_timeout: ClassVar = KEY_TIMEOUT
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
                "the in-memory store cannot share its transactions with a transport;"
                " choose a transaction_mode other than transaction_scope, or a SQL store with a SQL queue"
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
        """The block's writes show at its end; an exception undoes them. Others do not wait for it."""
        transaction = self._begin("begin another one with store.transaction()")
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
    ) -> InMemoryTransaction:
        """Write in the caller's transaction: others see it once `target` reports its commit; a rollback undoes it.

        Args:
            target: The transaction.
            on_end: Called after a commit.
            set_up: Has no effect: there is nothing to set up.

        Returns:
            The store's interface in the transaction: the same again for the same `target`, until its end.

        Raises:
            ConfigurationError: `target` has no `on_commit` and `on_rollback`.

        """
        if not isinstance(target, TransactionHooks):
            raise ConfigurationError(
                "the in-memory store can be enlisted only in an object with on_commit and on_rollback, such as a "
                f"test's own transaction, not in a {type(target).__name__}; for that use a SQL store"
            )
        waiting = self._waiting()
        with waiting.lock:
            found = waiting.enlisted.get(id(target))
            enlisted: InMemoryTransaction = (
                self._begin("in memory, call enlist again for the next one") if found is None else found[1]
            )
            waiting.enlisted[id(target)] = target, enlisted

        def ended(end: Callable[[], None]) -> None:
            waiting.enlisted.pop(id(target), None)
            end()

        if found is None:
            target.on_commit(partial(ended, enlisted.commit))
            target.on_rollback(partial(ended, enlisted.rollback))
        if on_end is not None:
            target.on_commit(on_end)
        return enlisted

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

        return retried_while_claimed(attempt, self.key_timeout)

    @override
    def store_new(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> Mapping[str, str]:
        """Keeps all of `messages` in memory, as `store_many`."""
        kept = list(messages)

        def attempt() -> Mapping[str, str]:
            with self.transaction() as transaction:
                return transaction.store_new(kept, rule, change=change)

        return retried_while_claimed(attempt, self.key_timeout)

    @override
    def store_keyed(self, message: DelayedMessage, rule: KeyRule, *, change: Change | None = None) -> str:
        def attempt() -> str:
            with self.transaction() as transaction:
                return transaction.store_keyed(message, rule, change=change)

        return retried_while_claimed(attempt, self.key_timeout)

    @override
    def fetch_batch(self, at: datetime, limit: int, most_bytes: int) -> Sequence[DelayedMessage]:
        at, now, waiting = utc(at, "at"), self._clock.now(), self._waiting()
        with waiting.lock:
            entries = waiting.claim_due(at, limit, most_bytes, self, now, now + self._lease)
            return [fetched(entry.message) for entry in entries]

    note_changes = in_transaction(InMemoryTransaction.note_changes)
    cancel = in_transaction(InMemoryTransaction.cancel)
    reschedule = in_transaction(InMemoryTransaction.reschedule)
    shift = in_transaction(InMemoryTransaction.shift)
    remove_many = in_transaction(InMemoryTransaction.remove_many)
    remove_ended = in_transaction(InMemoryTransaction.remove_ended)
    increment_failure_count = in_transaction(InMemoryTransaction.increment_failure_count)
    count_failures = in_transaction(InMemoryTransaction.count_failures)
    park_claimed = in_transaction(InMemoryTransaction.park_claimed)
    postpone = in_transaction(InMemoryTransaction.postpone)
    promised = in_transaction(InMemoryTransaction.promised)

    @override
    def next(self) -> datetime | None:
        """Leaves out what open transactions have claimed."""
        waiting = self._waiting()
        with waiting.lock:
            return waiting.next()

    @override
    def get(self, message_id: str) -> DelayedMessage | None:
        waiting = self._waiting()
        with waiting.lock:
            entry = waiting.entries.get(message_id)
            return None if entry is None else copied(entry.message)

    @override
    def message_id_of(self, key: str) -> str | None:
        check_key(key)
        waiting = self._waiting()
        with waiting.lock:
            return waiting.keys.get(key)

    @override
    def status(self) -> StoreStatus:
        """Reads everything."""
        first = min((each.due_time for each in self._messages() if not each.is_parked), default=None)
        return StoreStatus(now=self._clock.now(), first_due=first)

    @override
    def get_unclaimed(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            unclaimed = [each for each in message_ids if waiting.outcome(each, now) is ManagementOutcome.DONE]
            waiting.promise(unclaimed, None)
            return {each: copied(waiting.entries[each].message) for each in unclaimed}

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
        return counted((message.due_time for message in self._messages(destination)), bucket)

    def _begin(self, instead: str) -> InMemoryTransaction:
        return InMemoryTransaction(self._waiting(), self._clock, self, instead)

    @override
    def _waiting(self) -> WaitingMessages:
        if self._endpoint is None:
            raise ConfigurationError("the store is not initialized; call initialize(endpoint, mode) first")
        return self._memory[self._endpoint]


_named: Final[dict[str, InMemoryDelayedMessageStore]] = {}


def open_memory_store(url: str) -> InMemoryDelayedMessageStore:
    """Open an in-memory store; the entry point of its scheme.

    Args:
        url: `memory://` for a store of its own; `memory://NAME` for this process's store of that name.

    Returns:
        The store; of a name, a handle with its own claims.

    Raises:
        ConfigurationError: The URL has more than a name.

    """
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigurationError("an in-memory store's URL has nothing but a name; use memory:// or memory://NAME")
    if not parts.netloc:
        return InMemoryDelayedMessageStore()
    return _named.setdefault(parts.netloc, InMemoryDelayedMessageStore()).share()
