"""Messages that are being sent, or have arrived and are not yet removed from the store."""

import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from delaystore.dispatcher._fingerprint import fingerprint, is_named
from delaystore.dispatcher._youngest import keep_youngest
from delaystore.message import DelayedMessage

MOST_REMEMBERED: Final = 10_000
"""The most messages remembered. Beyond that the oldest are forgotten, and may be sent again."""


class UnremovedArrivals:
    """Remembers what is being sent, and what the broker has confirmed and the store did not remove.

    Without it the same batch would be sent again and again while the store can be read but not written, and a restarted
    database, which has forgotten all claims, would have a batch sent by two workers. A message that another dispatcher
    fetches meanwhile is still sent twice. Threads may share it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._being_sent: set[str] = set()
        """By message_id."""
        self._known: dict[str, bytes] = {}
        """Fingerprints by message_id."""
        self._unnamed: set[str] = set()
        """Those of `_known` that the store has under something else than their message_id."""

    def begin(self, fetched: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
        """Take for sending those of `fetched` that no other worker is sending; `end` gives them back."""
        with self._lock:
            taken = [message for message in fetched if message.message_id not in self._being_sent]
            self._being_sent.update(message.message_id for message in taken)
        return taken

    def end(self, taken: Iterable[DelayedMessage]) -> None:
        """Let other workers send `taken`: they are settled, or those that have arrived are kept."""
        with self._lock:
            self._being_sent.difference_update(message.message_id for message in taken)

    def keep(self, messages: Sequence[DelayedMessage]) -> None:
        """Remember `messages`, which could not be removed, without their bodies."""
        kept = {message.message_id: fingerprint(message) for message in messages}
        with self._lock:
            self._known.update(kept)
            keep_youngest(self._known, MOST_REMEMBERED)
            unnamed = {message.message_id for message in messages if not is_named(message)}
            self._unnamed = (self._unnamed | unnamed) & self._known.keys()

    def among(self, batch: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
        """Those of `batch` that have arrived. Compares whole messages, as an id may have been used again."""
        with self._lock:
            if not self._known:
                return ()
            return [message for message in batch if self._knows(message)]

    def forget(self, message_ids: Iterable[str]) -> None:
        """Forget the messages of these ids, which are removed."""
        with self._lock:
            if self._known:
                for message_id in message_ids:
                    self._known.pop(message_id, None)

    @property
    def ids(self) -> Collection[str]:
        """Ids of remembered messages by which the store can be asked for them."""
        with self._lock:
            return self._known.keys() - self._unnamed

    def _knows(self, message: DelayedMessage) -> bool:
        known = self._known.get(message.message_id)
        return known is not None and known == fingerprint(message)
