"""Attempts that are no fault of the message."""

import threading
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from delaystore.message import DelayedMessage

MOST: Final = 10_000
"""Messages remembered; of more, the deferrals of the oldest count as failed attempts."""


class Deferrals:
    """How many of a message's counted attempts got no answer, so that it gave way to others.

    The store can show a message again later only by counting a failure. Those are not to use up its retries: they
    are subtracted while this process lives. May be shared by threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[datetime, int]] = {}
        """By id: the due time, for an id may be used again, and the number."""

    def note(self, messages: Iterable[DelayedMessage]) -> None:
        """They gave way once more, and it was counted."""
        with self._lock:
            for message in messages:
                count = self._of(message) + 1
                self._counts.pop(message.message_id, None)
                self._counts[message.message_id] = (message.due_time, count)
            while len(self._counts) > MOST:
                del self._counts[next(iter(self._counts))]

    def failures(self, message: DelayedMessage) -> int:
        """How often it has failed, deferrals left out."""
        with self._lock:
            return max(0, message.failure_count - self._of(message))

    def forget(self, messages: Iterable[DelayedMessage]) -> None:
        """They have arrived."""
        with self._lock:
            if self._counts:
                for message in messages:
                    self._counts.pop(message.message_id, None)

    def _of(self, message: DelayedMessage) -> int:
        due_time, count = self._counts.get(message.message_id, (message.due_time, 0))
        return count if due_time == message.due_time else 0
