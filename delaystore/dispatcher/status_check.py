"""Asking the store how it is, without waiting for as long as it may take."""

import threading
from dataclasses import dataclass
from datetime import timedelta

from delaystore.calls import Question
from delaystore.stores.abc import DelayedMessageStore, StoreStatus


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """How a store is, as in `Health`."""

    oldest_overdue: timedelta | None = None
    problem: str | None = None


class StatusCheck:
    """Asks one store, one question at a time: a store that hangs keeps one thread, not one for each caller."""

    def __init__(self, store: DelayedMessageStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._question: Question[StoreStatus] | None = None

    def health(self, timeout: timedelta | float) -> StoreHealth:
        """How the store is, asked for `timeout` (or seconds) at most; raises nothing."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            status = self._ask(seconds)
        except Exception as error:
            return StoreHealth(problem=str(error) or type(error).__name__)
        return StoreHealth(status.overdue, status.read_only)

    def _ask(self, seconds: float) -> StoreStatus:
        """The store's status. An earlier question without an answer is waited for until its own time is over.

        Raises StoreUnavailableError after `seconds`, and what the store raises.
        """
        with self._lock:
            if self._question is None or not self._question.open:
                self._question = Question("asking for the status", self._store.status, seconds)
            question = self._question
        return question.answer()
