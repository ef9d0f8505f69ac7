"""The in-memory store in somebody else's transaction."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Protocol, runtime_checkable

from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage, check_message_id, waiting_until
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.memory._transaction import InMemoryTransaction
from delaystore.stores.memory._waiting import Entry, WaitingMessages, copied, rescheduled
from delaystore.stores.operable import AuditedStore, AuditEntry, Change, MessageBefore


@runtime_checkable
class TransactionHooks(Protocol):
    """A transaction that tells of its end, such as a double in a test; one object for each transaction, or for many.

    What was registered is called once, at the end of the transaction that is open now.
    """

    def on_commit(self, action: Callable[[], None]) -> Any:
        """Call `action` after the commit."""
        ...

    def on_rollback(self, action: Callable[[], None]) -> Any:
        """Call `action` after the rollback."""
        ...


class EnlistedInMemoryStore(AuditedStore, InMemoryTransaction):
    """A block that can also look up, cancel and reschedule, and sees what it has done itself."""

    _instead: ClassVar[str] = "in memory, call enlist again for the next one"

    def get(self, message_id: str) -> DelayedMessage | None:
        """The waiting message as this transaction sees it; None: not (or no longer) in the store."""
        check_message_id(message_id)
        with self._waiting.lock:
            self._check_open()
            message = self._seen(message_id)
            return None if message is None else copied(message)

    @override
    def cancel(self, message_id: str, *, change: Change | None = None) -> ManagementOutcome:
        """Delete at the commit; what was stored in this transaction is gone at once."""
        check_message_id(message_id)
        with self._waiting.lock:
            self._check_open()
            outcome, message = self._take(message_id), self._seen(message_id)
            if outcome is not ManagementOutcome.DONE or message is None:
                return outcome
            self._note(message, change)
            if message_id in self._stored.messages:
                self._stored.drop(message_id)
            else:
                self._changed.pop(message_id, None)
                self._removed.add(message_id)
            return outcome

    @override
    def reschedule(self, message_id: str, due_time: datetime, *, change: Change | None = None) -> ManagementOutcome:
        """Give the message a new due time and a failure count of 0 at the commit."""
        check_message_id(message_id)
        due_time = waiting_until(due_time, "due_time")
        with self._waiting.lock:
            self._check_open()
            outcome, message = self._take(message_id), self._seen(message_id)
            if outcome is ManagementOutcome.DONE and message is not None:
                self._note(message, change, due_time)
                changes = self._stored.messages if message_id in self._stored.messages else self._changed
                changes[message_id] = rescheduled(message, due_time)
            return outcome

    @override
    def note_changes(self, entries: Sequence[AuditEntry]) -> None:
        """Keep them at the commit."""
        with self._waiting.lock:
            self._check_open()
            self._noted += entries

    def _note(self, message: DelayedMessage, change: Change | None, due_time: datetime | None = None) -> None:
        if change is not None:
            self._noted.append(change.of_message(self._clock.now(), MessageBefore.of(message), due_time))

    def _take(self, message_id: str) -> ManagementOutcome:
        """Claim a waiting message until the transaction's end, so that nobody else changes or dispatches it."""
        if message_id in self._stored.messages:
            return ManagementOutcome.DONE
        entry = self._entry(message_id)
        if entry is None:
            return ManagementOutcome.NOT_FOUND
        if entry.claimer is not self and entry.is_claimed(self._clock.now()):
            return ManagementOutcome.BEING_DISPATCHED
        self._waiting.claim(entry, self, None)
        self._claimed[message_id] = entry
        return ManagementOutcome.DONE

    def _seen(self, message_id: str) -> DelayedMessage | None:
        if message_id in self._stored.messages:
            return self._stored.messages[message_id]
        entry = self._entry(message_id)
        return None if entry is None else self._changed.get(message_id, entry.message)

    def _entry(self, message_id: str) -> Entry | None:
        return None if message_id in self._removed else self._waiting.entries.get(message_id)


def enlisted_in(
    waiting: WaitingMessages,
    target: Any,
    begin: Callable[[], EnlistedInMemoryStore],
    on_end: Callable[[], None] | None,
) -> EnlistedInMemoryStore:
    """The one store that is enlisted in `target` at present, made by `begin` if there is none."""
    if not isinstance(target, TransactionHooks):
        raise ConfigurationError(
            "the in-memory store can be enlisted only in what has on_commit and on_rollback, such as a test's own "
            f"transaction, not in a {type(target).__name__}; for that use a SQL store"
        )
    with waiting.lock:
        found = waiting.enlisted.get(id(target))
        enlisted: EnlistedInMemoryStore = begin() if found is None else found[1]
        waiting.enlisted[id(target)] = target, enlisted
    if found is None:
        _register(waiting, target, enlisted)
    if on_end is not None:
        target.on_commit(on_end)
    return enlisted


def _register(waiting: WaitingMessages, target: TransactionHooks, enlisted: EnlistedInMemoryStore) -> None:
    def ended(end: Callable[[], None]) -> Callable[[], None]:
        def action() -> None:
            waiting.enlisted.pop(id(target), None)
            end()

        return action

    target.on_commit(ended(enlisted.commit))
    target.on_rollback(ended(enlisted.rollback))
