"""Messages that were sent and are still in the store: not confirmed yet, or confirmed and not removed.

A dispatcher remembers both kinds, so that a message that is fetched again is not sent a second time.
"""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any, Final

from delaystore.dispatcher.error_queue import Failure
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.transports.abc import PendingConfirm

ATTEMPTS = frozenset({"failure_count", "next_attempt"})


"""What giving way changes of a message."""


def is_named(message: DelayedMessage) -> bool:
    """Whether the store has it under its message_id, by which it can be asked for."""
    return not isinstance(message, UnreadableMessage) or message.stored_id is None


def fingerprint(message: DelayedMessage, without: frozenset[str] = frozenset()) -> bytes:
    """The same for messages that agree in everything, but for the fields `without`."""
    names = [field.name for field in fields(message) if field.name != "body" and field.name not in without]
    facts = [getattr(message, name) for name in names]
    text = repr([dict(fact) if isinstance(fact, Mapping) else fact for fact in facts])
    digest = blake2b(text.encode(), digest_size=16)
    digest.update(message.body)
    return digest.digest()


def keep_youngest(known: dict[Any, Any], most: int) -> None:
    """Forget the entries of `known` that were put in first, until there are at most so many."""
    while len(known) > most:
        del known[next(iter(known))]


MOST_REMEMBERED: Final = 10_000


"""The most messages remembered. Beyond that the oldest are forgotten, and may be sent again."""


@dataclass(frozen=True, slots=True)
class InFlightMessage:
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


class InFlightTracker:
    """Remembers what is on its way, so that it is not sent again while it may arrive. Threads may share it.

    Without it, a broker whose confirms take longer than a batch waits would be sent the same messages without end.
    Other dispatchers do not know of it, so such messages are not shown again too soon.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, InFlightMessage] = {}
        """By message_id."""

    def note(
        self, message: DelayedMessage, late: PendingConfirm, sent_at: float, failure: Failure | None = None
    ) -> None:
        """Remember that `message` is on its way; `failure`: its copy for the error queue is."""
        failed = None if failure is None else (failure.kind, failure.reason)
        underway = InFlightMessage(late, failed, sent_at, fingerprint(message, ATTEMPTS), is_named(message))
        with self._lock:
            self._known.pop(message.message_id, None)
            self._known[message.message_id] = underway
            keep_youngest(self._known, MOST_REMEMBERED)

    def among(self, batch: Sequence[DelayedMessage]) -> Mapping[str, InFlightMessage]:
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


class DeliveredNotDeleted:
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
