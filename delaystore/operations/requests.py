"""What is asked about single messages, many at a time: to cancel one, to reschedule one, to look one up."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from typing_extensions import override

from delaystore.message import DelayedMessage
from delaystore.operations._access import Change
from delaystore.stores.abc import ManagedDelayedMessageStore, ManagementOutcome
from delaystore.stores.named import ask
from delaystore.times import time_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """What became of a request.

    `message_id`: of the message that was found; None: none waits. `message`: what was looked up, else None.
    `due_time`: the new one of a message that was rescheduled, else None. `change`: what is to be noted; None: nothing
    was changed.
    """

    outcome: ManagementOutcome
    message_id: str | None = None
    message: DelayedMessage | None = None
    due_time: datetime | None = None
    change: Change | None = None


NOTHING_FOUND: Final = RequestResult(outcome=ManagementOutcome.NOT_FOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequest(ABC):
    """A request about one message: that of `message_id`, or that of `key`; exactly one is given. `by`: who asks."""

    message_id: str | None = None
    key: str | None = None
    by: str

    def do(self, store: ManagedDelayedMessageStore) -> RequestResult:
        """Do it, in the transaction of `store`.

        Raises InvalidMessageError for what can be no message_id, key or due time, ConfigurationError for a key where
        the store knows none, StoreError.
        """
        return ask(
            store, lambda found: self._do(store, found), self.message_id, self.key, NOTHING_FOUND, changing=self.changes
        )

    @property
    def changes(self) -> bool:
        """Whether it changes the message that it finds."""
        return True

    @abstractmethod
    def _do(self, store: ManagedDelayedMessageStore, message_id: str) -> RequestResult: ...

    def _result(
        self, outcome: ManagementOutcome, message_id: str, action: str, about: str, due_time: datetime | None = None
    ) -> RequestResult:
        if outcome is ManagementOutcome.NOT_FOUND:
            return NOTHING_FOUND
        if outcome is not ManagementOutcome.DONE:
            return RequestResult(outcome=outcome, message_id=message_id)
        change = Change(self.by, action, about, 1)
        return RequestResult(outcome=outcome, message_id=message_id, due_time=due_time, change=change)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest(MessageRequest):
    """Delete a waiting message, unless a dispatcher has claimed it."""

    @override
    def _do(self, store: ManagedDelayedMessageStore, message_id: str) -> RequestResult:
        return self._result(store.cancel(message_id), message_id, "cancel", f"message {message_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RescheduleRequest(MessageRequest):
    """Give a waiting message the due time `at` (aware), and fresh retries, unless a dispatcher has claimed it."""

    at: datetime

    @override
    def _do(self, store: ManagedDelayedMessageStore, message_id: str) -> RequestResult:
        about = f"message {message_id} to {time_text(self.at)}"
        return self._result(store.reschedule(message_id, self.at), message_id, "reschedule", about, self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpRequest(MessageRequest):
    """Look a waiting message up, claimed or not."""

    @property
    @override
    def changes(self) -> bool:
        return False

    @override
    def _do(self, store: ManagedDelayedMessageStore, message_id: str) -> RequestResult:
        message = store.get(message_id)
        if message is None:
            return NOTHING_FOUND
        return RequestResult(outcome=ManagementOutcome.DONE, message_id=message_id, message=message)
