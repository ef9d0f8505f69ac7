"""Every change of single waiting messages: cancel, reschedule, send now; by id or by key.

`DelayedDelivery`, transactions of callers, the command line, the web page, the JSON API, the control queue, ingresses
and integrations make their changes here, one function for each. The store writes the audit entry in the transaction
that makes the change, and wakes the dispatcher of this process after it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, Self

from typing_extensions import override

from delaystore.errors import ConfigurationError, InvalidMessageError, MessageBeingDispatchedError
from delaystore.filters import Shift
from delaystore.message import DelayedMessage, KeyRule, OnKey
from delaystore.processes import user_at_host
from delaystore.settings import Audit
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.history import HistoryEntry
from delaystore.stores.operable import AuditedKeyedStore, AuditedStore
from delaystore.stores.records import Change, ChangeAction, DispatcherRecord, Operation, Way
from delaystore.stores.shared import answer_about, deduplicating, keyed
from delaystore.text import duration_text

OperationListener = Callable[[Operation], object]
"""Called after each step with the operation as it is. Its exception ends the run, which can be resumed."""


class DueTime(Protocol):
    """The time of `delay` and `at`, by the store's clock."""

    def __call__(self, delay: timedelta | float | None, at: datetime | None, /) -> datetime:
        """The due time; raises InvalidMessageError unless exactly one is given, and can be."""
        ...


class ChangeableStore(Protocol):
    """A store, or a transaction of one, whose waiting messages can be changed."""

    def get(self, message_id: str) -> DelayedMessage | None:
        """The waiting message, claimed or not."""
        ...

    def cancel(self, message_id: str) -> ManagementOutcome:
        """Delete a waiting message."""
        ...

    def reschedule(self, message_id: str, due_time: datetime) -> ManagementOutcome:
        """Give a waiting message a new due time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who makes changes, by which way, and whether these are noted in the store's audit trail.

    Attributes:
        by: Who makes them.
        way: By which way.
        notes_all: Whether the endpoint notes the changes of programs, too (`audit="all"`).

    """

    by: str = field(default_factory=user_at_host)
    way: Way = Way.PROGRAM
    notes_all: bool = False

    @property
    def is_noted(self) -> bool:
        """Whether the changes are noted: always by an operator's way, by another one if the endpoint notes all."""
        return self.notes_all or self.way.is_operators

    def change(
        self, action: ChangeAction, new_due_time: datetime | None = None, shift: Shift | None = None
    ) -> Change | None:
        """The audit entry of a change; None: nothing is noted."""
        if not self.is_noted:
            return None
        return Change(by=self.by, way=self.way, action=action, new_due_time=new_due_time, shift=shift)

    def replacement(self, rule: KeyRule) -> Change | None:
        """The audit entry of a message that is replaced by its key; None: nothing is noted, or `rule` keeps it."""
        replaces = rule.on_key in (OnKey.REPLACE, OnKey.DEBOUNCE)
        return self.change(ChangeAction.REPLACE) if replaces else None

    def acting(self, by: str | None = None, way: Way | None = None) -> Self:
        """The same in another name, or by another way."""
        return replace(self, by=by or self.by, way=way or self.way)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditKept:
    """What dispatchers report of the audit trail.

    Attributes:
        audit: Their settings of that name, each once; empty: no dispatcher runs that says so.
        retention: The shortest time for which they keep changes.

    """

    audit: Sequence[str] = ()
    retention: timedelta | None = None

    @classmethod
    def of(cls, dispatchers: Sequence[DispatcherRecord]) -> Self:
        """The common settings of these dispatchers."""
        audit = sorted({each.audit for each in dispatchers if each.audit is not None})
        retention = min((each.retention for each in dispatchers if each.retention is not None), default=None)
        return cls(audit=audit, retention=retention)

    def __str__(self) -> str:
        if self.retention is None:
            return "No dispatcher reports its audit setting. By default changes of operators are kept for 90 days."
        whose = "operators and programs" if Audit.ALL in self.audit else "operators (audit=operators)"
        if len(self.audit) > 1:
            whose = "operators, and of programs with audit=all (dispatchers differ)"
        return f"Noted are the changes of {whose}; they are kept for {duration_text(self.retention)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """The result of a request.

    Attributes:
        outcome: The result.
        message_id: The id of the message that was found; None: none waits.
        message: The message that was looked up, else None.
        due_time: The new due time of a message that was rescheduled, else None.
        history: Of a look-up, the entries of the history; None: they were not looked up.

    """

    outcome: ManagementOutcome
    message_id: str | None = None
    message: DelayedMessage | None = None
    due_time: datetime | None = None
    history: Sequence[HistoryEntry] | None = None


MOST_BYTES: Final = 16 * 2**20
"""Bytes of bodies that requests of one transaction look up, by default."""
NOTHING_FOUND: Final = RequestResult(outcome=ManagementOutcome.NOT_FOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequest(ABC):
    """A request about one message. Exactly one of `message_id` and `key` is given.

    Attributes:
        message_id: The message's id.
        key: The message's key.
        by: Who asks; None: the actor of the call.

    """

    message_id: str | None = None
    key: str | None = None
    by: str | None = None

    def do(self, store: ChangeableStore, actor: Actor) -> RequestResult:
        """Do it in the transaction of a store.

        Args:
            store: The store, or its transaction.
            actor: Who asks, and whether the change is noted.

        Raises:
            InvalidMessageError: A message_id, key or due time is invalid.
            ConfigurationError: The store does not support keys, or keeps no audit trail for the entry.
            StoreError: The store fails.

        """
        asking = actor if self.by is None else actor.acting(self.by)
        return answer_about(
            store,
            lambda found: self._do(store, found, asking),
            self.message_id,
            self.key,
            NOTHING_FOUND,
            changing=self.changes,
        )

    @property
    def changes(self) -> bool:
        """Whether it changes the message that it finds."""
        return True

    @abstractmethod
    def _do(self, store: ChangeableStore, message_id: str, actor: Actor) -> RequestResult: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest(MessageRequest):
    """Delete a waiting message, unless a dispatcher has claimed it.

    Attributes:
        replaced_by: The message that the same transaction stores in its place, under its id; None: there is none.

    """

    replaced_by: DelayedMessage | None = None

    @override
    def _do(self, store: ChangeableStore, message_id: str, actor: Actor) -> RequestResult:
        if self.replaced_by is None:
            change = actor.change(ChangeAction.CANCEL)
        else:
            change = actor.change(ChangeAction.REPLACE, self.replaced_by.due_time)
        if change is None:
            outcome = store.cancel(message_id)
        else:
            outcome = audited(store, change.way).cancel(message_id, change=change)
        return _found(outcome, None, message_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RescheduleRequest(MessageRequest):
    """Give a waiting message a new due time and fresh retries, unless a dispatcher has claimed it.

    Attributes:
        at: The new due time (aware), or the span by which the due time that it has is moved.
        action: As the audit trail has it; see `reschedule_action`.

    """

    at: datetime | Shift
    action: ChangeAction = ChangeAction.RESCHEDULE

    @override
    def _do(self, store: ChangeableStore, message_id: str, actor: Actor) -> RequestResult:
        if isinstance(self.at, Shift):
            if not isinstance(store, AuditedStore):
                raise ConfigurationError(
                    f"{type(store).__name__} cannot move a due time by a span; use a SQL store, or give delay or at"
                )
            change = actor.change(self.action, shift=self.at)
            return _found(*store.shift(message_id, self.at, change=change), message_id)
        change = actor.change(self.action)
        if change is None:
            outcome = store.reschedule(message_id, self.at)
        else:
            outcome = audited(store, change.way).reschedule(message_id, self.at, change=change)
        return _found(outcome, self.at, message_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpRequest(MessageRequest):
    """Look a waiting message up, claimed or not."""

    @property
    @override
    def changes(self) -> bool:
        return False

    @override
    def _do(self, store: ChangeableStore, message_id: str, actor: Actor) -> RequestResult:
        message = store.get(message_id)
        if message is None:
            return NOTHING_FOUND
        return RequestResult(outcome=ManagementOutcome.DONE, message_id=message_id, message=message)


_LEAST_DELAY: Final = 5e-7
"""Seconds; less is no delay on a clock of microseconds."""


def reschedule_action(delay: timedelta | float | None) -> ChangeAction:
    """How the audit trail calls a reschedule by `delay`: with none at all it sends the message now."""
    if delay is None or isinstance(delay, timedelta):
        return ChangeAction.RESCHEDULE if delay != timedelta(0) else ChangeAction.SEND_NOW
    return ChangeAction.SEND_NOW if abs(delay) < _LEAST_DELAY else ChangeAction.RESCHEDULE


def new_due_time(
    due_time: DueTime,
    delay: timedelta | float | None,
    at: datetime | None,
    by: timedelta | float | None,
    time_zone: str | None,
) -> datetime | Shift:
    """The new due time that the arguments of `reschedule` mean, or the span by which due times are moved.

    Args:
        due_time: The time of `delay` and `at`.
        delay: A timedelta or seconds from now.
        at: An aware datetime.
        by: The span, a timedelta or seconds; a negative one moves due times to an earlier time.
        time_zone: The time zone in which days of `by` are days of the calendar; None: a day is 24 hours.

    Raises:
        InvalidMessageError: Not exactly one of `delay`, `at` and `by` is given, or it can be no due time or span.
        ConfigurationError: The time zone is unknown.

    """
    if sum(each is not None for each in (delay, at, by)) != 1:
        raise InvalidMessageError("give exactly one of delay, at (with a time zone) and by")
    if by is not None:
        return Shift.of(by, time_zone)
    if time_zone is not None:
        raise InvalidMessageError("time_zone needs by; leave it out")
    return due_time(delay, at)


def _found(outcome: ManagementOutcome, due_time: datetime | None, message_id: str) -> RequestResult:
    if outcome is ManagementOutcome.NOT_FOUND:
        return NOTHING_FOUND
    if outcome is not ManagementOutcome.DONE:
        return RequestResult(outcome=outcome, message_id=message_id)
    return RequestResult(outcome=outcome, message_id=message_id, due_time=due_time)


def audited(store: object, way: Way) -> AuditedStore:
    """`store`, which must note a change by that way; raises ConfigurationError."""
    if not isinstance(store, AuditedStore):
        raise _no_audit_trail(store, way)
    return store


def audited_keyed(store: object, way: Way) -> AuditedKeyedStore:
    """`store`, which must know keys and note replaced messages of a key; raises ConfigurationError."""
    keyed(store)
    if not isinstance(store, AuditedKeyedStore):
        raise _no_audit_trail(store, way)
    return store


def _no_audit_trail(store: object, way: Way) -> ConfigurationError:
    remedy = (
        "use a SQL store, or cancel and reschedule in your program"
        if way.is_operators
        else "use a SQL store, or audit='operators'"
    )
    return ConfigurationError(
        f"{type(store).__name__} keeps no audit trail, in which this change must be noted; {remedy}"
    )


class MessageChanges:
    """Changes of single messages by one actor.

    Args:
        store: Returns the store, set up, or the caller's transaction.
        actor: Who makes the changes, and whether they are noted.
        due_time: The time of `delay` and `at`.
        call: A call to the store for a purpose, which is ended when it takes too long.
        changed: Called with the new due time of rescheduled messages, to wake the dispatcher.

    """

    def __init__(
        self,
        store: Callable[[], Any],
        actor: Actor,
        due_time: DueTime,
        call: Callable[[str], AbstractContextManager[object]],
        changed: Callable[[datetime], object],
    ) -> None:
        self._store = store
        self.actor: Final = actor
        self._due_time = due_time
        self._call = call
        self._changed = changed

    def acting(self, by: str | None = None, way: Way | None = None) -> "MessageChanges":
        """Return the same in another name, or by another way.

        Args:
            by: In whose name changes are noted; None: as before.
            way: By which way they are asked for; None: as before.

        Returns:
            The changes in that name.

        """
        actor = self.actor.acting(by, way)
        return MessageChanges(self._store, actor, self._due_time, self._call, self._changed)

    def cancel(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Delete a waiting message, as `DelayedDelivery.cancel`.

        Args:
            message_id: Its id; or else give `key`.
            key: Its key; or else give `message_id`.

        Returns:
            DONE, NOT_FOUND, or BEING_DISPATCHED: a dispatcher has claimed it.

        """
        return self._do("cancelling a message", CancelRequest(message_id=message_id, key=key))

    def reschedule(
        self,
        message_id: str | None = None,
        *,
        key: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        by: timedelta | float | None = None,
        time_zone: str | None = None,
    ) -> ManagementOutcome:
        """Give a waiting message a new due time and fresh retries, as `DelayedDelivery.reschedule`."""
        store, action = self._store(), reschedule_action(delay)
        new = new_due_time(self._due_time, delay, at, by, time_zone)
        request = RescheduleRequest(message_id=message_id, key=key, at=new, action=action)
        return self._do("rescheduling a message", request, store)

    def send_now(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Make a waiting message due now, unless a dispatcher has claimed it; it gets fresh retries."""
        return self.reschedule(message_id, key=key, delay=0)

    def replace_many(self, messages: Sequence[DelayedMessage], replaced: Collection[str], *, new: bool = False) -> None:
        """Store messages, some of them in the place of waiting ones, in one transaction.

        If the process dies before the commit, the earlier messages wait; after it, the new ones. A store without
        transactions cancels the earlier ones first, one by one, each with its entry: until this returns, the caller
        must have the new ones elsewhere.

        Args:
            messages: The new messages, at least one, each with an id of its own.
            replaced: Ids of messages that take the place of the waiting message of their id, if one waits. The entry of
                each is the one of `send` with `on_key="replace"`.
            new: Whether to refuse messages that were delivered.

        Raises:
            MessageDeliveredError: `new`, and a message of one of their ids was delivered.
            DuplicateMessageError: A message waits under another of their ids.
            MessageBeingDispatchedError: A dispatcher has claimed a message of one of their ids.
            StoreError: The store fails. In all of these cases a store with transactions has changed nothing.

        """
        with self._transaction("replacing messages") as bound:
            claimed: list[str] = []
            for message in sorted(messages, key=lambda message: message.message_id):  # all lock them in one order
                if message.message_id not in replaced:
                    continue
                request = CancelRequest(message_id=message.message_id, replaced_by=message)
                if request.do(bound, self.actor).outcome is ManagementOutcome.BEING_DISPATCHED:
                    claimed.append(message.message_id)
            if claimed:
                raise MessageBeingDispatchedError(claimed)
            if new:
                deduplicating(bound).store_new(messages)
            else:
                bound.store_many(messages)
        self._changed(min(message.next_attempt for message in messages))

    def do_all(self, requests: Sequence[MessageRequest], most_bytes: int = MOST_BYTES) -> Sequence[RequestResult]:
        """Do the first of `requests` in one transaction: all, unless more than `most_bytes` bytes were looked up.

        Each change has its own entry, which is kept with it: a store without transactions does the requests one by one,
        and killed between two of them it has no change without its entry.
        """
        results: list[RequestResult] = []
        size = 0
        with self._transaction("doing what was asked about messages") as bound:
            for request in requests:
                result = request.do(bound, self.actor)
                results.append(result)
                size += 0 if result.message is None else len(result.message.body)
                if size >= most_bytes:
                    break
        due_times = [result.due_time for result in results if result.due_time is not None]
        if due_times:
            self._changed(min(due_times))
        return results

    @contextmanager
    def _transaction(self, purpose: str) -> Iterator[Any]:
        """A transaction of the store; the store itself, where its transactions change no waiting messages."""
        store = self._store()
        with self._call(purpose), store.transaction() as transaction:
            yield transaction if isinstance(transaction, AuditedStore) else store

    def _do(self, purpose: str, request: MessageRequest, store: Any = None) -> ManagementOutcome:
        store = store or self._store()
        with self._call(purpose):
            result = request.do(store, self.actor)
        if result.due_time is not None:
            self._changed(result.due_time)
        return result.outcome
