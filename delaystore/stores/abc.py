"""The store contract. Its semantics live here and only here; `delaystore.testing` checks them.

Five methods and `initialize` make a store; everything else has a working default built on them. They are the Python
form of the `IDelayedMessageStore` of NServiceBus' MSMQ transport (https://github.com/Particular/NServiceBus.Transport.Msmq).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from delaystore.message import DelayedMessage, KeyRule, Position, marked
from delaystore.settings import TransactionMode

WakeUpCallback = Callable[[datetime | None], None]
"""Called with the due time of a message stored elsewhere; None: it is unknown, perhaps now."""


class WakeUpSubscription(ABC):
    """A live connection through which a store wakes the dispatcher when another process stores a message."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether wake-ups have been proven to arrive; False: the dispatcher must poll."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening; may be called twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """How a store is at one moment, asked without much cost however much waits."""

    now: datetime
    """The store's clock."""
    first_due: datetime | None
    """The earliest due time among the messages that are shown next, however late they are shown again; None: nothing
    waits."""
    read_only: str | None = None
    """Why nothing can be stored, such as that a standby answers; None: nothing is known that would prevent it."""

    @property
    def overdue(self) -> timedelta | None:
        """How long ago the first was due; None: nothing is overdue."""
        return None if self.first_due is None or self.first_due >= self.now else self.now - self.first_due


class DelayedMessageStore(ABC):
    """Where messages wait.

    A claim keeps a message from every other dispatcher. What the block of `transaction()` fetched stays claimed
    until the block ends; a store that has no transactions claims by a lease, until remove, increment or expiry.
    A claim that has ended settles nothing: under the same message_id another message may wait by now, sent again since.
    A claimed message is neither waiting nor gone, as its dispatcher may have forwarded it: see `store`.
    Every method may raise StoreError (StoreUnavailableError when the store cannot be reached) and may be called
    from any thread; the stores that `transaction()` yields belong to one thread.
    """

    @abstractmethod
    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        """Bind the store to `endpoint`; called once before anything else, and again only with the same arguments.

        Raises UnsupportedModeError for a mode the store cannot honour, ConfigurationError for an endpoint name
        it cannot use.
        """

    @abstractmethod
    def store(self, message: DelayedMessage) -> None:
        """Keep `message`, durably once this returns.

        Raises DuplicateMessageError when its message_id is already waiting, unclaimed; the one that waits is forwarded
        after this. Its due time becomes `delaystore.message.marked(due_time)`, a microsecond earlier, by the very step
        that finds it unclaimed, and before this raises: a dispatcher that has sent it already, and could not remove it,
        then sends it again. Nothing else of it changes. If only a lease that has expired is left of a claim, that ends
        first: its dispatcher, which is late, can then not remove the message that the sender was told of.

        A claimed message of this id is waited for, some seconds: once it is removed, `message` is stored. If it stays
        claimed, MessageBeingDispatchedError: nothing is stored.
        """

    @abstractmethod
    def fetch_next_due_timeout(self, at: datetime) -> DelayedMessage | None:
        """Claim and return the first message whose next attempt is at or before `at`; None: none is free."""

    @abstractmethod
    def remove(self, message: DelayedMessage) -> bool:
        """Delete a claimed message, which was forwarded. False: it is gone, or the claim is, and nothing is deleted."""

    @abstractmethod
    def increment_failure_count(self, message: DelayedMessage, next_attempt: datetime | None = None) -> bool:
        """Count a failed attempt, end the claim, and show the message again at `next_attempt` (None: at once).

        Its due time stays what it was. False: it is gone, or the claim is; nothing was changed.
        """

    @abstractmethod
    def next(self) -> datetime | None:
        """The earliest next attempt of all waiting messages; None: nothing waits.

        A message claimed by a lease counts with the lease's end; one claimed otherwise may be left out.
        """

    def status(self) -> StoreStatus:
        """How the store is.

        The default takes the next attempt for the due time: a message that has failed is then not overdue before it is
        tried again.
        """
        return StoreStatus(now=self.now(), first_due=self.next())

    def setup_infrastructure(self) -> None:  # noqa: B027 - a store may need nothing
        """Create or upgrade what the store needs, after `initialize`; safe in several processes at once."""

    def repair(self, tell: Callable[[str], object]) -> Sequence[str]:  # noqa: ARG002 - for overriders
        """Make again what is missing of that, after `setup_infrastructure`; returns the defects that are left.

        A defect is one line with its remedy. `tell` hears what is being made. Raises StoreError.
        """
        return ()

    def defects(self) -> Sequence[str]:
        """What is not as `setup_infrastructure` and `repair` make it, a line with its remedy each; changes nothing."""
        return ()

    def obstacles(self) -> Sequence[str]:
        """Those defects that keep dispatchers from working, as a missing table does; asked by each health check."""
        return ()

    def now(self) -> datetime:
        """The store's clock, aware, UTC: never ahead of the database's, where there is one.

        Within `transaction()` it is the clock of the server that has the transaction.
        """
        return datetime.now(UTC)

    def latest_now(self) -> datetime:
        """The store's clock, never behind the database's, and ahead of it by the time of one question at most.

        A delay that counts from it is never too short. The default is `now`, which is right where that is exact. Do not
        call it within `transaction()`.
        """
        return self.now()

    def transaction(self) -> AbstractContextManager["DelayedMessageStore"]:
        """A block whose store is bound to one transaction: committed at its end, undone by an exception.

        The default has no transaction: it yields this store itself.
        """
        return nullcontext(self)

    def store_many(self, messages: Iterable[DelayedMessage]) -> int:
        """Store all of `messages` and return how many.

        Raises DuplicateMessageError and MessageBeingDispatchedError: a store with transactions has then stored none of
        them, this default those before that message. A store may leave out the wait where it cannot store all of
        `messages` again, as those of a long generator, or in a transaction that keeps dispatchers from settling.
        """
        count = 0
        for message in messages:
            self.store(message)
            count += 1
        return count

    def fetch_due(self, at: datetime, limit: int) -> Sequence[DelayedMessage]:
        """Claim up to `limit` messages whose next attempt is at or before `at`, in the order of positions.

        The default returns at most one.
        """
        message = self.fetch_next_due_timeout(at) if limit > 0 else None
        return [] if message is None else [message]

    def fetch_batch(self, at: datetime, limit: int, most_bytes: int) -> Sequence[DelayedMessage]:  # noqa: ARG002 - for overriders
        """`fetch_due`, with bodies of at most `most_bytes` together; a first one that is longer comes alone.

        This is what the dispatcher calls. The default knows no such bound.
        """
        return self.fetch_due(at, limit)

    def remove_many(self, messages: Sequence[DelayedMessage]) -> int:
        """Delete claimed messages, which have been forwarded; returns how many were there, and still claimed."""
        return sum(self.remove(message) for message in messages)

    def increment_failure_counts(self, failures: Sequence[tuple[DelayedMessage, datetime]]) -> int:
        """`increment_failure_count` for many (message, next_attempt); returns how many were there, still claimed."""
        return sum(self.increment_failure_count(message, next_attempt) for message, next_attempt in failures)

    def subscribe(self, on_wake_up: WakeUpCallback) -> WakeUpSubscription | None:  # noqa: ARG002 - for overriders
        """Ask to be woken when another process stores a message; None: this store cannot, poll it."""
        return None

    def clean_up(self) -> None:  # noqa: B027 - a store may leave nothing behind
        """Clear away what the store has left behind, if that is quick; a dispatcher calls it once a minute."""

    def close(self) -> None:  # noqa: B027 - a store may hold nothing
        """Give back connections; may be called twice. The store may be used again, and reconnects."""


class ManagementOutcome(StrEnum):
    """What became of a cancel or reschedule."""

    DONE = "done"
    """It is changed. If an earlier attempt to forward the message got no answer, that may arrive nevertheless."""
    BEING_DISPATCHED = "being_dispatched"
    """A dispatcher has claimed the message: it may already be at its destination."""
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of `list`. `next_key`: the position of its last message; None: it is the last page."""

    messages: Sequence[DelayedMessage]
    next_key: Position | None


REJECT: Final = KeyRule()
"""What becomes of a message with a key where nobody says it."""
COUNTED: Final = 100_000
"""As many messages are counted where an estimate is asked for."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many messages wait. `exact` False: they were not counted; it is about so many."""

    messages: int
    exact: bool


class ManagedDelayedMessageStore(DelayedMessageStore):
    """A store that can also list, count, cancel and reschedule what waits.

    `cancel` and `reschedule` are decided by one race-free statement that never waits for a dispatcher.
    """

    @abstractmethod
    def get(self, message_id: str) -> DelayedMessage | None:
        """The waiting message, claimed or not; None: not (or no longer) in the store."""

    @abstractmethod
    def list(
        self,
        *,
        destination: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        limit: int = 100,
    ) -> Page:
        """A page of what waits, in the order of positions, behind `after` (None: from the beginning).

        `destination` filters by equality; `since` <= next attempt < `until`. A store without an index of
        destinations may read all that waits for a page of few.
        """

    @abstractmethod
    def count(self, *, destination: str | None = None) -> int:
        """How many messages wait."""

    def estimate_count(self) -> Count:
        """How many messages wait, told soon however many do: up to 100,000 are counted, more estimated.

        This default counts all, as any store may that cannot estimate.
        """
        return Count(self.count(), exact=True)

    @abstractmethod
    def count_by_due_time(self, bucket: timedelta, *, destination: str | None = None) -> Mapping[datetime, int]:
        """How many messages are due in each `bucket` (a length, counted from 1970-01-01 UTC), by the bucket's start."""

    def get_many(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        """Those of these messages that are waiting, claimed or not, by their ids. The default gets one at a time."""
        found = {message_id: self.get(message_id) for message_id in message_ids}
        return {message_id: message for message_id, message in found.items() if message is not None}

    def waiting_ids(self, message_ids: Sequence[str]) -> Collection[str]:
        """Those of these ids whose messages are waiting, claimed or not. This default reads the messages."""
        return self.get_many(message_ids).keys()

    def get_unclaimed(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        """Those of these messages that wait unclaimed: each is forwarded after this call has begun.

        The due time of each is marked, and a lease that has expired ends, as in `store`. This default reschedules each
        message to the marked due time, which shows that it is unclaimed, but forgets its failures.
        """
        found = self.get_many(message_ids)
        unclaimed = [
            message_id
            for message_id, message in found.items()
            if self.reschedule(message_id, marked(message.due_time)) is ManagementOutcome.DONE
        ]
        return self.get_many(unclaimed)

    def message_ids(self, prefix: str, limit: int = 1000) -> Sequence[str]:
        """Ids of waiting messages that begin with `prefix`, claimed or not: the first `limit` in their order.

        This default reads all that waits. A store that orders ids otherwise than by their bytes may have another order.
        """
        found: list[str] = []
        page = self.list(limit=1000)
        while True:
            found += [one.message_id for one in page.messages if one.message_id.startswith(prefix)]
            if page.next_key is None:
                return sorted(found)[:limit]
            page = self.list(after=page.next_key, limit=1000)

    @abstractmethod
    def cancel(self, message_id: str) -> ManagementOutcome:
        """Delete a waiting message, unless a dispatcher has claimed it."""

    @abstractmethod
    def reschedule(self, message_id: str, due_time: datetime) -> ManagementOutcome:
        """Give a waiting message a new due time and a failure count of 0, unless a dispatcher has claimed it."""


class KeyedDelayedMessageStore(DelayedMessageStore):
    """A store that knows keys: at most one message with a key waits, whoever sends at the same moment.

    A key is free again when its message is removed or cancelled; failures and rescheduling leave it alone. `store` and
    `store_many` reject a key that waits. A message that a dispatcher has claimed is neither waiting nor gone: whoever
    stores its key waits a few seconds for the dispatcher to settle it, and is told KeyInUseError then.

    A message that is kept, or for which another one is rejected, is marked as in `store`. So is the new message, if it
    has the message_id and, but for marks, the due time of the one that it replaces.
    """

    @abstractmethod
    def store_keyed(self, message: DelayedMessage, rule: KeyRule) -> str:
        """Keep `message`, which has a key, or do what `rule` says where one with its key waits.

        Returns the message_id of the one that waits now: that of `message`, unless the other one was kept. Raises
        DuplicateKeyError where that is the rule, DuplicateMessageError for its message_id, KeyInUseError.
        """

    @abstractmethod
    def store_many(self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT) -> int:
        """As in every store, but messages with a key go by `rule`, in their order, one after the other.

        Returns how many were stored, in place of others or not.
        """

    @abstractmethod
    def message_id_of(self, key: str) -> str | None:
        """The message that has `key`, claimed or not; None: none has."""

    def newest_message_id_of(self, key: str) -> str | None:
        """As `message_id_of`, for a change that follows.

        Within a transaction that reads older rows than there are by now, as under REPEATABLE READ, what a change would
        take is found nevertheless. The default knows no such transactions.
        """
        return self.message_id_of(key)
