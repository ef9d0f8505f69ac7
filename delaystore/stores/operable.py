"""What operators need of a store, as a contract: search, operations on many messages, destinations that are paused or
limited, dispatchers and ingresses that live, what they did, and who changed what.

As of `abc.py`, its semantics live here and only here; `delaystore.testing` checks them.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self

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
"""Waiting messages that one search looks at, at most: so a page costs as much wherever it begins, and however few
messages match."""
STEP: Final = 2_000
"""Waiting messages that one step of an operation looks at, at most."""
HELD_KEPT: Final = 100
"""Message_ids that an operation remembers of those that a dispatcher had."""
HEARTBEAT_EVERY: Final = timedelta(seconds=5)
"""How often a dispatcher or an ingress says that it lives."""
ALIVE: Final = timedelta(seconds=20)
"""A dispatcher or an ingress lives whose last heartbeat is no longer ago."""
GONE_FOR: Final = timedelta(hours=24)
"""For how long the store tells that a queue has no ingress any more."""
FURTHEST: Final = timedelta(minutes=15)
"""How far ahead messages for a limited destination are postponed, at most."""
GRID: Final = timedelta(milliseconds=50)
"""Postponed messages are shown together, those of this long at once: not a pass for each."""
TICK: Final = timedelta(microseconds=1)
BUSIEST: Final = 50
"""Destinations of which a dispatcher tells, in each minute, how many messages it delivered."""
ACTIVITY_KEPT: Final = timedelta(hours=25)
"""For how long the store keeps what dispatchers did in each minute."""


class OperationKind(StrEnum):
    """What an operation does with each message that matches."""

    CANCEL = "cancel"
    RESCHEDULE = "reschedule"


class OperationState(StrEnum):
    """Where an operation is."""

    RUNNING = "running"
    """It has a beginning and no end: somebody works on it, or may resume it."""
    DONE = "done"
    ABANDONED = "abandoned"
    """Somebody has ended it; what it changed stays changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A change of all waiting messages that match a filter, in steps, in the order of message_ids.

    It is kept in the store: whoever resumes it goes on behind the last step that was committed, and no message is
    changed twice. What is stored while it runs may or may not be changed.
    """

    operation_id: str
    kind: OperationKind
    wanted: MessageFilter
    by: str
    """Who began it."""
    began: datetime
    due_time: datetime | None = None
    """The new due time, of a RESCHEDULE."""
    ended: datetime | None = None
    state: OperationState = OperationState.RUNNING
    after: str | None = None
    """The message_id behind which the next step begins; None: none was made yet."""
    examined: int = 0
    """Waiting messages that its steps have looked at."""
    changed: int = 0
    held: int = 0
    """Matching messages that a dispatcher had, and that were left alone."""
    held_ids: Sequence[str] = ()
    """Their ids, HELD_KEPT at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A destination that is paused or limited, or was until just now."""

    name: str
    paused: bool = False
    paused_until: datetime | None = None
    """When it resumes by itself; None: never, or it is not paused."""
    resuming: bool = False
    """It is not paused any more, or its limit has changed, and some of its messages are still parked or postponed."""
    max_rate: float | None = None
    """Messages a second, over all dispatchers; None: no limit."""
    changed: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Of messages for a limited destination: how many may go now, and when the others are to be shown again."""

    granted: int
    later: Sequence[datetime] = ()
    """A time for each of the others, in their order. It promises nothing: they ask again then."""


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

    `dispatcher_id`: one of its own for each run. `rate`: messages delivered a second, over the last minute.
    `breakers`: the state of each, as in `Health`. `error_queue_depth`: None: it does not know; `error_queue_seen`: when
    the broker said so. `problem`: why it forwards nothing at present; None: it does, as far as it knows. `audit` and
    `retention`: its settings of these names; None: it is of an earlier release.
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

    `ingress_id`: one of its own for each run. `stored`, `rejected`: messages since its process began. `unacknowledged`:
    how many are at present, and `why_unacknowledged`. `rejected_depth`: messages in the rejected queue; None: it does
    not know; `rejected_seen`: when the broker said so. `breakers`: as in `IngressHealth`. `problem`: why it takes
    nothing in at present; None: it does, as far as it knows.
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
        """Whether it has said nothing for so long that it has died. `now`: by the store's clock."""
        return now - self.heartbeat > ALIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What dispatchers did in one minute. Counts as in `DispatchReport`."""

    minute: datetime
    """Its beginning, on the store's clock, UTC."""
    delivered: int = 0
    failed: int = 0
    moved_to_error_queue: int = 0
    deferred: int = 0
    lateness: LatenessHistogram = field(default_factory=LatenessHistogram)
    """Of what was delivered when it was due."""
    by_destination: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Messages delivered, by destination: of the BUSIEST ones at least."""

    def __add__(self, other: "Activity") -> "Activity":
        """Both, as of the minute of the first."""
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
    """By which way a change was asked for."""

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
        return AuditEntry(
            at=at,
            by=self.by,
            action=self.action.value,
            about=f"message {before.message_id}{place}{since}{to}",
            count=1,
            way=self.way.value,
            message_id=before.message_id,
            key=before.key,
            destination=before.destination,
            old_due_time=before.due_time,
            new_due_time=due_time,
        )

    def of_many(self, at: datetime, about: str, count: int, wanted: MessageFilter | None = None) -> AuditEntry:
        """The entry of a change of `count` messages, which are `about` in words, in one transaction."""
        return AuditEntry(
            at=at,
            by=self.by,
            action=self.action.value,
            about=about,
            count=count,
            way=self.way.value,
            wanted=wanted,
        )

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
        return AuditEntry(
            at=at,
            by=self.by,
            action=self.action.value,
            about=f"{destination}{detail}",
            count=0,
            way=self.way.value,
            destination=destination,
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

    Whatever dies, a change and its entry exist together, or neither does. `change` None: there is no entry. A change
    that finds no message, or one that a dispatcher has claimed, makes no entry.
    """

    @abstractmethod
    def cancel(self, message_id: str, *, change: Change | None = None) -> ManagementOutcome:
        """As every store's `cancel`, and note `change`."""

    @abstractmethod
    def reschedule(self, message_id: str, due_time: datetime, *, change: Change | None = None) -> ManagementOutcome:
        """As every store's `reschedule`, and note `change`."""

    @abstractmethod
    def note_changes(self, entries: Sequence[AuditEntry]) -> None:
        """Keep all of `entries`, of changes that this store does not make itself, or of this transaction."""


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
    """What `transaction()` of an operable store yields, and what the store itself is, too: more ways to settle."""

    @abstractmethod
    def count_failures(self, failures: Sequence[FailedDelivery]) -> int:
        """As `increment_failure_counts`, and keep why each attempt failed; see `DelayedMessage.failures`."""

    @abstractmethod
    def park_claimed(self, messages: Sequence[DelayedMessage]) -> Sequence[str]:
        """Park those of these claimed messages whose destination is paused by now; returns their ids.

        It ends their claims. No resume slips in between: either it sees them parked, or this sees it resumed.
        """

    @abstractmethod
    def postpone(self, postponed: Sequence[tuple[DelayedMessage, datetime]]) -> int:
        """Show claimed messages again at these times, and end their claims; no failure is counted.

        Returns how many were there, still claimed. A time made by `postponed_until` is for a limit's sake.
        """

    @abstractmethod
    def promised(self, destinations: Collection[str]) -> Mapping[str, datetime]:
        """Of those of `destinations` that are limited by now: the last time that `allowance` has given.

        What this transaction postpones for a limit beyond that was allowed by an earlier limit, and is to be shown at
        once. No other limit slips in between: either its `unpark` sees it postponed, or this sees the new limit.
        """


class OperableDelayedMessageStore(AuditedStore, ManagedDelayedMessageStore, OperableTransaction):
    """A store that operators can search and change by filter, and that dispatchers of several processes report to.

    A message is parked where it would be due, but its destination is paused: its next attempt is PARKED then, and its
    due time is what it was. It is shown at its due time again, or at once, when its destination is resumed. No
    dispatcher fetches it meanwhile, of whatever release, and however many are parked costs nobody anything.
    """

    @property
    @abstractmethod
    def is_operable(self) -> bool:
        """Whether all of this can be had. False: the tables are of an earlier release, and `setup_infrastructure` is to
        be called; it is asked again from time to time. The methods below then raise StoreSetupError.
        """

    # what waits

    @abstractmethod
    def search(
        self,
        wanted: MessageFilter,
        *,
        after: Position | None = None,
        limit: int = 100,
        examine: int = EXAMINED,
    ) -> Page:
        """A page of the messages that match, in the order of positions, behind `after`.

        It looks at `examine` waiting messages at most. So a page may be short, or empty, although more match:
        `next_key` tells where to go on, and is None only at the end.
        """

    def count_matching(
        self, wanted: MessageFilter, *, after: Position | None = None, examine: int = EXAMINED
    ) -> tuple[int, Position | None]:
        """How many messages match among the next `examine` waiting ones behind `after`, and where to go on.

        None in its place: that was the end. The default reads what `search` finds; a store may know better.
        """
        page = self.search(wanted, after=after, limit=examine, examine=examine)
        return len(page.messages), page.next_key

    @abstractmethod
    def count_between(self, since: datetime, until: datetime, bucket: timedelta) -> Mapping[datetime, int]:
        """How many messages have their next attempt in each `bucket`, where since <= next attempt < until.

        `bucket`: a length in whole seconds, counted from 1970-01-01 UTC; the keys are the buckets' beginnings. It reads
        by the index what is in that time, and nothing else.
        """

    @abstractmethod
    def count_by_destination(self, most: int = 1_000) -> Mapping[str, int]:
        """How many messages wait for each destination, the most first, of `most` destinations. Reads all that waits."""

    # operations on many messages

    @abstractmethod
    def begin_operation(self, operation: Operation, *, change: Change | None = None) -> None:
        """Keep `operation`, which is new, has no step behind it, and is RUNNING, and note `change`.

        It changes no message yet.
        """

    @abstractmethod
    def advance_operation(
        self, operation_id: str, examine: int = STEP, *, change: Change | None = None
    ) -> Operation | None:
        """One step: look at the next `examine` waiting messages, change those that match and that nobody has claimed.

        The step that ends the operation notes `change`, with all messages that its steps have changed.

        What matches is cancelled, or rescheduled as by `reschedule`. Step and progress are committed together, and the
        operation as it is now is returned; None: there is none of that id. One that has ended is returned as it is. Two
        callers take steps in turn. It never waits for a dispatcher: what one has counts as held.
        """

    @abstractmethod
    def end_operation(self, operation_id: str, *, change: Change | None = None) -> Operation | None:
        """Make a RUNNING operation ABANDONED, and note `change`; None: there is none of that id.

        One that has ended is returned as it is, and nothing is noted.
        """

    @abstractmethod
    def operation(self, operation_id: str) -> Operation | None:
        """The operation of that id; None: there is none."""

    @abstractmethod
    def operations(self, limit: int = 20) -> Sequence[Operation]:
        """The last ones that were begun, the newest first."""

    # destinations

    @abstractmethod
    def destinations(self) -> Sequence[Destination]:
        """Those that are paused, limited, or resuming, by name. One small read: dispatchers ask twice a second.

        A pause whose time is over, by the store's clock, shows as resuming, whether `unpark` has ended it yet or not.
        """

    @abstractmethod
    def pause(self, destination: str, *, by: str, until: datetime | None = None, change: Change | None = None) -> None:
        """Have every dispatcher keep messages for `destination` from now on, and note `change`.

        `until` (None: no end) replaces that of another pause. This call parks no due messages: `park` does, as do
        dispatchers with those that they fetch.
        """

    @abstractmethod
    def resume(self, destination: str, *, by: str, change: Change | None = None) -> bool:
        """Let messages for `destination` go, and note `change`: it is resuming, until `unpark` has shown them all.

        False: it was not paused, and nothing is noted. Messages that a limit had postponed ask for their allowance
        again, too.
        """

    @abstractmethod
    def limit_rate(self, destination: str, max_rate: float | None, *, by: str, change: Change | None = None) -> None:
        """Let at most `max_rate` messages a second go to `destination`, from all dispatchers, and note `change`.

        None: any number. If another limit has postponed messages, the destination is resuming until `unpark` has shown
        them.
        """

    @abstractmethod
    def park(self, until: datetime, at_most: int = STEP) -> int:
        """Park up to `at_most` messages of paused destinations whose next attempt is at or before `until`.

        Returns how many; 0: there are no more that nobody has claimed.
        """

    @abstractmethod
    def unpark(self, at_most: int = STEP, ahead: timedelta | None = None) -> int:
        """Show up to `at_most` parked messages of destinations that are not paused; returns how many.

        Then it shows what a limit had postponed, at destinations that are resuming, beyond the last time that
        `allowance` has given since; what has failed keeps its next attempt. `ahead`: how long before its next attempt
        dispatchers fetch a message. None: the caller does not know; such messages, and `resuming`, are left to them.

        Their next attempt is their due time again, or, if that is past, a later time that is. It also ends pauses whose
        time is over. 0: none is left that nobody has claimed, and nothing is resuming any more. Where nothing resumes,
        few are looked at in a call, and the next one goes on: only a destination whose pause was lost has such.
        """

    @abstractmethod
    def allowance(self, destination: str, wanted: int) -> Allowance:
        """How many of `wanted` messages may go to a limited destination now, in a transaction of its own.

        What is granted counts as gone. The messages of one second (one, at least) may go at once, and no more than
        `max_rate` each second after that, over all handles. The times for the others are as far apart, given to nobody
        else, and no further ahead than FURTHEST. Where there is no limit, all are granted. If the store's clock has
        stepped back behind the times that it gave before, the destination is resuming.
        """

    # failures

    @abstractmethod
    def count_failing(self, at_most: int) -> int:
        """How many waiting messages have failed before; counted up to `at_most`."""

    @abstractmethod
    def count_parked(self, at_most: int) -> int:
        """How many messages are parked; counted up to `at_most`."""

    # dispatchers

    @abstractmethod
    def heartbeat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
        """Record that a dispatcher lives, and add its activity since its last heartbeat, by minute.

        The store's clock says when the heartbeat was, in place of `record.heartbeat`.
        Records of dispatchers that died long ago, and activity from before ACTIVITY_KEPT, go meanwhile.
        """

    @abstractmethod
    def retire(self, dispatcher_id: str) -> None:
        """Say that a dispatcher has ended; nothing happens if it is not known."""

    @abstractmethod
    def dispatchers(self) -> Sequence[DispatcherRecord]:
        """Those that live, by name and id."""

    # ingresses; a store need not keep what they tell

    def heartbeat_of_ingress(self, record: IngressRecord) -> None:
        """Record that an ingress lives, at the time of the store's clock, in place of `record.heartbeat`.

        Records that `ingresses` does not tell of any more go at some time. The default keeps nothing.
        """

    def retire_ingress(self, ingress_id: str) -> None:
        """Say that an ingress has ended; nothing happens if it is not known. The default keeps nothing."""

    def ingresses(self) -> Sequence[IngressRecord]:
        """Those that live, and for each queue that has none any more the one that died last, for GONE_FOR.

        By queue and id. The default knows none.
        """
        return ()

    @abstractmethod
    def activity(self, since: datetime) -> Sequence[Activity]:
        """What all dispatchers did together in each minute from `since` on, in order; idle minutes are left out."""

    # who changed what

    @abstractmethod
    def changes(self, limit: int = 100, before: datetime | None = None) -> Sequence[AuditEntry]:
        """The last changes that were made, the newest first; `before`: from before that time only."""

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
