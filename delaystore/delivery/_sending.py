"""Sending: checked messages of the arguments of `send`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from delaystore.dispatcher.observer import GuardedObserver, Sending
from delaystore.errors import InvalidMessageError
from delaystore.keys import KeyRule, OnKey
from delaystore.message import NOTHING, DelayedMessage, check_key, due_after, new_message_id
from delaystore.transports.abc import Transport

Stamp = Callable[[DelayedMessage], DelayedMessage]
"""Makes of a checked message the one to store, perhaps with more headers."""
_FOLLOWED_BY_NOBODY: Final[AbstractContextManager[None]] = nullcontext()


class Earliest:
    """The earliest of the times noted; None before the first."""

    __slots__ = ("time",)

    def __init__(self) -> None:
        self.time: datetime | None = None

    def note(self, time: datetime) -> None:
        """Keep `time` if it is earlier."""
        if self.time is None or time < self.time:
            self.time = time


class Composer:
    """Makes messages, and refuses those that could not be carried, while the caller can still act."""

    def __init__(
        self,
        now: Callable[[], datetime],
        transport: Transport | None,
        max_body_bytes: int,
        observer: GuardedObserver | None = None,
    ) -> None:
        self._now = now
        self._observer = observer
        self._transport = transport
        self._check = None if transport is None else transport.check
        self._max_body_bytes = max_body_bytes

    def by(self, now: Callable[[], datetime]) -> "Composer":
        """The same, by another clock."""
        return Composer(now, self._transport, self._max_body_bytes, self._observer)

    def due_time(self, delay: timedelta | float | None, at: datetime | None) -> datetime:
        """`at`, or `delay` from now on the store's clock; raises InvalidMessageError unless exactly one is given."""
        if delay is None and at is not None:
            return at
        if delay is not None and at is None:
            return due_after(self._now(), delay)
        raise InvalidMessageError("give exactly one of delay= (a timedelta or seconds) and at= (an aware datetime)")

    def check(self, message: DelayedMessage) -> None:
        """Raise InvalidMessageError for a body over max_body_bytes, or what the transport cannot carry."""
        if len(message.body) > self._max_body_bytes:
            raise InvalidMessageError(
                f"the body of message {message.message_id} has {len(message.body)} bytes; "
                f"max_body_bytes allows {self._max_body_bytes}"
            )
        if self._check is not None:
            self._check(message)

    def followed(self, message: DelayedMessage | None = None) -> AbstractContextManager[Stamp | None]:
        """A block that is one call of `send`, of `message`, or (None) of `send_many`.

        In it: what makes of each checked message the one to store; None: nobody follows, and each is stored as it is.
        """
        observer = self._observer
        sending = None if observer is None or not observer.hears_of_sending else observer.send_begins(message)
        return _FOLLOWED_BY_NOBODY if sending is None else self._followed(sending)

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
    """Whatever has `send`: its arguments become a message here, for whoever keeps the message."""

    _composer: Composer

    def send(
        self,
        destination: str,
        body: bytes,
        *,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        message_id: str | None = None,
        key: str | None = None,
        on_key: OnKey | str | None = None,
        max_wait: timedelta | float | None = None,
    ) -> str:
        """Store a message for `destination`, due after `delay` (a timedelta or seconds) or `at` (an aware datetime).

        Returns its message_id: a fresh one, unless given. It is durable once this returns; in somebody else's
        transaction, once that is committed, and `delay` counts from now all the same. A time in the past means at once.
        With `native` the broker or the store has it, and an id that already waits in the broker is not noticed.

        `key`: at most one message with it waits. `on_key` says what becomes of this one where another does: `reject`
        (the default) raises DuplicateKeyError; `keep` leaves that one, whose message_id is returned; `replace` puts
        this one in its place; `debounce` does so too, but due no later than `max_wait` (a timedelta or seconds; None:
        no bound) after the first of them was sent. While a dispatcher has the message of that key, send waits up to
        5 s, and raises KeyInUseError then: nothing is stored, send again. A message with a key always goes to the
        store; ConfigurationError where that knows no keys.

        Raises InvalidMessageError for what cannot be carried, DuplicateMessageError for an id that already waits in the
        store, MessageBeingDispatchedError for one whose message a dispatcher has, and has not settled within 5 s:
        nothing is stored, send again; DurabilityUnknownError where it is stored but perhaps not on PostgreSQL's
        synchronous standby, another StoreError when the store fails: it may be stored nevertheless, so send again with
        a message_id of your own.
        """
        rule = rule_of(key, on_key, max_wait)
        self.prepare()
        message = DelayedMessage(
            message_id=new_message_id() if message_id is None else message_id,
            destination=destination,
            due_time=self._composer.due_time(delay, at),
            body=body,
            headers=NOTHING if headers is None else headers,
            properties=NOTHING if properties is None else properties,
            key=key,
        )
        self._composer.check(message)
        with self._composer.followed(message) as stamp:
            if stamp is not None:
                message = stamp(message)
            if rule is not None:
                return self._keep_keyed(message, rule)
            self._keep(message)
        return message.message_id

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Called before each message."""

    @abstractmethod
    def _keep(self, message: DelayedMessage) -> None:
        """Store a checked message, or send it natively. Raises StoreError."""

    @abstractmethod
    def _keep_keyed(self, message: DelayedMessage, rule: KeyRule) -> str:
        """Store a checked message with a key; returns the message_id of the one that waits. Raises StoreError."""


def rule_of(key: str | None, on_key: OnKey | str | None, max_wait: timedelta | float | None) -> KeyRule | None:
    """The rule of `send`'s arguments; None: there is no key. Raises InvalidMessageError for what makes no sense."""
    if key is not None:
        check_key(key)
        return KeyRule.of(on_key, max_wait)
    if on_key is not None or max_wait is not None:
        raise InvalidMessageError("on_key and max_wait go with key=; give the message a key, or leave them out")
    return None
