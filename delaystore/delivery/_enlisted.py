"""Sending in the caller's own transaction."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from typing_extensions import override

from delaystore.delivery._keys import keyed, store_many
from delaystore.delivery._sending import Composer, Earliest, Sender
from delaystore.keys import KeyRule, OnKey
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore


@runtime_checkable
class EnlistableStore(Protocol):
    """A store that can write in somebody else's transaction."""

    def enlist(self, target: Any, on_end: Callable[[], None] | None = None) -> DelayedMessageStore:
        """The store's interface in the transaction of `target`, a connection or session.

        `on_end` is called after a Session's transaction.
        """
        ...


class EnlistedDelivery(Sender):
    """`send` and `send_many` in the caller's transaction: if that is rolled back, nothing is sent.

    Belongs to that transaction and its thread. The end of a Session's transaction wakes the dispatcher; so does the
    commit on PostgreSQL. After a Connection's transaction on another database, the dispatcher finds the messages when
    it polls.
    """

    def __init__(
        self,
        store: EnlistableStore,
        target: Any,
        composer: Composer,
        wake_up: Callable[[datetime | None], None],
    ) -> None:
        self._wake_up = wake_up
        self._earliest = Earliest()
        self._bound = store.enlist(target, on_end=self._ended)
        self._composer = composer.by(self._bound.now)

    @override
    def _keep(self, message: DelayedMessage) -> None:
        self._bound.store(message)
        self._earliest.note(message.due_time)

    @override
    def _keep_keyed(self, message: DelayedMessage, rule: KeyRule) -> str:
        stored = keyed(self._bound).store_keyed(message, rule)
        self._earliest.note(message.due_time if rule.max_wait is None else self._bound.now())
        return stored

    def send_many(
        self,
        messages: Iterable[DelayedMessage],
        *,
        on_key: OnKey | str | None = None,
        max_wait: timedelta | float | None = None,
    ) -> int:
        """As `DelayedDelivery.send_many`."""
        rule = KeyRule.of(on_key, max_wait)
        return store_many(self._bound, self._composer.checked(messages, self._earliest), rule)

    def _ended(self) -> None:
        self._wake_up(self._earliest.time)
