"""The store contract. Its semantics live here and only here; `delaystore.testing` checks them.

Five methods and `initialize` make a store; everything else has a working default built on them. They are the Python
form of the `IDelayedMessageStore` of NServiceBus' MSMQ transport
(https://github.com/Particular/NServiceBus.Transport.Msmq).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Final

from delaystore.message import DelayedMessage, KeyRule, Position, marked
from delaystore.settings import TransactionMode

WakeUpCallback = Callable[[datetime | None], None]
"""Called with the due time of a message that another process stored; None: it is unknown, perhaps now."""


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
    """The state of a store at one moment. Asking for it costs little, however many messages wait.

    Attributes:
        now: The store's clock.
        first_due: The earliest due time among the messages that are shown next, however late they are shown again;
            None: no message waits.
        read_only: Why nothing can be stored, such as that a standby answers; None: no reason is known.

    """

    now: datetime
    first_due: datetime | None
    read_only: str | None = None

    @property
    def overdue(self) -> timedelta | None:
        """How long ago the first message was due; None: no message is overdue."""
        return None if self.first_due is None or self.first_due >= self.now else self.now - self.first_due


class DelayedMessageStore(ABC):
    """A store of delayed messages: the contract.

    A claim keeps a message from every other dispatcher. Messages that the block of `transaction()` fetched stay
    claimed until the block ends. A store that has no transactions claims by a lease, which lasts until `remove`,
    `increment_failure_count` or its expiry. A claim that has ended settles nothing: another message, sent since, may
    wait under the same message_id by now. A claimed message is neither waiting nor removed, as its dispatcher may
    have forwarded it: see `store`.

    Every method may raise StoreError, and StoreUnavailableError if the store cannot be reached. Any thread may call the
    methods; a store that `transaction()` yields belongs to one thread.
    """

    keeps_not_after: ClassVar[bool] = False
    """Whether it keeps the `not_after` of messages. `send` refuses such messages for a store that does not.

    Fetches return it, as `get` and `list` do. `reschedule` moves it by as much as the due time, and a KeyRule that
    shortens a delay does the same; it is then LATEST_DUE_TIME at the most. A message that takes the place of another
    has its own or none. Tables of an earlier release may lack it: `store` then raises StoreSetupError.
    """

    @abstractmethod
    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        """Bind the store to an endpoint.

        It is called once before any other method, and again only with the same arguments.

        Args:
            endpoint: The name of the application that the messages belong to.
            mode: Which transactions the dispatcher needs.

        Raises:
            UnsupportedModeError: The store cannot honour `mode`.
            ConfigurationError: The store cannot use the name `endpoint`.

        """

    @abstractmethod
    def store(self, message: DelayedMessage) -> None:
        """Keep a message, durably once this returns.

        If its message_id already waits unclaimed, the waiting message stays and is forwarded after this call. Its due
        time becomes `delaystore.message.marked(due_time)`, a microsecond earlier, by the very step that finds it
        unclaimed, and before this raises. So a dispatcher that has sent it already, and could not remove it, sends it
        again. Nothing else of it changes. If only an expired lease is left of a claim, that ends first: its dispatcher,
        which is late, can then not remove the message on which the sender relies.

        If its message_id is claimed, this waits some seconds: once the claimed message is removed, `message` is stored.

        Args:
            message: The message.

        Raises:
            DuplicateMessageError: Its message_id waits unclaimed.
            MessageBeingDispatchedError: Its message_id stays claimed; nothing is stored.

        """

    @abstractmethod
    def fetch_next_due_timeout(self, at: datetime) -> DelayedMessage | None:
        """Claim the first due message.

        Args:
            at: An aware datetime; a message is due if its next attempt is at or before it.

        Returns:
            The message; None: none is due and free.

        """

    @abstractmethod
    def remove(self, message: DelayedMessage) -> bool:
        """Delete a claimed message, which was forwarded.

        Args:
            message: The message, as a fetch returned it.

        Returns:
            False: it is not there any more, or its claim has ended; nothing is deleted.

        """

    @abstractmethod
    def increment_failure_count(self, message: DelayedMessage, next_attempt: datetime | None = None) -> bool:
        """Count a failed attempt, end the claim, and show the message again.

        Its due time does not change.

        Args:
            message: A claimed message.
            next_attempt: When to show it again, an aware datetime, not before its due time; None: at once.

        Returns:
            False: it is not there any more, or its claim has ended; nothing is changed.

        """

    @abstractmethod
    def next(self) -> datetime | None:
        """When to look for due messages.

        Returns:
            The earliest next attempt of all waiting messages; None: no message waits. A message claimed by a lease
            counts with the lease's end; one claimed otherwise may be left out.

        """

    def status(self) -> StoreStatus:
        """The state of the store.

        The default takes the next attempt for the due time: a message that has failed is then not overdue before it is
        tried again.
        """
        return StoreStatus(now=self.now(), first_due=self.next())

    def setup_infrastructure(self) -> None:  # noqa: B027 - a store may need nothing
        """Create or upgrade the store's infrastructure, such as tables.

        It is called after `initialize`, and may be called in several processes at once.
        """

    def repair(self, tell: Callable[[str], object]) -> Sequence[str]:  # noqa: ARG002 - for overriders
        """Make missing parts of the infrastructure again, after `setup_infrastructure`.

        Args:
            tell: Called with a line about each thing before it is made.

        Returns:
            The defects that are left, a line with its remedy each.

        Raises:
            StoreError: The repair failed.

        """
        return ()

    def defects(self) -> Sequence[str]:
        """Compare the infrastructure with the result of `setup_infrastructure` and `repair`; changes nothing.

        Returns:
            A line with its remedy for each difference.

        """
        return ()

    def blocking_defects(self) -> Sequence[str]:
        """The defects that keep dispatchers from working, such as a missing table; each health check shows them."""
        return ()

    def now(self) -> datetime:
        """The store's clock: an aware datetime in UTC, never ahead of the database's clock, where there is one.

        Within `transaction()` it is the clock of the server that has the transaction.
        """
        return datetime.now(UTC)

    def latest_now(self) -> datetime:
        """The store's clock, never behind the database's clock.

        It is ahead of that by the time of one question at most. A delay that counts from it is never too short. The
        default is `now`, which is right where that is exact. Do not call it within `transaction()`.
        """
        return self.now()

    def transaction(self) -> AbstractContextManager["DelayedMessageStore"]:
        """Open a transaction for the block: committed at its end, undone by an exception.

        The default has no transaction: it yields this store itself.

        Returns:
            A context manager that yields a store bound to the transaction.

        """
        return nullcontext(self)

    def store_many(self, messages: Iterable[DelayedMessage]) -> int:
        """Store all messages.

        A store may leave out the wait for claimed messages where it cannot store all of `messages` again, as those of a
        long generator, or in a transaction that keeps dispatchers from settling.

        Args:
            messages: Any number of messages, each with an id of its own.

        Returns:
            How many were stored.

        Raises:
            DuplicateMessageError: As of `store`. A store with transactions has then stored none of the messages; this
                default has stored those before that message.
            MessageBeingDispatchedError: As of `store`; the same messages have been stored.

        """
        count = 0
        for message in messages:
            self.store(message)
            count += 1
        return count

    def fetch_due(self, at: datetime, limit: int) -> Sequence[DelayedMessage]:
        """Claim due messages. The default claims at most one.

        Args:
            at: An aware datetime; a message is due if its next attempt is at or before it.
            limit: The largest number of messages.

        Returns:
            The messages in the order of positions, the first due first.

        """
        message = self.fetch_next_due_timeout(at) if limit > 0 else None
        return [] if message is None else [message]

    def fetch_batch(self, at: datetime, limit: int, most_bytes: int) -> Sequence[DelayedMessage]:  # noqa: ARG002 - for overriders
        """`fetch_due` with a bound on the bodies. The dispatcher calls this; the default ignores the bound.

        Args:
            at: As in `fetch_due`.
            limit: As in `fetch_due`.
            most_bytes: The largest total of the bodies, in bytes; a first message that is longer comes alone.

        Returns:
            As `fetch_due`.

        """
        return self.fetch_due(at, limit)

    def remove_many(self, messages: Sequence[DelayedMessage]) -> int:
        """Delete claimed messages, which have been forwarded.

        Args:
            messages: The messages, as fetches returned them.

        Returns:
            How many were there, and still claimed.

        """
        return sum(self.remove(message) for message in messages)

    def increment_failure_counts(self, failures: Sequence[tuple[DelayedMessage, datetime]]) -> int:
        """`increment_failure_count` for several messages.

        Args:
            failures: Each message with its next attempt, which is not before its due time.

        Returns:
            How many were there, and still claimed.

        """
        return sum(self.increment_failure_count(message, next_attempt) for message, next_attempt in failures)

    def subscribe(self, on_wake_up: WakeUpCallback) -> WakeUpSubscription | None:  # noqa: ARG002 - for overriders
        """Ask to be woken when another process stores a message.

        Args:
            on_wake_up: Called from a thread of the store.

        Returns:
            The subscription, which must be closed; None: this store cannot wake, so poll it.

        """
        return None

    def clean_up(self) -> None:  # noqa: B027 - a store may leave nothing behind
        """Delete remains of the store's earlier work, if that is quick; a dispatcher calls it once a minute."""

    def close(self) -> None:  # noqa: B027 - a store may hold nothing
        """Give back connections; may be called twice. The store may be used again, and reconnects."""


class ManagementOutcome(StrEnum):
    """The result of a cancel or reschedule."""

    DONE = "done"
    """The message is changed. If an earlier attempt to forward it got no answer, the old message may arrive anyway."""
    BEING_DISPATCHED = "being_dispatched"
    """A dispatcher has claimed the message: it may already be at its destination."""
    NOT_FOUND = "not_found"
    """No message of that id waits."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of `list`.

    Attributes:
        messages: The messages, in the order of positions.
        next_key: The position of the page's last message; None: it is the last page.

    """

    messages: Sequence[DelayedMessage]
    next_key: Position | None


REJECT: Final = KeyRule()
"""The rule for a message with a key if the sender names none."""
COUNTED: Final = 100_000
"""Up to how many messages `estimate_count` counts."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number of waiting messages.

    Attributes:
        messages: The number.
        exact: Whether the messages were counted; False: it is an estimate.

    """

    messages: int
    exact: bool


class ManagedDelayedMessageStore(DelayedMessageStore):
    """A store that can also list, count, cancel and reschedule waiting messages.

    `cancel` and `reschedule` are decided by one race-free statement that never waits for a dispatcher.
    """

    @abstractmethod
    def get(self, message_id: str) -> DelayedMessage | None:
        """Look up a waiting message.

        Args:
            message_id: Its id.

        Returns:
            The message, claimed or not; None: it is not, or no longer, in the store.

        """

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
        """A page of the waiting messages, in the order of positions.

        A store without an index of destinations may read all waiting messages for a page of few.

        Args:
            destination: Only messages to this destination; None: to any.
            since: Only messages whose next attempt is at or after this aware datetime.
            until: Only messages whose next attempt is before this aware datetime.
            after: The position behind which the page begins; None: from the first message.
            limit: The largest number of messages.

        Returns:
            The page, with the position for the next one.

        """

    @abstractmethod
    def count(self, *, destination: str | None = None) -> int:
        """Count the waiting messages, however long it takes.

        Args:
            destination: Only messages to this destination; None: to any.

        Returns:
            The number of messages, claimed ones included.

        """

    def estimate_count(self) -> Count:
        """How many messages wait, soon known however many there are.

        Up to 100,000 messages are counted, more are estimated. This default counts all, as any store may that cannot
        estimate.
        """
        return Count(self.count(), exact=True)

    @abstractmethod
    def count_by_due_time(self, bucket: timedelta, *, destination: str | None = None) -> Mapping[datetime, int]:
        """How many messages are due in each span of time.

        Args:
            bucket: The length of a span, in whole seconds; spans are counted from 1970-01-01 UTC.
            destination: Only messages to this destination; None: to any.

        Returns:
            The number of messages by the beginning of the span, an aware datetime; empty spans are left out.

        """

    def get_many(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        """Look up waiting messages. The default gets one at a time.

        Args:
            message_ids: Their ids.

        Returns:
            The messages that wait, claimed or not, by their ids.

        """
        found = {message_id: self.get(message_id) for message_id in message_ids}
        return {message_id: message for message_id, message in found.items() if message is not None}

    def waiting_ids(self, message_ids: Sequence[str]) -> Collection[str]:
        """Find out which messages wait. This default reads the messages.

        Args:
            message_ids: The ids to look for.

        Returns:
            Those of the ids whose messages wait, claimed or not.

        """
        return self.get_many(message_ids).keys()

    def get_unclaimed(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        """Look up messages that wait unclaimed: each is forwarded after this call has begun.

        The due time of each is marked, and an expired lease ends, as in `store`. This default reschedules each message
        to the marked due time, which shows that it is unclaimed, but forgets its failures.

        Args:
            message_ids: The ids to look for.

        Returns:
            The messages by their ids.

        """
        found = self.get_many(message_ids)
        unclaimed = [
            message_id
            for message_id, message in found.items()
            if self.reschedule(message_id, marked(message.due_time)) is ManagementOutcome.DONE
        ]
        return self.get_many(unclaimed)

    def message_ids(self, prefix: str, limit: int = 1000) -> Sequence[str]:
        """Ids of waiting messages, claimed or not, that begin with a prefix.

        This default reads all waiting messages. A store that orders ids otherwise than by their bytes may have another
        order.

        Args:
            prefix: The beginning of the ids.
            limit: The largest number of ids.

        Returns:
            The first ids in their order.

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
        """Delete a waiting message, unless a dispatcher has claimed it.

        Args:
            message_id: The message.

        Returns:
            Whether it is done, or why not.

        """

    @abstractmethod
    def reschedule(self, message_id: str, due_time: datetime) -> ManagementOutcome:
        """Give a waiting message a new due time and a failure count of 0, unless a dispatcher has claimed it.

        Args:
            message_id: The message.
            due_time: An aware datetime.

        Returns:
            Whether it is done, or why not.

        """


class KeyedDelayedMessageStore(DelayedMessageStore):
    """A store that knows keys: at most one message with a key waits, however many senders there are.

    A key is free again when its message is removed or cancelled; failures and rescheduling leave it alone. `store` and
    `store_many` reject a key that waits. A message that a dispatcher has claimed is neither waiting nor removed: a
    sender of its key waits a few seconds for the dispatcher to settle it, and then gets KeyInUseError.

    A message that is kept, or for which another one is rejected, is marked as in `store`. So is the new message, if it
    has the message_id and, except for marks, the due time of the one that it replaces.
    """

    @abstractmethod
    def store_keyed(self, message: DelayedMessage, rule: KeyRule) -> str:
        """Keep a message that has a key, or apply the rule if a message with its key waits.

        Args:
            message: A message with a key.
            rule: Whether the waiting message is kept, replaced or makes this an error, and how long replacing may delay
                it.

        Returns:
            The message_id of the message that waits now: `message`'s own, unless the other one was kept.

        Raises:
            DuplicateKeyError: The key waits, and `rule` rejects it.
            DuplicateMessageError: The message_id waits.
            KeyInUseError: A dispatcher, or another transaction, has the message of the key.

        """

    @abstractmethod
    def store_many(self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT) -> int:
        """As in every store, but messages with a key go by `rule`, in their order, one after the other.

        Returns:
            How many were stored, in place of others or not.

        """

    @abstractmethod
    def message_id_of(self, key: str) -> str | None:
        """The message_id of the message that has a key, claimed or not; None: no message has it."""

    def newest_message_id_of(self, key: str) -> str | None:
        """As `message_id_of`, for a change that follows.

        A transaction may read older rows than there are by now, as under REPEATABLE READ. This finds the message that a
        change would take nevertheless. The default knows no such transactions.
        """
        return self.message_id_of(key)
