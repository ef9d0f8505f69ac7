"""What has arrived although the store could not be told."""

import threading
from collections.abc import Iterable, Sequence
from hashlib import blake2b
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
        self._known: dict[str, DelayedMessage | bytes] = {}
        """By id: the message while its removal is under way, its fingerprint once that has failed."""

    def note(self, messages: Iterable[DelayedMessage]) -> None:
        """They have arrived, and are about to be removed."""
        with self._lock:
            self._known.update((message.message_id, message) for message in messages)
            self._forget_the_oldest()

    def keep(self, messages: Iterable[DelayedMessage]) -> None:
        """Their removal has failed: remember them for long, without their bodies."""
        with self._lock:
            self._known.update((message.message_id, _fingerprint(message)) for message in messages)
            self._forget_the_oldest()

    def among(self, batch: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
        """Those of `batch` that have arrived: the very same, for an id may have been used again since."""
        with self._lock:
            if not self._known:
                return ()
            return [message for message in batch if self._knows(message)]

    def forget(self, messages: Iterable[DelayedMessage]) -> None:
        """They are removed; or nothing is left that could be sent again."""
        with self._lock:
            if self._known:
                for message in messages:
                    self._known.pop(message.message_id, None)

    def _knows(self, message: DelayedMessage) -> bool:
        known = self._known.get(message.message_id)
        return known is not None and known == (_fingerprint(message) if isinstance(known, bytes) else message)

    def _forget_the_oldest(self) -> None:
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]


def _fingerprint(message: DelayedMessage) -> bytes:
    facts = (
        message.destination,
        message.due_time,
        message.attention_time,
        message.failure_count,
        dict(message.headers),
        dict(message.properties),
    )
    digest = blake2b(repr(facts).encode(), digest_size=16)
    digest.update(message.body)
    return digest.digest()
