"""What has arrived although the store could not be told."""

import threading
from collections.abc import Iterable, Sequence
from typing import Final

from delaystore.message import DelayedMessage

MOST: Final = 10_000
"""Messages remembered; of a longer outage the oldest are forgotten, and may be sent again."""


class UnremovedArrivals:
    """Messages that the broker has confirmed and the store did not remove, so that they are not sent again.

    Without it a store that can be read and not written to would have the same batch sent again and again. One that
    another dispatcher takes meanwhile is sent twice all the same. May be shared by threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: dict[str, DelayedMessage] = {}

    def note(self, messages: Iterable[DelayedMessage]) -> None:
        """Remember them."""
        with self._lock:
            self._messages.update((message.message_id, message) for message in messages)
            for message_id in list(self._messages)[:-MOST]:
                del self._messages[message_id]

    def among(self, batch: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
        """Those of `batch` that have arrived: the very same, for an id may have been used again since."""
        with self._lock:
            if not self._messages:
                return ()
            return [message for message in batch if self._messages.get(message.message_id) == message]

    def forget(self, messages: Iterable[DelayedMessage]) -> None:
        """They are removed; or nothing is left that could be sent again."""
        with self._lock:
            if self._messages:
                for message in messages:
                    self._messages.pop(message.message_id, None)
