"""Sending a message, keys included, on its own and in the caller's transaction."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from typing_extensions import override

from delaystore.dispatcher.observer import GuardedObserver, Sending
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import (
    NO_BODY,
    NOTHING,
    DelayedMessage,
    IfDelivered,
    KeyRule,
    OnKey,
    check_key,
    due_after,
    json_content,
    latest_delivery_of,
    new_message_id,
)
from delaystore.operations.changes import Actor, MessageChanges, audited_keyed
from delaystore.processes import actor_name
from delaystore.schedules.service import ScheduleAccess, Schedules
from delaystore.stores.abc import REJECT, KeyedDelayedMessageStore, ManagementOutcome
from delaystore.stores.operable import AuditedKeyedStore
from delaystore.stores.records import Way
from delaystore.stores.schedules import schedule_rows
from delaystore.stores.shared import answer_about, deduplicating, keyed
from delaystore.transports.abc import Transport

Stamp = Callable[[DelayedMessage], DelayedMessage]
"""Makes of a checked message the one to store, perhaps with more headers."""
_NOT_FOLLOWED: Final[AbstractContextManager[None]] = nullcontext()


class Earliest:
    """The earliest of the times noted; None before the first."""

    __slots__ = ("time",)

    def __init__(self) -> None:
        self.time: datetime | None = None

    def note(self, time: datetime) -> None:
        """Keep `time` if it is earlier."""
        if self.time is None or time < self.time:
            self.time = time


class MessageFactory:
    """Makes messages, and refuses messages that no transport could carry, while the caller can still act."""

    def __init__(
        self,
        now: Callable[[], datetime],
        transport: Transport | None,
        max_body_bytes: int,
        observer: GuardedObserver | None = None,
        *,
        keeps_not_after: bool = True,
    ) -> None:
        self._keeps_not_after = keeps_not_after
        self._now = now
        self._observer = observer
        self._transport = transport
        self._check = None if transport is None else transport.check
        self._max_body_bytes = max_body_bytes

    def by(self, now: Callable[[], datetime]) -> "MessageFactory":
        """The same, by another clock."""
        keeps = self._keeps_not_after
        return MessageFactory(now, self._transport, self._max_body_bytes, self._observer, keeps_not_after=keeps)

    def due_time(self, delay: timedelta | float | None, at: datetime | None) -> datetime:
        """`at`, or `delay` from now on the store's clock; raises InvalidMessageError unless exactly one is given."""
        if delay is None and at is not None:
            return at
        if delay is not None and at is None:
            return due_after(self._now(), delay)
        raise InvalidMessageError("give exactly one of delay= (a timedelta or seconds) and at= (an aware datetime)")

    def check(self, message: DelayedMessage) -> None:
        """Raise InvalidMessageError for a body over max_body_bytes, or content that the transport cannot carry.

        ConfigurationError: it has a latest delivery, which the store would not keep.
        """
        if len(message.body) > self._max_body_bytes:
            raise InvalidMessageError(
                f"the body of message {message.message_id} has {len(message.body)} bytes; "
                f"max_body_bytes allows {self._max_body_bytes}: send a smaller body, or raise the setting"
            )
        if message.not_after is not None and not self._keeps_not_after:
            raise ConfigurationError(
                f"message {message.message_id} cannot be stored with not_after or max_late, because this store keeps "
                "no latest delivery; leave it out, or use another store, such as SqlDelayedMessageStore"
            )
        if self._check is not None:
            self._check(message)

    def followed(self, message: DelayedMessage | None = None) -> AbstractContextManager[Stamp | None]:
        """A block that is one call of `send`, of `message`, or (None) of `send_many`.

        The block gets a function that turns each checked message into the one to store; None: no observer follows,
        and each is stored as it is.
        """
        observer = self._observer
        sending = None if observer is None or not observer.hears_of_sending else observer.send_begins(message)
        return _NOT_FOLLOWED if sending is None else self._followed(sending)

    @contextmanager
    def _followed(self, sending: Sending) -> Iterator[Stamp]:
        try:
            yield partial(self._stamped, sending)
        except BaseException as error:
            sending.ended(error)
            raise
        sending.ended(None)

    def _stamped(self, sending: Sending, message: DelayedMessage) -> DelayedMessage:
        stamped = sending.stamped(message)
        try:
            if stamped is not message:
                self.check(stamped)
        except InvalidMessageError:  # there is no room for another header: the message comes first
            return message
        return stamped

    def checked(
        self, messages: Iterable[DelayedMessage], earliest: Earliest, stamp: Stamp | None
    ) -> Iterator[DelayedMessage]:
        """Each of `messages`, checked and stamped when its turn comes; `earliest` notes their next attempts."""
        for message in messages:
            if not isinstance(message, DelayedMessage):
                raise InvalidMessageError(f"send_many takes DelayedMessages, not a {type(message).__name__}")
            self.check(message)
            earliest.note(message.next_attempt)
            yield message if stamp is None else stamp(message)


class Sender(ABC):
    """Makes a message of the arguments of `send`; subclasses store it."""

    _factory: MessageFactory

    def send(
        self,
        destination: str,
        body: bytes | None = None,
        *,
        json: Any = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        message_id: str | None = None,
        key: str | None = None,
        on_key: OnKey | str | None = None,
        max_wait: timedelta | float | None = None,
        not_after: datetime | None = None,
        max_late: timedelta | float | None = None,
        if_delivered: IfDelivered | str = IfDelivered.SEND,
    ) -> str:
        """Store a message until it is due.

        It is durable once this returns; in your own transaction, once that is committed. With `native` the broker or
        the store has it, and an id that already waits in the broker is not noticed.

        Args:
            destination: Where it goes when it is due: a queue, or an address of the transport.
            body: Its content; or else give `json`.
            json: A value whose JSON, in UTF-8, is the body; not None. `content_type` is `application/json` then,
                unless `properties` name another.
            delay: When it is due: a timedelta or seconds from now, also in your own transaction; or else give `at`.
            at: When it is due: an aware datetime; a time in the past means at once.
            headers: Values that the consumer gets beside the body.
            properties: Properties of the transport, such as AMQP's `content_type`.
            message_id: Its id; None: a fresh one. With your own id you can send again after a failure.
            key: At most one message with this key waits. A message with a key always goes to the store.
            on_key: If another message with the key waits: `reject` (the default) raises DuplicateKeyError; `keep`
                leaves the other; `replace` puts this one in its place; `debounce` replaces it too, but due no later
                than `max_wait` after the first of them was sent.
            max_wait: Of `debounce`: a timedelta or seconds; None: no bound.
            not_after: Its latest delivery, an aware datetime not before its due time: later, it expires, as the
                setting `on_expired` says. None: it is delivered however late.
            max_late: The same as a timedelta or seconds after its due time; give at most one of the two.
            if_delivered: If a message with this id was delivered before, by the history: `send` (the default) delivers
                this one too; `reject` raises MessageDeliveredError. In your own transaction under REPEATABLE READ,
                deliveries since its first statement may not be noticed.

        Returns:
            The message_id of the waiting message: with `keep` perhaps the other message's.

        Raises:
            InvalidMessageError: It cannot be carried, or the arguments contradict each other.
            DuplicateMessageError: A message with this id waits in the store already.
            MessageDeliveredError: A message with this id was delivered, and `if_delivered` is `reject`.
            MessageBeingDispatchedError: A dispatcher has the message with this id, and has not settled it within 5 s:
                this one is not stored, send it again.
            DuplicateKeyError: A message with this key waits already, and `on_key` is `reject`.
            KeyInUseError: A dispatcher has the message with this key, and has not settled it within 5 s: this one is
                not stored, send it again.
            ConfigurationError: The store does not support keys, or keeps no latest delivery, or `if_delivered` is
                `reject` and no history is kept, or with `native`.
            DurabilityUnknownError: It is stored, but perhaps not on PostgreSQL's synchronous standby.
            StoreError: The store fails; the message may be stored nevertheless. Send again with the same message_id.

        """
        rule = rule_of(key, on_key, max_wait)
        new = if_delivered is not IfDelivered.SEND and IfDelivered.rejects(if_delivered)
        if json is not None:
            body, properties = json_content(body, json, properties)
        elif body is None:
            raise InvalidMessageError(NO_BODY)
        self.prepare()
        due_time = self._factory.due_time(delay, at)
        message = DelayedMessage(
            message_id=new_message_id() if message_id is None else message_id,
            destination=destination,
            due_time=due_time,
            body=body,
            headers=NOTHING if headers is None else headers,
            properties=NOTHING if properties is None else properties,
            key=key,
            not_after=latest_delivery_of(due_time, not_after, max_late),
        )
        self._factory.check(message)
        with self._factory.followed(message) as stamp:
            if stamp is not None:
                message = stamp(message)
            if rule is not None or new:
                return self._keep_by_rule(message, rule or REJECT, new=new)
            self._keep(message)
        return message.message_id

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Called before each message."""

    @abstractmethod
    def _keep(self, message: DelayedMessage) -> None:
        """Store a checked message, or send it natively. Raises StoreError."""

    @abstractmethod
    def _keep_by_rule(self, message: DelayedMessage, rule: KeyRule, *, new: bool) -> str:
        """Store a checked message by the rule of its key, if it has one; returns the message_id of the one that waits.

        `new`: refuse a message that was delivered. Raises StoreError.
        """


def rule_of(key: str | None, on_key: OnKey | str | None, max_wait: timedelta | float | None) -> KeyRule | None:
    """The rule of `send`'s arguments; None: there is no key. Raises InvalidMessageError for arguments that
    contradict each other.
    """
    if key is not None:
        check_key(key)
        return KeyRule.of(on_key, max_wait)
    if on_key is not None or max_wait is not None:
        raise InvalidMessageError("on_key and max_wait need key=; give the message a key, or leave them out")
    return None


class BatchStore(Protocol):
    """A store of many messages, on its own or in the caller's transaction."""

    def store_many(self, messages: Iterable[DelayedMessage]) -> int:
        """Keep all of `messages`, or none."""
        ...


def store_by_rule(store: object, message: DelayedMessage, rule: KeyRule, actor: Actor, *, new: bool) -> str:
    """Store a message by the rule of its key, and note if it replaces another; returns the id that waits.

    `new`: refuse a message that was delivered; otherwise it has a key. Raises ConfigurationError where `store` does not
    support keys, or keeps no audit trail for the entry, or no history.
    """
    if new:
        return deduplicating(store).store_new([message], rule, change=actor.replacement(rule))[message.message_id]
    knowing, change = keyed(store), actor.replacement(rule)
    if change is None:
        return knowing.store_keyed(message, rule)
    return audited_keyed(store, change.way).store_keyed(message, rule, change=change)


def store_many(
    store: BatchStore, messages: Iterable[DelayedMessage], rule: KeyRule, actor: Actor, *, new: bool = False
) -> int:
    """Store all of `messages`, those with a key by `rule`, and note each that is replaced.

    `new`: refuse messages that were delivered. Returns how many were stored. Raises ConfigurationError for a message
    with a key where `store` knows none, or keeps no audit trail for the entry; and where it keeps no history for `new`.
    """
    change = actor.replacement(rule)
    if new:
        stored = deduplicating(store).store_new(messages, rule, change=change)
        return sum(own == waiting for own, waiting in stored.items())
    if change is not None:
        if isinstance(store, AuditedKeyedStore):
            return store.store_many(messages, rule, change=change)
        return store.store_many(_checked(messages, store, partial(audited_keyed, way=change.way)))
    if isinstance(store, KeyedDelayedMessageStore):
        return store.store_many(messages, rule)
    return store.store_many(_checked(messages, store, keyed))


def _checked(
    messages: Iterable[DelayedMessage], store: object, check: Callable[[object], object]
) -> Iterator[DelayedMessage]:
    """Each of `messages`; `check` refuses a store for those with a key."""
    for message in messages:
        if message.key is not None:
            check(store)
        yield message


class EnlistedStore(Protocol):
    """The interface of a store in the caller's transaction, as of a ManagedDelayedMessageStore.

    One that knows keys is a KeyedDelayedMessageStore, too.
    """

    def now(self) -> datetime:
        """The store's clock, asked in that transaction."""
        ...

    def store(self, message: DelayedMessage) -> None:
        """Keep `message` if the transaction is committed."""
        ...

    def store_many(self, messages: Iterable[DelayedMessage]) -> int:
        """Keep all of `messages`, or none."""
        ...

    def get(self, message_id: str) -> DelayedMessage | None:
        """The waiting message as the transaction sees it."""
        ...

    def cancel(self, message_id: str) -> ManagementOutcome:
        """Delete a waiting message if the transaction is committed."""
        ...

    def reschedule(self, message_id: str, due_time: datetime) -> ManagementOutcome:
        """Give a waiting message a new due time if the transaction is committed."""
        ...


@runtime_checkable
class EnlistableStore(Protocol):
    """A store that can write in the caller's transaction."""

    def enlist(self, target: Any, on_end: Callable[[], None] | None = None, *, set_up: bool = False) -> EnlistedStore:
        """The store's interface in the transaction of `target`.

        `on_end` is called after its end, at least after a commit, where `target` tells of that. `set_up`: first make
        the tables if they are missing, though not in that transaction.
        """
        ...


class EnlistedDelivery(Sender):
    """Sends and changes messages in your transaction: a rollback undoes all of it. Made by `DelayedDelivery.enlist`.

    Belongs to that transaction and its thread. It sees earlier changes of the same transaction, and a savepoint undoes
    later ones. Each call uses the transaction's own connection only.

    The commit wakes the dispatchers on PostgreSQL, and this process's own after a Session's or Django's transaction;
    otherwise they find the messages when they poll.

    Args:
        store: The endpoint's store.
        target: The transaction, as of `DelayedDelivery.enlist`.
        factory: Makes and checks messages.
        wake_up: Called with the first due time after the end of the transaction, where that is reported.
        actor: In whose name changes are made and noted.
        set_up: Create missing tables first, though not in that transaction.

    Example:
        ```python
        with Session(engine) as session, session.begin():
            enlisted = delivery.enlist(session)
            enlisted.cancel(key="order-7")
            enlisted.send("billing", b"pay me", delay=3600)
        ```

    """

    def __init__(
        self,
        store: EnlistableStore,
        target: Any,
        factory: MessageFactory,
        wake_up: Callable[[datetime | None], None],
        actor: Actor,
        *,
        set_up: bool = False,
    ) -> None:
        self._earliest = earliest = Earliest()
        self._bound = store.enlist(target, on_end=lambda: wake_up(earliest.time), set_up=set_up)
        self._factory = factory.by(self._bound.now)
        self._actor = actor
        self._changes = MessageChanges(
            lambda: self._bound, actor, self._factory.due_time, lambda _: nullcontext(), self._earliest.note
        )

    def send_many(
        self,
        messages: Iterable[DelayedMessage],
        *,
        on_key: OnKey | str | None = None,
        max_wait: timedelta | float | None = None,
        if_delivered: IfDelivered | str = IfDelivered.SEND,
    ) -> int:
        """As `DelayedDelivery.send_many`."""
        rule, new = KeyRule.of(on_key, max_wait), IfDelivered.rejects(if_delivered)
        with self._factory.followed() as stamp:
            checked = self._factory.checked(messages, self._earliest, stamp)
            return store_many(self._bound, checked, rule, self._actor, new=new)

    def get(self, message_id: str | None = None, *, key: str | None = None) -> DelayedMessage | None:
        """Look up a waiting message by its id or its key, as your transaction sees it.

        Args:
            message_id: Its id; or else give `key`.
            key: Its key; or else give `message_id`.

        Returns:
            The message, claimed or not; None: it is not, or no longer, in the store.

        Raises:
            InvalidMessageError: Not exactly one of `message_id` and `key` is given.
            ConfigurationError: The store does not support keys.
            StoreError: The store fails.

        """
        return answer_about(self._bound, self._bound.get, message_id, key, None)

    def cancel(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Delete a waiting message, unless a dispatcher has claimed it; never waits for a dispatcher.

        Until your transaction ends, the message is not dispatched.

        Args:
            message_id: Its id; or else give `key`.
            key: Its key; or else give `message_id`.

        Returns:
            DONE, NOT_FOUND, or BEING_DISPATCHED: a dispatcher has claimed it.

        Raises:
            InvalidMessageError: Not exactly one of `message_id` and `key` is given.
            ConfigurationError: The store does not support keys, or keeps no audit trail although changes are to
                be noted.
            StoreError: The store fails.

        """
        return self._changes.cancel(message_id, key=key)

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
        """Give a waiting message a new due time and fresh retries, unless a dispatcher has claimed it.

        Until your transaction ends, the message is not dispatched.

        Args:
            message_id: Its id; or else give `key`.
            key: Its key; or else give `message_id`.
            delay: The new due time as a timedelta or seconds from now; or else give `at` or `by`.
            at: The new due time as an aware datetime.
            by: The span by which the due time moves, a timedelta or seconds; negative: to an earlier time.
            time_zone: The time zone, such as `Europe/Berlin`, whose calendar days whole days of `by` are, also when
                clocks change. None: a day is 24 hours.

        Returns:
            DONE, NOT_FOUND, or BEING_DISPATCHED: a dispatcher has claimed it.

        Raises:
            InvalidMessageError: Not exactly one of `message_id` and `key` is given, or not exactly one of `delay`, `at`
                and `by`, or the new due time is out of range.
            ConfigurationError: The store does not support keys, or keeps no audit trail although changes are to
                be noted, or the time zone is unknown.
            StoreError: The store fails.

        """
        return self._changes.reschedule(message_id, key=key, delay=delay, at=at, by=by, time_zone=time_zone)

    def send_now(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Make a waiting message due now, as `DelayedDelivery.send_now`; it is dispatched after your transaction."""
        return self._changes.send_now(message_id, key=key)

    def changes_as(self, way: Way, by: str | None = None) -> MessageChanges:
        """As `DelayedDelivery.changes_as`, in your transaction."""
        return self._changes.acting(actor_name(by), way)

    @property
    def schedules(self) -> Schedules:
        """As `DelayedDelivery.schedules`, in your transaction: create a tenant and its schedules together."""
        return self.schedules_as(self._actor.way)

    def schedules_as(self, way: Way, by: str | None = None) -> Schedules:
        """As `DelayedDelivery.schedules_as`, in your transaction."""
        return Schedules(
            ScheduleAccess(
                opened=lambda _: nullcontext(schedule_rows(self._bound)),
                check=self._factory.check,
                wake_up=lambda: self._earliest.note(self._bound.now()),
                actor=self._actor.acting(actor_name(by), way),
            )
        )

    @override
    def _keep(self, message: DelayedMessage) -> None:
        self._bound.store(message)
        self._earliest.note(message.due_time)

    @override
    def _keep_by_rule(self, message: DelayedMessage, rule: KeyRule, *, new: bool) -> str:
        stored = store_by_rule(self._bound, message, rule, self._actor, new=new)
        self._earliest.note(message.due_time if rule.max_wait is None else self._bound.now())
        return stored
