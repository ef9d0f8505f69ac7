"""Sending in the caller's own transaction."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from delaystore.delivery.composer import Composer, Earliest
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore


@runtime_checkable
class EnlistableStore(Protocol):
    """A store that can write in somebody else's transaction."""

    def enlist(self, target: Any, on_end: Callable[[], None] | None = None) -> DelayedMessageStore:
        """The store's interface bound to `target`, a connection or session; `on_end` is called after
        a Session's transaction.
        """
        ...


class EnlistedDelivery:
    """`send` and `send_many` in the caller's transaction: rolled back, nothing was scheduled.

    Belongs to that transaction and its thread. The dispatcher hears of the messages when a Session's
    transaction ends, or by the database; of a Connection's, elsewhere than on PostgreSQL, when it next polls.
    """

    def __init__(
        self,
        store: EnlistableStore,
        target: Any,
        composer: Composer,
        wake_up: Callable[[datetime | None], None],
    ) -> None:
        self._composer = composer
        self._wake_up = wake_up
        self._earliest = Earliest()
        self._bound = store.enlist(target, on_end=self._ended)

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
    ) -> str:
        """As `DelayedDelivery.send`; `delay` counts from now, not from the commit."""
        message = self._composer.compose(destination, body, delay, at, headers, properties, message_id)
        self._bound.store(message)
        self._earliest.note(message.due_time)
        return message.message_id

    def send_many(self, messages: Iterable[DelayedMessage]) -> int:
        """As `DelayedDelivery.send_many`."""
        return self._bound.store_many(self._composer.checked(messages, self._earliest))

    def _ended(self) -> None:
        self._wake_up(self._earliest.time)
