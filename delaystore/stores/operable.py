"""The contract of stores for operators: search, operations on many messages, pauses and limits, reports, audit trail.

As of `abc.py`, its semantics live here and only here; `delaystore.testing` checks them.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, FailedAttempt, KeyRule, Position
from delaystore.stores.abc import (
    REJECT,
    DelayedMessageStore,
    KeyedDelayedMessageStore,
    ManagedDelayedMessageStore,
    ManagementOutcome,
    Page,
)
from delaystore.stores.documents import LatenessHistogram
from delaystore.text import limit_text, time_text

EXAMINED: Final = 20_000
"""The most waiting messages that one search looks at: a page costs the same wherever it begins, however few match."""
STEP: Final = 2_000
"""The most waiting messages that one step of an operation looks at."""
HELD_KEPT: Final = 100
"""The most ids of claimed messages that an operation remembers."""
HEARTBEAT_EVERY: Final = timedelta(seconds=5)
"""The time between two heartbeats of a dispatcher or an ingress."""
ALIVE: Final = timedelta(seconds=20)
"""A dispatcher or an ingress lives if its last heartbeat is no longer ago."""
GONE_FOR: Final = timedelta(hours=24)
"""For how long the store shows that a queue has no ingress any more."""
FURTHEST: Final = timedelta(minutes=15)
"""The longest time by which messages for a limited destination are postponed."""
GRID: Final = timedelta(milliseconds=50)
"""Postponed messages are shown together, those of this long at once: not a pass for each."""
TICK: Final = timedelta(microseconds=1)
BUSIEST: Final = 50
"""The most destinations for which a dispatcher reports, in each minute, how many messages it delivered."""
ACTIVITY_KEPT: Final = timedelta(hours=25)
"""For how long the store keeps what dispatchers did in each minute."""


class OperationKind(StrEnum):
    """What an operation does with each message that matches."""

    CANCEL = "cancel"
    RESCHEDULE = "reschedule"


class OperationState(StrEnum):
    """The state of an operation."""

    RUNNING = "running"
    """It has not ended: a process works on it, or may resume it."""
    DONE = "done"
    ABANDONED = "abandoned"
    """It was ended early; what it changed stays changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A change of all waiting messages that match a filter, in steps, in the order of message_ids.

    It is kept in the store. If it is interrupted, any process can resume it behind the last step that was committed,
    and no message is changed twice. A message that is stored while it runs may or may not be changed.

    Attributes:
        operation_id: Its id, made by the process that begins it.
        kind: What it does with each message.
        wanted: The filter.
        by: Who began it.
        began: When, by the store's clock.
        due_time: The new due time, of a RESCHEDULE.
        ended: When it was done or abandoned.
        state: Whether it runs.
        after: The message_id behind which the next step begins; None: no step was made yet.
        examined: Waiting messages that its steps have looked at.
        changed: Messages that its steps have changed.
        held: Matching messages that a dispatcher had claimed, and that were left alone.
        held_ids: Their ids, HELD_KEPT at most.

    """

    operation_id: str
    kind: OperationKind
    wanted: MessageFilter
    by: str
    began: datetime
    due_time: datetime | None = None
    ended: datetime | None = None
    state: OperationState = OperationState.RUNNING
    after: str | None = None
    examined: int = 0
    changed: int = 0
    held: int = 0
    held_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A destination that is paused or limited, or was until just now.

    Attributes:
        name: The destination.
        paused: Whether messages to it are parked.
        paused_until: When it resumes on its own; None: never, or it is not paused.
        resuming: It is not paused any more, or its limit has changed, and some of its messages are still parked or
            postponed.
        max_rate: Messages a second, over all dispatchers; None: no limit.
        changed: When it was paused, resumed or limited last.
        by: Who did that.

    """

    name: str
    paused: bool = False
    paused_until: datetime | None = None
    resuming: bool = False
    max_rate: float | None = None
    changed: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How many messages for a limited destination may go now, and when the others are to be shown again.

    Attributes:
        granted: How many may go now.
        later: A time for each of the others, in their order. It promises nothing: they ask again then.

    """

    granted: int
    later: Sequence[datetime] = ()


def postponed_until(time: datetime) -> datetime:
    """The next attempt of a message that a limit postpones until `time`: that, or the next one on the GRID.

    So a store tells what a limit has postponed from what has failed, and finds it by the index of next attempts.
    """
    return time + (datetime.min.replace(tzinfo=time.tzinfo) - time) % GRID


def is_postponed(message: DelayedMessage) -> bool:
    """Whether a limit has postponed it."""
    return message.next_attempt > message.due_time and postponed_until(message.next_attempt) == message.next_attempt


def retried_at(time: datetime) -> datetime:
    """The next attempt of a message that is hidden for another reason than a limit: `time`, but off the GRID."""
    return time + TICK if postponed_until(time) == time else time


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherRecord:
    """A dispatcher as it describes itself.

    Attributes:
        dispatcher_id: An id of its own for each run.
        name: Its name, as in its settings.
        host: The name of its host.
        pid: The number of its process.
        version: The release of delaystore.
        since: When it began.
        heartbeat: When it reported last, by the store's clock.
        rate: Messages delivered a second, over the last minute.
        breakers: The state of each circuit breaker, as in `Health`.
        error_queue: The name of its error queue.
        error_queue_depth: Messages in the error queue; None: it does not know.
        error_queue_seen: When the broker reported that depth.
        problem: Why it forwards no messages at present; None: it does, as far as it knows.
        audit: Its setting of this name; None: it is of an earlier release.
        retention: Its setting of this name; None: it is of an earlier release.

    """

    dispatcher_id: str
    name: str
    host: str
    pid: int
    version: str
    since: datetime
    heartbeat: datetime
    rate: float = 0.0
    breakers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    error_queue: str = "error"
    error_queue_depth: int | None = None
    error_queue_seen: datetime | None = None
    problem: str | None = None
    audit: str | None = None
    retention: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressRecord:
    """An ingress as it describes itself.

    Attributes:
        ingress_id: An id of its own for each run.
        queue: The queue that it consumes.
        rejected_queue: The queue for messages that it cannot store.
        host: The name of its host.
        pid: The number of its process.
        version: The release of delaystore.
        since: When it began.
        heartbeat: When it reported last, by the store's clock.
        stored: Messages stored since its process began.
        rejected: Messages rejected since its process began.
        unacknowledged: How many messages are unacknowledged at present.
        why_unacknowledged: Why they are.
        rejected_depth: Messages in the rejected queue; None: it does not know.
        rejected_seen: When the broker reported that depth.
        breakers: The state of each circuit breaker, as in `IngressHealth`.
        problem: Why it consumes no messages at present; None: it does, as far as it knows.

    """

    ingress_id: str
    queue: str
    rejected_queue: str
    host: str
    pid: int
    version: str
    since: datetime
    heartbeat: datetime
    stored: int = 0
    rejected: int = 0
    unacknowledged: int = 0
    why_unacknowledged: str | None = None
    rejected_depth: int | None = None
    rejected_seen: datetime | None = None
    breakers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    problem: str | None = None

    def is_offline(self, now: datetime) -> bool:
        """Whether its last heartbeat is so long ago that it has died. `now`: by the store's clock."""
        return now - self.heartbeat > ALIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The work of dispatchers in one minute. Counts as in `DispatchReport`.

    Attributes:
        minute: Its beginning, by the store's clock, in UTC.
        delivered: Messages delivered.
        failed: Failed attempts.
        moved_to_error_queue: Messages moved to the error queue.
        deferred: Messages deferred because their destination was suspended.
        lateness: How late messages were, of those that were delivered when they were due.
        by_destination: Messages delivered, by destination: of the BUSIEST ones at least.

    """

    minute: datetime
    delivered: int = 0
    failed: int = 0
    moved_to_error_queue: int = 0
    deferred: int = 0
    lateness: LatenessHistogram = field(default_factory=LatenessHistogram)
    by_destination: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __add__(self, other: "Activity") -> "Activity":
        """The sum of both, as of the minute of the first."""
        return Activity(
            minute=self.minute,
            delivered=self.delivered + other.delivered,
            failed=self.failed + other.failed,
            moved_to_error_queue=self.moved_to_error_queue + other.moved_to_error_queue,
            deferred=self.deferred + other.deferred,
            lateness=self.lateness + other.lateness,
            by_destination=Counter(self.by_destination) + Counter(other.by_destination),
        )


class Way(StrEnum):
    """The way by which a change was requested."""

    CLI = "cli"
    WEB = "web"
    API = "api"
    CONTROL = "control"
    DJANGO = "django"
    OPERATIONS = "operations"
    """A program, by `DelayedDelivery.operations`."""
    PROGRAM = "program"
    """A program, by `DelayedDelivery` or in a transaction of its own."""
    INGRESS = "ingress"
    LOAD = "load"
    """A load of files or DataFrames by Spark."""
    CELERY = "celery"
    DRAMATIQ = "dramatiq"

    @property
    def is_operators(self) -> bool:
        """Whether operators use it; the other ways are those of programs."""
        return self not in (Way.PROGRAM, Way.INGRESS, Way.CELERY, Way.DRAMATIQ)


class ChangeAction(StrEnum):
    """What is done to waiting messages or to a destination. Changes of the error queue have other actions."""

    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    SEND_NOW = "send-now"
    REPLACE = "replace"
    """Another message takes the place of the one that has its key or its message_id."""
    ABANDON = "abandon"
    """End an operation on many messages before it is done."""
    PAUSE = "pause"
    RESUME = "resume"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change that was made. All changes of messages have the same form, by whichever way they were made.

    Attributes:
        at: When, by the store's clock.
        by: Who made it.
        action: One word, such as cancel; see `ChangeAction`.
        about: What was changed, in words, made of the fields below.
        count: How many messages were changed; 0 if a destination was.
        way: By which way; None: an earlier release noted it, which kept the fields above alone.
        message_id: The message, if it was one.
        key: Its key, if it had one.
        destination: Its destination, or the destination that was paused, resumed or limited.
        wanted: The filter, if many messages were changed.
        operation_id: The operation that changed many messages.
        old_due_time: When the one message was due before.
        new_due_time: When the messages are due since; None: they are gone.

    """

    at: datetime
    by: str
    action: str
    about: str
    count: int
    way: str | None = None
    message_id: str | None = None
    key: str | None = None
    destination: str | None = None
    wanted: MessageFilter | None = None
    operation_id: str | None = None
    old_due_time: datetime | None = None
    new_due_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBefore:
    """What the audit trail says of a message as it was before a change.

    `destination` and `due_time` are None if it was not seen before it was changed: a dispatcher had just let go of it.
    """

    message_id: str
    destination: str | None = None
    due_time: datetime | None = None
    key: str | None = None

    @classmethod
    def of(cls, message: DelayedMessage) -> Self:
        """That of `message`."""
        return cls(
            message_id=message.message_id,
            destination=message.destination,
            due_time=message.due_time,
            key=message.key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Who changes messages or a destination, by which way, and how: the store notes it in the change's transaction."""

    by: str
    way: Way
    action: ChangeAction

    def of_message(
        self, at: datetime, before: MessageBefore, due_time: datetime | None = None, new_id: str | None = None
    ) -> AuditEntry:
        """The entry of a change of one message.

        Args:
            at: When it is changed, by the store's clock.
            before: The message as it was.
            due_time: Its new due time; None: it is cancelled.
            new_id: The id of the message that takes its place; None: none does.

        """
        place = "" if new_id in (None, before.message_id) else f" by {new_id}"
        since = "" if before.due_time is None else f" from {time_text(before.due_time)}"
        to = "" if due_time is None else f" to {time_text(due_time)}"
        return self._entry(
            at,
            f"message {before.message_id}{place}{since}{to}",
            1,
            message_id=before.message_id,
            key=before.key,
            destination=before.destination,
            old_due_time=before.due_time,
            new_due_time=due_time,
        )

    def of_many(self, at: datetime, about: str, count: int, wanted: MessageFilter | None = None) -> AuditEntry:
        """The entry of a change of `count` messages, which are `about` in words, in one transaction."""
        return self._entry(at, about, count, wanted=wanted)

    def of_destination(
        self, at: datetime, destination: str, *, until: datetime | None = None, max_rate: float | None = None
    ) -> AuditEntry:
        """The entry of a destination that is paused, resumed or limited.

        Args:
            at: When, by the store's clock.
            destination: Its name.
            until: When its pause ends; None: it has no end, or this is no pause.
            max_rate: Its new limit, in messages a second; None: it has no limit any more, or this is no limit.

        """
        detail = "" if until is None else f" until {time_text(until)}"
        if self.action is ChangeAction.LIMIT:
            detail = ": no limit any more" if max_rate is None else f" to {limit_text(max_rate)}"
        return self._entry(at, f"{destination}{detail}", 0, destination=destination)

    def _entry(self, at: datetime, about: str, count: int, **details: Any) -> AuditEntry:
        return AuditEntry(
            at=at, by=self.by, action=self.action.value, about=about, count=count, way=self.way.value, **details
        )

    def of_operation(self, at: datetime, operation: Operation) -> AuditEntry:
        """The entry of an operation on many messages: as it begins, with 0 messages, and as it ends."""
        to = "" if operation.due_time is None else f" to {time_text(operation.due_time)}"
        begun = ": begun" if operation.state is OperationState.RUNNING else ""
        return AuditEntry(
            at=at,
            by=self.by,
            action=self.action.value,
            about=f"{operation.wanted}{to} (operation {operation.operation_id}){begun}",
            count=operation.changed,
            way=self.way.value,
            wanted=operation.wanted,
            operation_id=operation.operation_id,
            new_due_time=operation.due_time,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedDelivery:
    """A claimed message whose attempt failed, why, and when the store shows it again."""

    message: DelayedMessage
    next_attempt: datetime
    attempt: FailedAttempt


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
    def note_changes(self, entries: Sequence[AuditEntry]) -> None:
        """Keep audit entries of changes that this store does not make itself, or of this transaction."""


class AuditedKeyedStore(AuditedStore, KeyedDelayedMessageStore):
    """An audited store that knows keys: what a message replaces, by its key, is noted in the same transaction."""

    @abstractmethod
    def store_keyed(self, message: DelayedMessage, rule: KeyRule, *, change: Change | None = None) -> str:
        """As every keyed store's `store_keyed`; if `message` takes the place of another, note `change`."""

    @abstractmethod
    def store_many(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> int:
        """As every keyed store's `store_many`; note `change` for each message whose place another takes."""


class OperableTransaction(DelayedMessageStore):
    """More ways to settle claimed messages: the store itself has them, and what its `transaction()` yields."""

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

    A message is parked if it would be due, but its destination is paused: its next attempt is PARKED then, and its due
    time is what it was. When its destination is resumed, it is shown at its due time again, or at once. No dispatcher
    of any release fetches it meanwhile, and the number of parked messages slows no call down.
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
        self, wanted: MessageFilter, *, after: Position | None = None, examine: int = EXAMINED
    ) -> tuple[int, Position | None]:
        """Count the matching messages among the next waiting ones. The default reads what `search` finds.

        Args:
            wanted: The filter.
            after: The position behind which to begin; None: at the first message.
            examine: How many waiting messages to look at.

        Returns:
            How many match, and the position to go on behind; None in its place: that was the end.

        """
        page = self.search(wanted, after=after, limit=examine, examine=examine)
        return len(page.messages), page.next_key

    @abstractmethod
    def count_between(self, since: datetime, until: datetime, bucket: timedelta) -> Mapping[datetime, int]:
        """How many messages have their next attempt in each span of a time.

        It reads by the index what is in that time, and nothing else.

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

        A matching message is cancelled, or rescheduled as by `reschedule`. The step and the progress are committed
        together. Two callers take steps in turn. It never waits for a dispatcher: claimed messages count as held.

        Args:
            operation_id: The operation.
            examine: How many waiting messages to look at.
            change: The audit entry, which the step that ends the operation notes with all messages that its steps have
                changed.

        Returns:
            The operation as it is now; one that has ended, as it is. None: there is none of that id.

        """

    @abstractmethod
    def end_operation(self, operation_id: str, *, change: Change | None = None) -> Operation | None:
        """Make a RUNNING operation ABANDONED, and note `change`.

        Returns:
            The operation; one that had ended, as it is, and nothing is noted. None: there is none of that id.

        """

    @abstractmethod
    def operation(self, operation_id: str) -> Operation | None:
        """The operation of an id; None: there is none."""

    @abstractmethod
    def operations(self, limit: int = 20) -> Sequence[Operation]:
        """The `limit` operations that were begun last, the newest first."""

    # Destinations.

    @abstractmethod
    def destinations(self) -> Sequence[Destination]:
        """The destinations that are paused, limited, or resuming, by name.

        It is one small read: dispatchers call it twice a second.

        A pause whose time is over, by the store's clock, shows as resuming, whether `unpark` has ended it yet or not.
        """

    @abstractmethod
    def pause(self, destination: str, *, by: str, until: datetime | None = None, change: Change | None = None) -> None:
        """Have every dispatcher keep messages for a destination from now on.

        This call parks no due messages: `park` does, and dispatchers park those that they fetch.

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
        other caller, and no further ahead than FURTHEST. If there is no limit, all are granted. If the store's clock
        has stepped back behind the times that it gave before, the destination is resuming.

        Args:
            destination: Its name.
            wanted: How many messages are ready to go.

        """

    # Failures.

    @abstractmethod
    def count_failing(self, at_most: int) -> int:
        """How many waiting messages have failed before; counted up to `at_most`."""

    @abstractmethod
    def count_parked(self, at_most: int) -> int:
        """How many messages are parked; counted up to `at_most`."""

    # Dispatchers.

    @abstractmethod
    def heartbeat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
        """Record that a dispatcher lives.

        Records of dispatchers that died long ago, and activity from before ACTIVITY_KEPT, are deleted meanwhile.

        Args:
            record: The dispatcher. The store's clock gives the time of the heartbeat, in place of `record.heartbeat`.
            done: Its activity since its last heartbeat, by minute.

        """

    @abstractmethod
    def retire(self, dispatcher_id: str) -> None:
        """Record that a dispatcher has ended; one that is not known is ignored."""

    @abstractmethod
    def dispatchers(self) -> Sequence[DispatcherRecord]:
        """The dispatchers that live, by name and id."""

    # Ingresses; a store need not keep their reports.

    def heartbeat_of_ingress(self, record: IngressRecord) -> None:
        """Record that an ingress lives. The default keeps nothing.

        Records that `ingresses` does not show any more are deleted at some time.

        Args:
            record: The ingress. The store's clock gives the time of the heartbeat, in place of `record.heartbeat`.

        """

    def retire_ingress(self, ingress_id: str) -> None:
        """Record that an ingress has ended; one that is not known is ignored. The default keeps nothing."""

    def ingresses(self) -> Sequence[IngressRecord]:
        """The ingresses that live, and for each queue without one the ingress that died last, for GONE_FOR.

        Returns:
            The records by queue and id. The default knows none.

        """
        return ()

    @abstractmethod
    def activity(self, since: datetime) -> Sequence[Activity]:
        """The work of all dispatchers together, in each minute from `since` on, in order; idle minutes are left out."""

    # The audit trail.

    @abstractmethod
    def changes(self, limit: int = 100, before: datetime | None = None) -> Sequence[AuditEntry]:
        """The last changes that were made, the newest first.

        Args:
            limit: The largest number of entries.
            before: Only entries from before this aware datetime; None: all.

        """

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
