"""Records that an operable store takes and returns.

Operations, destinations and their limits, reports of dispatchers and ingresses, activity, changes and audit entries,
failed deliveries.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from delaystore.filters import MessageFilter, Shift
from delaystore.message import DelayedMessage, FailedAttempt, Position, unmarked
from delaystore.stores.documents import LatenessHistogram
from delaystore.text import limit_text, time_text

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
"""The least time by which a store tells two times apart."""
BUSIEST: Final = 50
"""The most destinations for which a dispatcher reports, in each minute, how many messages it delivered."""
ACTIVITY_KEPT: Final = timedelta(hours=25)
"""For how long the store keeps what dispatchers did in each minute."""


@dataclass(frozen=True, slots=True)
class Matching:
    """Messages that match a filter, counted among the next waiting ones.

    Attributes:
        count: How many they are.
        next_key: The position behind which to go on; None: that was the end.
        first_due: Their first due time, without marks; None: there are none, or it was not asked for.
        last_due: Their last one.

    """

    count: int
    next_key: Position | None
    first_due: datetime | None = None
    last_due: datetime | None = None

    @classmethod
    def of(cls, count: int, next_key: Position | None, due_times: Iterable[object] = ()) -> Self:
        """Make it of due times; values that a bad row holds in place of one are left out."""
        times = [time for time in due_times if isinstance(time, datetime)]
        return cls(count, next_key, min(times, default=None), max(times, default=None))

    def and_then(self, later: Self) -> Self:
        """Both together, to go on behind `later`."""
        times = (self.first_due, self.last_due, later.first_due, later.last_due)
        return self.of(self.count + later.count, later.next_key, times)


class OperationKind(StrEnum):
    """The change that an operation makes to each matching message."""

    CANCEL = "cancel"
    RESCHEDULE = "reschedule"


class OperationState(StrEnum):
    """The state of an operation."""

    RUNNING = "running"
    """It has not ended: a process works on it, or may resume it."""
    DONE = "done"
    ABANDONED = "abandoned"
    """It was ended early; its changes stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A change of all waiting messages that match a filter, in steps, in the order of message_ids.

    On PostgreSQL the cancel of a load also takes messages of the load that lie near the next one in the table.

    It is kept in the store. If it is interrupted, any process can resume it behind the last step that was committed,
    and no message is changed twice. A message that is stored while it runs may or may not be changed.

    Attributes:
        operation_id: Its id, made by the process that begins it.
        kind: The change that it makes to each message.
        wanted: The filter.
        by: Who began it.
        began: When, by the store's clock.
        due_time: The new due time, of a RESCHEDULE; the same as `began` if messages are sent now.
        shift: The span by which a RESCHEDULE moves each due time, in place of `due_time`.
        ended: When it was done or abandoned.
        state: Whether it runs.
        after: The message_id behind which the next step begins; None: no step was made yet, or the cancel of a load
            begins again.
        examined: Waiting messages that its steps have looked at: those of the filter's load, or with its id prefix, if
            it names one; otherwise all.
        changed: Messages that its steps have changed.
        held: Matching messages that were left alone: a dispatcher had claimed them, or `shift` would have moved their
            due time out of range. If a load is cancelled as a whole: messages of it that still wait after all steps.
        held_ids: Their ids, HELD_KEPT at most.

    """

    operation_id: str
    kind: OperationKind
    wanted: MessageFilter
    by: str
    began: datetime
    due_time: datetime | None = None
    shift: Shift | None = None
    ended: datetime | None = None
    state: OperationState = OperationState.RUNNING
    after: str | None = None
    examined: int = 0
    changed: int = 0
    held: int = 0
    held_ids: Sequence[str] = ()

    @property
    def action(self) -> "ChangeAction":
        """How the audit trail calls it: a reschedule to the time when it began sends messages now."""
        if self.kind is OperationKind.CANCEL:
            return ChangeAction.CANCEL
        return ChangeAction.SEND_NOW if self.due_time == self.began else ChangeAction.RESCHEDULE

    @property
    def cancelled_load(self) -> str | None:
        """The id of the load that it cancels as a whole; None: it does something else."""
        load_id = self.wanted.load
        is_whole = self.kind is OperationKind.CANCEL and self.wanted == MessageFilter(load=load_id)
        return load_id if is_whole else None

    @property
    def when(self) -> str:
        """The new due time or the shift, for people, with a space before it; nothing for a cancel."""
        if self.shift is not None:
            return f" {self.shift}"
        return "" if self.due_time is None else f" to {time_text(self.due_time)}"

    @property
    def resume_command(self) -> str:
        """The command that goes on with it."""
        return f"delaystore operations resume {self.operation_id}"


class LoadPhase(StrEnum):
    """How far a load is."""

    STAGING = "staging"
    """Its rows are being read, or made visible; none is."""
    ABANDONED = "abandoned"
    """Its process has died before it stored anything. Run it again, or let a clean-up remove its remains."""
    WAITING = "waiting"
    """Messages of it wait."""
    DONE = "done"
    """It was stored, and none of its messages waits any more."""
    CANCELLED = "cancelled"
    """It was cancelled as a whole. Messages that were being dispatched then may still wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load of files or of a DataFrame, or a stream with all its batches: all messages that it has stored.

    Attributes:
        load_id: Its id; of a stream the id of its query.
        is_stream: Whether it is a stream.
        state: How far it is.
        paused: Whether its messages are parked.
        paused_until: When it resumes on its own; None: never, or it is not paused.
        began: When its last run began, by the store's clock.
        finished: When its messages were stored last; None: they are not.
        stored: Messages that it has stored in all.
        rejected: Rows that could not be messages; None: it is of an earlier release.
        exact: Whether `waiting` is exact. False: it is a lower bound, and `delivered` is None.
        waiting: Messages that wait.
        delivered: Messages that were delivered.
        cancelled: Messages that were cancelled, singly or together.
        replaced: Messages in whose place a load has stored another one.
        failed: Messages that were moved to the error queue, without expired ones.
        expired: Messages that were not delivered because their latest delivery had passed.
        failing: Waiting messages that have failed before; None: a list does not count them.
        first_due: The first due time of waiting messages; None: none waits. In a list it is the first one with which
            messages of the load were stored.
        last_due: The last one, as `first_due`.
        cancelled_at: When it was cancelled as a whole; None: it was not.
        cancelled_by: Who cancelled it.

    """

    load_id: str
    is_stream: bool
    state: LoadPhase
    paused: bool = False
    paused_until: datetime | None = None
    began: datetime
    finished: datetime | None = None
    stored: int = 0
    rejected: int | None = None
    exact: bool = True
    waiting: int = 0
    delivered: int | None = 0
    cancelled: int = 0
    replaced: int = 0
    failed: int = 0
    expired: int = 0
    failing: int | None = 0
    first_due: datetime | None = None
    last_due: datetime | None = None
    cancelled_at: datetime | None = None
    cancelled_by: str | None = None


class Ending(StrEnum):
    """How a message has left the store."""

    DELIVERED = "delivered"
    """At its destination, confirmed."""
    HANDED_OVER = "handed-over"
    """In the native delay of the transport, confirmed, before it was due."""
    MIGRATED = "migrated"
    """At the target of a migration."""
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    """Another message has taken its place."""
    FAILED = "failed"
    """In the error queue, after its last failed attempt."""
    EXPIRED = "expired"
    """Dropped, or in the error queue, because its latest delivery had passed."""


REMOVED: Final = (Ending.CANCELLED, Ending.REPLACED, Ending.FAILED, Ending.EXPIRED)
"""How messages leave without a delivery; loads count these."""
DELIVERED: Final = (Ending.DELIVERED, Ending.HANDED_OVER)
"""The endings of messages that RabbitMQ has confirmed."""
ATTEMPTED: Final = (Ending.DELIVERED, Ending.FAILED)
"""The endings that come with an attempt which the message's failures do not count yet."""


_PAUSED_LOAD: Final = "\x01load "
"""Followed by the load's number: the name of its pause among destinations. No destination has a control character."""


def name_of_load(number: int) -> str:
    """The name under which a load is paused among destinations."""
    return f"{_PAUSED_LOAD}{number}"


def number_of_load(name: str) -> int | None:
    """The number of the load that is paused under `name`; None: a destination is."""
    return int(name.removeprefix(_PAUSED_LOAD)) if name.startswith(_PAUSED_LOAD) else None


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

    A store can thus tell postponed messages from failed ones, and finds them by the index of next attempts.
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
        makes_entries: Whether messages that it delivers get entries in the history; False: it is of an earlier release,
            or may not read the setting.

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
    makes_entries: bool = False


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
        moved_to_error_queue: Messages moved to the error queue, without expired ones.
        expired: Messages whose latest delivery had passed, moved to the error queue or dropped.
        deferred: Messages deferred because their destination was suspended.
        lateness: How late messages were, of all messages that were delivered when they were due.
        by_destination: Messages delivered, by destination: of the BUSIEST ones at least.

    """

    minute: datetime
    delivered: int = 0
    failed: int = 0
    moved_to_error_queue: int = 0
    expired: int = 0
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
            expired=self.expired + other.expired,
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
    """A publisher, by a message that an ingress takes in."""
    LOAD = "load"
    """A load of files or DataFrames by Spark."""
    CELERY = "celery"
    DRAMATIQ = "dramatiq"
    DISPATCHER = "dispatcher"
    """A dispatcher, which drops messages that have expired."""

    @property
    def is_operators(self) -> bool:
        """Whether operators use it; the others are those of programs, of dispatchers, and of publishers that an
        ingress serves.
        """
        return self not in (Way.PROGRAM, Way.INGRESS, Way.CELERY, Way.DRAMATIQ, Way.DISPATCHER)


class ChangeAction(StrEnum):
    """Changes of waiting messages, destinations and schedules. Changes of the error queue have other actions."""

    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    SEND_NOW = "send-now"
    REPLACE = "replace"
    """Another message takes the place of the one that has its key or its message_id."""
    EXPIRE = "expire"
    """Drop messages whose latest delivery has passed."""
    ABANDON = "abandon"
    """End an operation on many messages before it is done."""
    PAUSE = "pause"
    RESUME = "resume"
    LIMIT = "limit"
    PUT = "put"
    """Create or change a schedule."""
    DELETE = "delete"
    SKIP = "skip"
    TRIGGER = "trigger"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change that was made. All changes of messages have the same form, made by any way.

    Attributes:
        at: When, by the store's clock.
        by: Who made it.
        action: One word, such as cancel; see `ChangeAction`.
        about: The change in words, made of the fields below.
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
    """A message as it was before a change, for the audit trail.

    `destination` and `due_time` are None if it was not seen before it was changed: a dispatcher had just let go of it.
    `due_time`: without marks, see `delaystore.message.unmarked`.
    """

    message_id: str
    destination: str | None = None
    due_time: datetime | None = None
    key: str | None = None

    @classmethod
    def of(cls, message: DelayedMessage) -> Self:
        """Make it of `message`."""
        return cls(
            message_id=message.message_id,
            destination=message.destination,
            due_time=unmarked(message),
            key=message.key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Who changes messages or a destination, by which way, and how: the store notes it in the change's transaction.

    Attributes:
        by: Who makes it.
        way: By which way.
        action: The kind of change.
        new_due_time: Of a cancel for another message of the same id: when that one, which the same transaction stores,
            is due. None: there is none.
        shift: The span by which the due time of one message is moved; None: it is not moved by a span.

    """

    by: str
    way: Way
    action: ChangeAction
    new_due_time: datetime | None = None
    shift: Shift | None = None

    def of_message(
        self, at: datetime, before: MessageBefore, due_time: datetime | None = None, new_id: str | None = None
    ) -> AuditEntry:
        """The entry of a change of one message.

        Args:
            at: When it is changed, by the store's clock.
            before: The message as it was.
            due_time: Its new due time; None: it is cancelled, and `new_due_time` belongs to the message in its place.
            new_id: The id of the message that takes its place; None: none does.

        """
        due_time = self.new_due_time if due_time is None else due_time
        place = "" if new_id in (None, before.message_id) else f" by {new_id}"
        span = "" if self.shift is None else f" {self.shift}"
        since = "" if before.due_time is None else f" from {time_text(before.due_time)}"
        to = "" if due_time is None else f" to {time_text(due_time)}"
        return self._entry(
            at,
            f"message {before.message_id}{place}{span}{since}{to}",
            1,
            message_id=before.message_id,
            key=before.key,
            destination=before.destination,
            old_due_time=before.due_time,
            new_due_time=due_time,
        )

    def of_many(self, at: datetime, about: str, count: int) -> AuditEntry:
        """The entry of a change of `count` messages, which are `about` in words, in one transaction."""
        return self._entry(at, about, count)

    def of_expired(self, at: datetime, first: DelayedMessage, count: int) -> AuditEntry:
        """The entry of `count` messages that one transaction drops because their latest delivery has passed."""
        if count == 1:
            return self.of_message(at, MessageBefore.of(first))
        return self.of_many(at, f"{count} messages past their latest delivery, the first {first.message_id}", count)

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

    def of_load(self, at: datetime, load_id: str, until: datetime | None = None) -> AuditEntry:
        """The entry of a load that is paused, perhaps until a time, or resumed."""
        return self._entry(at, f"load {load_id}" + ("" if until is None else f" until {time_text(until)}"), 0)

    def of_schedule(self, at: datetime, name: str, detail: str = "") -> AuditEntry:
        """The entry of a schedule that is changed; `detail`: more words, with a space before them."""
        return self._entry(at, f"schedule {name}{detail}", 0)

    def of_operation(self, at: datetime, operation: Operation) -> AuditEntry:
        """The entry of an operation on many messages: as it begins, when it has changed none yet, and as it ends."""
        begun = ": begun" if operation.state is OperationState.RUNNING else ""
        return self._entry(
            at,
            f"{operation.wanted}{operation.when} (operation {operation.operation_id}){begun}",
            operation.changed,
            wanted=operation.wanted,
            operation_id=operation.operation_id,
            new_due_time=operation.due_time,
        )

    def _entry(self, at: datetime, about: str, count: int, **details: Any) -> AuditEntry:
        return AuditEntry(
            at=at, by=self.by, action=self.action.value, about=about, count=count, way=self.way.value, **details
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedDelivery:
    """A claimed message whose attempt failed, why, and when the store shows it again."""

    message: DelayedMessage
    next_attempt: datetime
    attempt: FailedAttempt
