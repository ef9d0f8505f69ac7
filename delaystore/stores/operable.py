"""The contract of stores for operators: search, operations on many messages, pauses and limits, reports, audit trail.

As with `abc.py`, its semantics stand here and in `records`, nowhere else; `delaystore.testing` checks them.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from delaystore.filters import MessageFilter, Shift
from delaystore.message import DelayedMessage, KeyRule, Position, unmarked
from delaystore.stores.abc import (
    REJECT,
    DelayedMessageStore,
    KeyedDelayedMessageStore,
    ManagedDelayedMessageStore,
    ManagementOutcome,
    Page,
)
from delaystore.stores.records import (
    Activity,
    Allowance,
    AuditEntry,
    Change,
    Destination,
    DispatcherRecord,
    Ending,
    FailedDelivery,
    IngressRecord,
    Load,
    Matching,
    Operation,
)
from delaystore.stores.shared import number_of, start_of

EXAMINED: Final = 20_000
"""The most waiting messages that one search looks at: a page costs the same wherever it begins, however few match."""
STEP: Final = 1_000
"""The most waiting messages that one step of an operation looks at."""


class AuditedStore(ABC):
    """A store, or a transaction of one, that keeps the audit entry of a change in the change's own transaction.

    If the process dies at any point, a change and its entry exist together, or neither does. `change` None: there is no
    entry. A change that finds no message, or one that a dispatcher has claimed, makes no entry.
    """

    @abstractmethod
    def cancel(self, message_id: str, *, change: Change | None = None) -> ManagementOutcome:
        """As every store's `cancel`, and note `change`."""

    @abstractmethod
    def reschedule(self, message_id: str, due_time: datetime, *, change: Change | None = None) -> ManagementOutcome:
        """As every store's `reschedule`, and note `change`."""

    @abstractmethod
    def shift(
        self, message_id: str, by: Shift, *, change: Change | None = None
    ) -> tuple[ManagementOutcome, datetime | None]:
        """Move the due time of a waiting message, which is then rescheduled as by `reschedule`, and note `change`.

        The due time is read, without marks, and written in one transaction: two shifts at once both take effect.

        Args:
            message_id: The message.
            by: The span.
            change: The audit entry; None: none.

        Returns:
            Whether it is done, or why not; and the new due time if it is done.

        Raises:
            InvalidMessageError: The new due time would be out of range; nothing is changed.

        """

    @abstractmethod
    def note_changes(self, entries: Sequence[AuditEntry]) -> None:
        """Keep audit entries of changes that this store does not make itself, or of this transaction."""


class AuditedKeyedStore(AuditedStore, KeyedDelayedMessageStore):
    """An audited store that knows keys: it notes replaced messages of a key in the same transaction."""

    @abstractmethod
    def store_keyed(self, message: DelayedMessage, rule: KeyRule, *, change: Change | None = None) -> str:
        """As every keyed store's `store_keyed`; if `message` takes the place of another, note `change`."""

    @abstractmethod
    def store_many(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> int:
        """As every keyed store's `store_many`; note `change` for each message whose place another takes."""


class OperableTransaction(DelayedMessageStore):
    """More ways to settle claimed messages, of the store itself and of the object that its `transaction()` yields."""

    @abstractmethod
    def count_failures(self, failures: Sequence[FailedDelivery]) -> int:
        """`increment_failure_counts` that also keeps why each attempt failed; see `DelayedMessage.failures`.

        Returns:
            How many messages were there, and still claimed.

        """

    @abstractmethod
    def park_claimed(self, messages: Sequence[DelayedMessage]) -> Sequence[str]:
        """Park those of these claimed messages whose destination is paused by now, and end their claims.

        No resume slips in between: either it sees them parked, or this sees the destination resumed.

        Returns:
            The ids of the parked messages.

        """

    @abstractmethod
    def postpone(self, postponed: Sequence[tuple[DelayedMessage, datetime]]) -> int:
        """Show claimed messages again at other times, and end their claims; no failure is counted.

        Args:
            postponed: Each message with the aware datetime at which it is shown. A time made by `postponed_until` marks
                the message as postponed by a limit.

        Returns:
            How many messages were there, and still claimed.

        """

    def loads_of(
        self,
        message_ids: Sequence[str],  # noqa: ARG002 - for overriders
        numbers: Collection[int] | None = None,  # noqa: ARG002
    ) -> Mapping[str, int]:
        """The numbers of the loads that have stored messages; see `name_of_load`.

        The default is for stores that no load can fill.

        Args:
            message_ids: Ids of messages.
            numbers: The loads that are wanted, which few partitions of a table may have; None: all.

        Returns:
            The number by message_id, of messages that one of these loads has stored.

        """
        return {}

    def load_ids(self, numbers: Collection[int]) -> Mapping[int, str]:  # noqa: ARG002 - for overriders
        """Look up the ids of loads. The default is for stores that no load can fill.

        Args:
            numbers: Numbers that `loads_of` has returned.

        Returns:
            The id by number, of loads that are still known.

        """
        return {}

    def remove_ended(self, messages: Sequence[DelayedMessage], ending: Ending, at: datetime) -> int:  # noqa: ARG002 - for overriders
        """`remove_many` of messages that leave the store in any way; where a history is kept, each gets an entry.

        Loads count messages that leave without a delivery. The default removes the messages.

        Args:
            messages: Claimed messages.
            ending: How they leave the store. DELIVERED: a message that was not due at `at` is HANDED_OVER.
            at: When they have ended, by the store's clock.

        Returns:
            How many messages were there, and still claimed.

        """
        return self.remove_many(messages)

    @abstractmethod
    def promised(self, destinations: Collection[str]) -> Mapping[str, datetime]:
        """The last times that `allowance` has given for limited destinations.

        A message that this transaction postpones for a limit beyond that time was allowed by an earlier limit, and is
        to be shown at once. No other limit slips in between: either its `unpark` sees the message postponed, or this
        sees the new limit.

        Args:
            destinations: Names of destinations.

        Returns:
            The last time by name, for those destinations that are limited by now.

        """


class OperableDelayedMessageStore(AuditedStore, ManagedDelayedMessageStore, OperableTransaction):
    """A store that operators can search and change by filter, and that dispatchers of several processes report to.

    A message is parked if it would be due, but its destination is paused: its next attempt is PARKED then, and its
    due time does not change. When its destination is resumed, it is shown at its due time again, or at once. No
    dispatcher of any release fetches it meanwhile, and the number of parked messages slows no call down.
    """

    @property
    @abstractmethod
    def is_operable(self) -> bool:
        """Whether the store has all that the methods below need.

        False: the tables are of an earlier release. Call `setup_infrastructure`; the store looks again from time to
        time. Until then the methods below raise StoreSetupError.
        """

    # Waiting messages.

    @abstractmethod
    def search(
        self,
        wanted: MessageFilter,
        *,
        after: Position | None = None,
        limit: int = 100,
        examine: int = EXAMINED,
    ) -> Page:
        """A page of the messages that match a filter, in the order of positions.

        It looks at `examine` waiting messages at most. So a page may be short, or empty, although more messages match.

        Args:
            wanted: The filter.
            after: The position behind which the page begins; None: from the first message.
            limit: The largest number of messages in the page.
            examine: The largest number of waiting messages to look at.

        Returns:
            The page. Its `next_key` is where to go on; it is None only at the end.

        """

    def count_matching(
        self,
        wanted: MessageFilter,
        *,
        after: Position | None = None,
        examine: int = EXAMINED,
        due_times: bool = False,  # noqa: ARG002 - for overriders
    ) -> Matching:
        """Count the matching messages among the next waiting ones. The default reads the messages that `search` finds.

        Args:
            wanted: The filter.
            after: The position behind which to begin; None: at the first message.
            examine: How many waiting messages to look at.
            due_times: Whether the result must have the first and last due time.

        Returns:
            How many match, and where to go on.

        """
        page = self.search(wanted, after=after, limit=examine, examine=examine)
        return Matching.of(len(page.messages), page.next_key, map(unmarked, page.messages))

    def count_matching_by_due_time(
        self, wanted: MessageFilter, bucket: timedelta, *, after: Position | None = None, examine: int = EXAMINED
    ) -> tuple[Mapping[datetime, int], Position | None]:
        """As `count_matching`, by the beginning of the bucket in which messages are due. The default reads messages.

        Args:
            wanted: The filter.
            bucket: The length of a bucket, in whole seconds; buckets are counted from 1970-01-01 UTC.
            after: The position behind which to begin; None: at the first message.
            examine: How many waiting messages to look at.

        Returns:
            How many match in each bucket that has some, and the position to go on behind; None: that was the end.

        """
        page = self.search(wanted, after=after, limit=examine, examine=examine)
        numbers = Counter(number_of(unmarked(message), bucket) for message in page.messages)
        return {start_of(number, bucket): count for number, count in numbers.items()}, page.next_key

    @abstractmethod
    def count_between(self, since: datetime, until: datetime, bucket: timedelta) -> Mapping[datetime, int]:
        """How many messages have their next attempt in each span of a time.

        It reads the messages of that time by index, and nothing else.

        Args:
            since: An aware datetime: the beginning, inclusive.
            until: An aware datetime: the end, exclusive.
            bucket: The length of a span, in whole seconds; spans are counted from 1970-01-01 UTC.

        Returns:
            The number of messages by the beginning of the span.

        """

    @abstractmethod
    def count_by_destination(self, most: int = 1_000) -> Mapping[str, int]:
        """How many messages wait for each destination. Reads all waiting messages.

        Args:
            most: The largest number of destinations.

        Returns:
            The numbers by destination, the largest first.

        """

    # Operations on many messages.

    @abstractmethod
    def begin_operation(self, operation: Operation, *, change: Change | None = None) -> None:
        """Keep an operation; it changes no message yet.

        Its audit entry has, from each step on, the number of messages that the operation has changed by then. Where its
        end is noted, the number moves to that entry: at every moment the entries of an operation list its changes.

        Args:
            operation: A new operation: RUNNING, without a step behind it.
            change: The audit entry to note with it; None: none.

        Raises:
            ConfigurationError: It is not new, or the store has one of its id.

        """

    @abstractmethod
    def advance_operation(
        self, operation_id: str, examine: int = STEP, *, change: Change | None = None
    ) -> Operation | None:
        """Make one step of an operation: change the next messages that match and that no dispatcher has claimed.

        A matching message is cancelled, or rescheduled as by `reschedule` or `shift`; one whose new due time would be
        out of range stays as it is, and counts as held. The step, the progress and the number in the
        audit entry of the operation's beginning, if there is one, are committed together. Two callers take steps in
        turn. It never waits for a dispatcher: claimed messages count as held. For the cancel of a load see
        `StoreWithLoads`.

        Args:
            operation_id: The operation.
            examine: How many waiting messages to look at.
            change: The audit entry, which the step that ends the operation notes with all messages that its steps have
                changed; the entry of its beginning has 0 from then on. None: that one keeps the number.

        Returns:
            The operation as it is now; one that has ended, as it is. None: there is none of that id.

        """

    @abstractmethod
    def end_operation(self, operation_id: str, *, change: Change | None = None) -> Operation | None:
        """Make a RUNNING operation ABANDONED, and note `change` with all messages that its steps have changed.

        Args:
            operation_id: The operation.
            change: The audit entry; None: none.

        Returns:
            The operation; one that had ended, as it is, and nothing is noted. None: there is none of that id.

        """

    @abstractmethod
    def operation(self, operation_id: str) -> Operation | None:
        """Look up an operation.

        Args:
            operation_id: The operation.

        Returns:
            The operation as it is now; None: there is none of that id.

        """

    @abstractmethod
    def operations(self, limit: int = 20) -> Sequence[Operation]:
        """List the operations that were begun last.

        Args:
            limit: The largest number of operations.

        Returns:
            The operations, the newest first.

        """

    # Destinations.

    @abstractmethod
    def destinations(self) -> Sequence[Destination]:
        """The destinations that are paused, limited, or resuming, by name.

        It is one small read.

        A pause whose time is over, by the store's clock, shows as resuming, whether `unpark` has ended it yet or not.
        """

    def destinations_and_loads(self) -> Sequence[Destination]:
        """As `destinations`, with paused and resuming loads by their `name_of_load`.

        Dispatchers call it twice a second. The default is for stores that no load can fill.
        """
        return self.destinations()

    @abstractmethod
    def pause(self, destination: str, *, by: str, until: datetime | None = None, change: Change | None = None) -> None:
        """Have every dispatcher keep messages for a destination from now on.

        This call parks no due messages: `park` does, and dispatchers park the messages that they fetch.

        Args:
            destination: Its name.
            by: Who pauses it.
            until: When it resumes on its own, an aware datetime; None: never. It replaces the end of another pause.
            change: The audit entry to note; None: none.

        """

    @abstractmethod
    def resume(self, destination: str, *, by: str, change: Change | None = None) -> bool:
        """Let messages for a destination go again: it is resuming, until `unpark` has shown them all.

        Messages that a limit had postponed ask for their allowance again, too.

        Args:
            destination: Its name.
            by: Who resumes it.
            change: The audit entry to note; None: none.

        Returns:
            False: it was not paused, and nothing is noted.

        """

    @abstractmethod
    def limit_rate(self, destination: str, max_rate: float | None, *, by: str, change: Change | None = None) -> None:
        """Limit how many messages a second go to a destination, from all dispatchers together.

        If another limit has postponed messages, the destination is resuming until `unpark` has shown them.

        Args:
            destination: Its name.
            max_rate: Messages a second; None: no limit.
            by: Who limits it.
            change: The audit entry to note; None: none.

        """

    @abstractmethod
    def park(self, until: datetime, at_most: int = STEP) -> int:
        """Park messages of paused destinations.

        Args:
            until: An aware datetime: only messages whose next attempt is at or before it.
            at_most: The largest number of messages.

        Returns:
            How many were parked; 0: there are no more that no dispatcher has claimed.

        """

    @abstractmethod
    def unpark(self, at_most: int = STEP, ahead: timedelta | None = None) -> int:
        """Show parked messages of destinations that are not paused, and end pauses whose time is over.

        Then it shows messages that a limit had postponed, at destinations that are resuming, beyond the last time that
        `allowance` has given since. A message that has failed keeps its next attempt. The next attempt of the others is
        their due time again, or, if that is past, a later time that is.

        If no destination is resuming, a call looks at few messages, and the next call goes on: there are parked
        messages then only if a pause was lost.

        Args:
            at_most: The largest number of messages.
            ahead: How long before its next attempt dispatchers fetch a message. None: the caller does not know;
                postponed messages, and `resuming`, are left to callers that do.

        Returns:
            How many were shown. 0: none is left that no dispatcher has claimed, and no destination is resuming any
            more.

        """

    @abstractmethod
    def allowance(self, destination: str, wanted: int) -> Allowance:
        """How many messages may go to a limited destination now, in a transaction of its own.

        Granted messages count as sent. The messages of one second (one, at least) may go at once, and no more than
        `max_rate` each second after that, over all handles. The times for the others are as far apart, given to no
        other caller, and no further ahead than records.FURTHEST. If there is no limit, all are granted. If the store's
        clock has stepped back behind the times that it gave before, the destination is resuming.

        Args:
            destination: Its name.
            wanted: How many messages are ready to go.

        Returns:
            How many may go, and when the others may.

        """

    # Counts.

    @abstractmethod
    def count_failing(self, at_most: int) -> int:
        """Count the waiting messages that have failed before.

        Args:
            at_most: Where the counting ends.

        Returns:
            The number of messages, `at_most` if there are as many or more.

        """

    @abstractmethod
    def count_parked(self, at_most: int) -> int:
        """Count the parked messages.

        Args:
            at_most: Where the counting ends.

        Returns:
            The number of messages, `at_most` if there are as many or more.

        """

    # Dispatchers.

    @abstractmethod
    def heartbeat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
        """Record that a dispatcher lives.

        Records of dispatchers that died long ago, and activity older than records.ACTIVITY_KEPT, are deleted meanwhile.

        Args:
            record: The dispatcher. The store's clock gives the time of the heartbeat, in place of `record.heartbeat`.
            done: Its activity since its last heartbeat, by minute.

        """

    @abstractmethod
    def retire(self, dispatcher_id: str) -> None:
        """Record that a dispatcher has ended.

        Args:
            dispatcher_id: The id in its record; one that is not known is ignored.

        """

    @abstractmethod
    def dispatchers(self) -> Sequence[DispatcherRecord]:
        """The dispatchers that live, by name and id."""

    @abstractmethod
    def activity(self, since: datetime) -> Sequence[Activity]:
        """The work of all dispatchers together, minute by minute.

        Args:
            since: An aware datetime, in the first minute.

        Returns:
            The work in each minute, in order; idle minutes are left out.

        """

    # Ingresses; a store need not keep their reports.

    def heartbeat_of_ingress(self, record: IngressRecord) -> None:
        """Record that an ingress lives. The default keeps nothing.

        The records of ingresses of the same queue that have died are deleted: another one takes from it now. Records
        that `ingresses` does not show any more for another reason are deleted at some time.

        Args:
            record: The ingress. The store's clock gives the time of the heartbeat, in place of `record.heartbeat`.

        """

    def retire_ingress(self, ingress_id: str) -> None:
        """Record that an ingress has ended. The default keeps nothing.

        Its record is deleted, and those of ingresses of the same queue that have died.

        Args:
            ingress_id: The id in its record; one that is not known is ignored.

        """

    def ingresses(self) -> Sequence[IngressRecord]:
        """The ingresses that live, and for each queue without one the ingress that died last, for records.GONE_FOR.

        Returns:
            The records by queue and id. The default knows none.

        """
        return ()

    # The audit trail.

    @abstractmethod
    def changes(self, limit: int = 100, before: datetime | None = None) -> Sequence[AuditEntry]:
        """List the last changes that were made.

        Args:
            limit: The largest number of entries.
            before: Only entries from before this aware datetime; None: all.

        Returns:
            The entries, the newest first.

        """

    def changes_of(self, message_id: str, limit: int = 100) -> Sequence[AuditEntry]:
        """List the last changes that were made of one message. The default looks among the last 1,000 changes.

        Args:
            message_id: The message.
            limit: The largest number of entries.

        Returns:
            The entries, the newest first.

        """
        return [each for each in self.changes(1_000) if each.message_id == message_id][:limit]

    @abstractmethod
    def forget_before(self, time: datetime, at_most: int = STEP) -> int:
        """Delete audit entries from before `time`, and operations that ended before it.

        What dispatchers and ingresses report goes sooner: see `heartbeat` and `ingresses`.

        Args:
            time: An aware datetime, by the store's clock.
            at_most: How many of each are deleted, so that a step is short.

        Returns:
            How many were deleted; 0: there are no more.

        """


class StoreWithLoads(OperableDelayedMessageStore):
    """A store that loads fill: it knows which load has stored a message.

    An operation that cancels a load as a whole (`Operation.cancelled_load`) notes that in the transaction that begins
    it, unless the load is a stream: a run of the load that has not stored anything yet loses it, and stores nothing,
    and the load is not run again unless its user says that this is meant. The load is paused in the same transaction,
    unless it is already, without end; that pause ends if the operation is abandoned. When such an operation has seen
    all messages, it begins again, as long as fewer messages of the load are left each time. Messages that are left at
    last count as held, and the load stays paused; without any, it is not paused any more. An operation never changes
    messages of a load that was loaded again after it began.

    Calls about the messages of a load, by its id or by a filter, raise UnknownLoadError where there is none of that id,
    and ConfigurationError where an earlier release has stored it. All but `paused_loads` raise StoreSetupError where
    the tables are of an earlier release.
    """

    @abstractmethod
    def loads(self, limit: int = 20) -> Sequence[Load]:
        """List the loads that were begun last. It is quick: it counts at most 100,000 messages of each, by an index.

        Args:
            limit: The largest number of loads.

        Returns:
            The loads, the newest first.

        """

    @abstractmethod
    def load(self, load_id: str) -> Load:
        """Look up a load, and count its messages.

        Args:
            load_id: Its id.

        Returns:
            The load.

        Raises:
            UnknownLoadError: There is none of that id.

        """

    @abstractmethod
    def count_between_by_destination(
        self, since: datetime, until: datetime, bucket: timedelta, destinations: Collection[str]
    ) -> Mapping[str, Mapping[datetime, int]]:
        """As `count_between`, of the messages for some destinations, each on its own.

        Args:
            since: An aware datetime: the beginning, inclusive.
            until: An aware datetime: the end, exclusive.
            bucket: The length of a span, in whole seconds; spans are counted from 1970-01-01 UTC.
            destinations: Their names, up to 1,000.

        Returns:
            The numbers by destination and by the beginning of the span; destinations without messages are left out.

        """

    @abstractmethod
    def paused_loads(self) -> Sequence[str]:
        """The ids of paused loads, in order."""

    @abstractmethod
    def pause_load(self, load_id: str, *, by: str, until: datetime | None = None, change: Change | None = None) -> None:
        """Have every dispatcher keep the messages of a load from now on, as `pause` does for a destination.

        Args:
            load_id: Its id.
            by: Who pauses it.
            until: When it resumes on its own, an aware datetime; None: never. It replaces the end of another pause.
            change: The audit entry to note; None: none.

        Raises:
            ConfigurationError: It was stored or cancelled, and none of its messages waits any more.

        """

    @abstractmethod
    def resume_load(self, load_id: str, *, by: str, change: Change | None = None) -> bool:
        """Let the messages of a load go again, as `resume` does for a destination.

        Args:
            load_id: Its id.
            by: Who resumes it.
            change: The audit entry to note; None: none.

        Returns:
            False: it was not paused, and nothing is noted.

        """
