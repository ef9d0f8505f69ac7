"""One memory of messages that may still be in the store after they were sent or deferred.

A pass asks it what to do with the messages that it has fetched, so that none is sent twice without a reason.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from delaystore.dispatcher.error_queue import Failure
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.stores.records import Ending
from delaystore.transports.abc import PendingConfirm

MOST_REMEMBERED: Final = 100_000
"""The most messages remembered, in some thirty megabytes. Beyond that the oldest are forgotten: they may be sent again,
and their deferrals count as failed attempts."""

LOOK_UP_EVERY: Final = 5.0
"""Seconds between two look-ups of remembered messages in the store."""

_ATTEMPTS: Final = frozenset({"failure_count", "next_attempt"})
"""Fields of a message that a deferral changes."""


def fingerprint(message: DelayedMessage) -> bytes:
    """The same for messages that agree in everything except their attempts."""
    names = [each.name for each in fields(message) if each.name != "body" and each.name not in _ATTEMPTS]
    facts = [getattr(message, name) for name in names]
    text = repr([dict(fact) if isinstance(fact, Mapping) else fact for fact in facts])
    digest = blake2b(text.encode(), digest_size=16)
    digest.update(message.body)
    return digest.digest()


def keep_youngest(known: dict[Any, Any], most: int) -> None:
    """Forget the entries of `known` that were put in first, until at most `most` are left."""
    while len(known) > most:
        del known[next(iter(known))]


class Ended(NamedTuple):
    """How and when messages have ended that are to be deleted."""

    ending: Ending
    at: datetime


@dataclass(slots=True)
class _Record:
    """The state of one message so far. Neither the message nor its body is kept."""

    fingerprint: bytes
    failure_count: int
    """As fetched, when the record was made."""
    has_id: bool
    """Whether the store can be asked for it by its message_id."""
    deferrals: int = 0
    pending: PendingConfirm | None = None
    """Sent, and unconfirmed when its batch ended; None: it is not in flight."""
    destination: str = ""
    """Where it was sent: its own destination, or the error queue."""
    sent_at: float = 0.0
    """By time.monotonic."""
    failure: tuple[str, str] | None = None
    """Kind and reason of the failure with which a copy was sent to the error queue; None: the message itself was."""
    ended: Ended | None = None
    """Confirmed, and its deletion failed."""

    def describes(self, message: DelayedMessage) -> bool:
        """Whether `message` is the one sent or deferred, and no other one that was stored under its id since.

        Failure counts only grow, so that a lower one shows that the message was stored again.
        """
        return message.failure_count >= self.failure_count and fingerprint(message) == self.fingerprint


@dataclass(slots=True)
class FetchedMessages:
    """The messages that a pass has fetched, by its action on them."""

    to_send: Sequence[DelayedMessage]
    """New messages, messages that failed or were deferred before, and messages whose earlier copy will not arrive."""
    unconfirmed: list[DelayedMessage] = field(default_factory=list)
    """In flight: they may arrive yet. They are deferred without being sent."""
    delivered: list[DelayedMessage] = field(default_factory=list)
    """Confirmed after their batch had ended. They are deleted."""
    copied: list[Failure] = field(default_factory=list)
    """The same, in the error queue."""
    undeleted: dict[Ended, list[DelayedMessage]] = field(default_factory=dict)
    """Confirmed, and an earlier pass could not delete them. They are deleted in a transaction of their own."""


class InFlightTracker:
    """Remembers sent messages that are not deleted, and how often messages were deferred. Threads may share it.

    It prevents three kinds of duplicates: of a broker whose confirms take longer than a batch waits; of a store that
    can be read but not written; of two workers that fetch the same messages from a restarted database, which has
    forgotten all claims. Other dispatchers do not share this memory: they may send such a message again.

    Args:
        is_presumed_lost: Whether a message sent to a destination at a time (by time.monotonic) will hardly arrive.

    """

    def __init__(self, is_presumed_lost: Callable[[str, float], bool]) -> None:
        self._is_presumed_lost = is_presumed_lost
        # Guards the set and the dict below, and is held for steps in memory only: never while the store or the broker
        # is asked, or fingerprints are computed, since the workers of a dispatcher need it in each pass. The worker
        # that has taken a message reads its record without the lock, as no other one changes it.
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        """The message_ids that a worker is busy with. No state of a record: a message of any state may be taken."""
        self._records: dict[str, _Record] = {}
        """By message_id, the one changed last at the end."""
        self._look_up_at = 0.0
        """By time.monotonic."""

    def take(self, fetched: Sequence[DelayedMessage]) -> list[DelayedMessage]:
        """Take those of `fetched` that no other worker has taken; `release` gives them back."""
        with self._lock:
            taken = [message for message in fetched if message.message_id not in self._taken]
            self._taken.update([message.message_id for message in taken])
        return taken

    def release(self, taken: Sequence[DelayedMessage]) -> None:
        """Let other workers take these messages: their results are noted."""
        with self._lock:
            self._taken.difference_update([message.message_id for message in taken])

    def sort(self, taken: Sequence[DelayedMessage]) -> FetchedMessages:
        """Say what to do with each message of a batch."""
        if not self._records:
            return FetchedMessages(taken)
        to_send: list[DelayedMessage] = []
        found = FetchedMessages(to_send)
        for message in taken:
            # Without the lock: reading one entry is atomic, and only this worker has the message.
            record = self._records.get(message.message_id)
            if record is None:
                to_send.append(message)
            elif not record.describes(message):
                self.forget([message])
                to_send.append(message)
            elif record.ended is not None:
                found.undeleted.setdefault(record.ended, []).append(message)
            else:
                self._sort_sent(found, to_send, message, record)
        return found

    def note_unconfirmed(
        self,
        message: DelayedMessage,
        pending: PendingConfirm,
        destination: str,
        sent_at: float,
        failure: Failure | None = None,
    ) -> None:
        """Note that `message`, or with `failure` its copy for the error queue, was sent and may arrive yet."""
        with self._youngest([message]) as (record,):
            record.pending, record.destination, record.sent_at = pending, destination, sent_at
            record.failure = None if failure is None else (failure.kind, failure.reason)

    def note_undeleted(self, messages: Sequence[DelayedMessage], ended: Ended) -> None:
        """Note that these messages were confirmed, and that deleting them failed. The next pass looks them up."""
        with self._youngest(messages) as records:
            for record in records:
                record.ended, record.pending = record.ended or ended, None
            # Within the lock: a look-up that begins now finds them, and none that began before puts the next one off.
            self._look_up_at = 0.0

    def note_deferred(self, messages: Sequence[DelayedMessage]) -> None:
        """Count one more deferral of each of these messages, whose failure counts the store has raised."""
        with self._youngest(messages) as records:
            for record in records:
                record.deferrals += 1

    def failures(self, message: DelayedMessage) -> int:
        """How often `message` has failed, without its deferrals.

        The store can show a message later only by raising its failure count. Deferrals must not use up retries, so they
        are subtracted while this process lives.
        """
        record = self._records.get(message.message_id)
        if record is None or not record.deferrals or not record.describes(message):
            return message.failure_count
        return max(0, message.failure_count - record.deferrals)

    def forget(self, messages: Iterable[DelayedMessage]) -> None:
        """Forget messages that are deleted, or were replaced by others under their ids."""
        if self._records:
            self.forget_ids(message.message_id for message in messages)

    def forget_ids(self, message_ids: Iterable[str]) -> None:
        """Forget the messages of these ids, which are no longer in the store."""
        with self._lock:
            for message_id in message_ids:
                self._records.pop(message_id, None)

    def ids_to_look_up(self) -> Sequence[str]:
        """The ids that the store is to be asked for now; as a rule there are none.

        Another dispatcher may have deleted such a message, and a deletion that seemed to fail may be committed. The
        same message, stored again, would be taken for the one that has arrived, and not be sent.
        """
        if not self._records or time.monotonic() < self._look_up_at:
            return ()
        with self._lock:
            found = [
                message_id
                for message_id, record in self._records.items()
                if record.has_id and (record.ended is not None or record.pending is not None)
            ]
            self._look_up_at = time.monotonic() + LOOK_UP_EVERY
        return found

    def _sort_sent(
        self, found: FetchedMessages, to_send: list[DelayedMessage], message: DelayedMessage, record: _Record
    ) -> None:
        # Asked once: the confirm may come between two questions.
        confirmed = False if record.pending is None else record.pending.arrived
        if confirmed and record.failure is None:
            found.delivered.append(message)
        elif confirmed and record.failure is not None:
            found.copied.append(Failure(message, *record.failure))
        elif confirmed is None and not self._is_presumed_lost(record.destination, record.sent_at):
            found.unconfirmed.append(message)
        else:
            # It was only deferred, or its earlier copy will not arrive. A confirm that comes in spite of that is not
            # listened to: the message is then at its destination twice, and deleted when the second is confirmed.
            record.pending = None
            to_send.append(message)

    @contextmanager
    def _youngest(self, messages: Sequence[DelayedMessage]) -> Iterator[Sequence[_Record]]:
        """The records of `messages`, made where there is none, as the youngest of all; within the lock."""
        prints = [fingerprint(message) for message in messages]
        found = []
        with self._lock:
            for message, own in zip(messages, prints, strict=True):
                record = self._records.pop(message.message_id, None)
                if record is None or record.fingerprint != own or message.failure_count < record.failure_count:
                    has_id = not isinstance(message, UnreadableMessage) or message.stored_id is None
                    record = _Record(own, message.failure_count, has_id)
                self._records[message.message_id] = record
                found.append(record)
            keep_youngest(self._records, MOST_REMEMBERED)
            yield found
