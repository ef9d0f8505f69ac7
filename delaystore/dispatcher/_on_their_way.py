"""Messages that were sent and got no answer in time, but may get it yet."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delaystore.dispatcher._error_queue import Failure
from delaystore.dispatcher._fingerprint import ATTEMPTS, fingerprint, is_named
from delaystore.dispatcher._youngest import keep_youngest
from delaystore.message import DelayedMessage
from delaystore.transports.abc import PendingConfirm

MOST_REMEMBERED: Final = 10_000
"""The most messages remembered. Beyond that the oldest are forgotten, and may be sent again."""


@dataclass(frozen=True, slots=True)
class Underway:
    """A message on its way, or its copy for the error queue."""

    late: PendingConfirm
    failed: tuple[str, str] | None
    """Kind and reason of the failure for which a copy of it is on its way to the error queue; None: it is itself on its
    way to its destination."""
    sent_at: float
    """By time.monotonic."""
    fingerprint: bytes
    is_named: bool
    """Whether the store can be asked for it by its message_id."""


class OnTheirWay:
    """Remembers what is on its way, so that it is not sent again while it may arrive. Threads may share it.

    Without it, a broker whose confirms take longer than a batch waits would be sent the same messages without end.
    Other dispatchers do not know of it, so such messages are not shown again too soon.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Underway] = {}
        """By message_id."""

    def note(
        self, message: DelayedMessage, late: PendingConfirm, sent_at: float, failure: Failure | None = None
    ) -> None:
        """Remember that `message` is on its way; `failure`: its copy for the error queue is."""
        failed = None if failure is None else (failure.kind, failure.reason)
        underway = Underway(late, failed, sent_at, fingerprint(message, ATTEMPTS), is_named(message))
        with self._lock:
            self._known.pop(message.message_id, None)
            self._known[message.message_id] = underway
            keep_youngest(self._known, MOST_REMEMBERED)

    def among(self, batch: Sequence[DelayedMessage]) -> Mapping[str, Underway]:
        """Those of `batch` that are on their way, by message_id. An id may have been used again for another message."""
        if not self._known:
            return {}
        found = {}
        for message in batch:
            underway = self._known.get(message.message_id)
            if underway is not None and underway.fingerprint == fingerprint(message, ATTEMPTS):
                found[message.message_id] = underway
        return found

    @property
    def ids(self) -> Collection[str]:
        """Ids of remembered messages by which the store can be asked for them."""
        with self._lock:
            return {message_id for message_id, underway in self._known.items() if underway.is_named}

    def forget(self, message_ids: Iterable[str]) -> None:
        """Forget the messages of these ids: they have arrived and are removed, or never will arrive."""
        if self._known:
            with self._lock:
                for message_id in message_ids:
                    self._known.pop(message_id, None)
