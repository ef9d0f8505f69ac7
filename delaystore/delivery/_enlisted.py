"""Sending, cancelling and rescheduling in the caller's own transaction."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from typing_extensions import override

from delaystore.delivery._keys import store_keyed, store_many
from delaystore.delivery._sending import Composer, Earliest, Sender
from delaystore.keys import KeyRule, OnKey
from delaystore.message import DelayedMessage
from delaystore.operations.changes import Actor, MessageChanges
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.named import ask
from delaystore.stores.operable import Change, ChangeAction, Way


class EnlistedStore(Protocol):
    """What a store offers in somebody else's transaction, as a ManagedDelayedMessageStore does.

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
    """A store that can write in somebody else's transaction."""

    def enlist(self, target: Any, on_end: Callable[[], None] | None = None, *, set_up: bool = False) -> EnlistedStore:
        """The store's interface in the transaction of `target`.

        `on_end` is called after its end, at least after a commit, where `target` tells of that. `set_up`: first make
        the tables if they are missing, though not in that transaction.
        """
        ...


class EnlistedDelivery(Sender):
    """What `DelayedDelivery` does, in the caller's transaction: if that is rolled back, nothing of it has happened.

    Belongs to that transaction and its thread. What was done before in the same transaction is seen, and what came
    after a savepoint is undone with it. Each call uses the transaction's own connection only.

    The commit wakes the dispatchers on PostgreSQL, and that of this process after a Session's or Django's transaction;
    otherwise they find the messages when they poll.
    """

    def __init__(
        self,
        store: EnlistableStore,
        target: Any,
        composer: Composer,
        wake_up: Callable[[datetime | None], None],
        actor: Actor,
        *,
        set_up: bool = False,
    ) -> None:
        self._wake_up = wake_up
        self._earliest = Earliest()
        self._bound = store.enlist(target, on_end=self._ended, set_up=set_up)
        self._composer = composer.by(self._bound.now)
        self._actor = actor
        self._changes = MessageChanges(
            lambda: self._bound, actor, self._composer.due_time, lambda _: nullcontext(), self._earliest.note
        )

    def send_many(
        self,
        messages: Iterable[DelayedMessage],
        *,
        on_key: OnKey | str | None = None,
        max_wait: timedelta | float | None = None,
    ) -> int:
        """As `DelayedDelivery.send_many`."""
        rule = KeyRule.of(on_key, max_wait)
        with self._composer.followed() as stamp:
            return store_many(
                self._bound, self._composer.checked(messages, self._earliest, stamp), rule, self._replacing
            )

    def get(self, message_id: str | None = None, *, key: str | None = None) -> DelayedMessage | None:
        """The waiting message as your transaction sees it; None: not (or no longer) in the store."""
        return ask(self._bound, self._bound.get, message_id, key, None)

    def cancel(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Delete a waiting message, unless a dispatcher has claimed it; never waits for one.

        Until your transaction ends, the message is not dispatched.
        """
        return self._changes.cancel(message_id, key=key)

    def reschedule(
        self,
        message_id: str | None = None,
        *,
        key: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
    ) -> ManagementOutcome:
        """Give a waiting message a new due time and fresh retries, unless a dispatcher has claimed it.

        Until your transaction ends, the message is not dispatched.
        """
        return self._changes.reschedule(message_id, key=key, delay=delay, at=at)

    def changes_as(self, way: Way, by: str | None = None) -> MessageChanges:
        """As `DelayedDelivery.changes_as`, in your transaction."""
        return self._changes.acting(by, way)

    @override
    def _keep(self, message: DelayedMessage) -> None:
        self._bound.store(message)
        self._earliest.note(message.due_time)

    @override
    def _keep_keyed(self, message: DelayedMessage, rule: KeyRule) -> str:
        stored = store_keyed(self._bound, message, rule, self._replacing)
        self._earliest.note(message.due_time if rule.max_wait is None else self._bound.now())
        return stored

    @property
    def _replacing(self) -> Change | None:
        return self._actor.change(ChangeAction.REPLACE)

    def _ended(self) -> None:
        self._wake_up(self._earliest.time)
