"""Processing of a batch: its messages are read, stored, forwarded at once, applied or rejected."""

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from delaystore.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.calls import StopFlag
from delaystore.delivery import DelayedDelivery
from delaystore.errors import InvalidMessageError
from delaystore.ingress._entries import IngestEntry, IngestResult
from delaystore.ingress._storing import EntryStorage
from delaystore.ingress.reading.incoming import RejectedMessageError, SagaCleared
from delaystore.ingress.reading.reader import IncomingReader
from delaystore.ingress.rejected import RejectedQueue
from delaystore.operations.changes import CancelRequest, MessageChanges
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports.abc import OutcomeKind, Transport

_READ_EVERY: Final = 0.5
"""Seconds: a pause that was begun longer ago is applied."""
_REST: Final = 10.0
"""Seconds in which a destination that has not answered gets nothing at once; or none does, if the broker has not."""


class Passthrough:
    """Forwards messages that are due within less than `below`.

    Messages for a destination that is paused, limited or unavailable go into the store. So no batch waits for the same
    silence again and again.
    """

    def __init__(self, delivery: DelayedDelivery, transport: Transport, below: timedelta, timeout: float) -> None:
        self._delivery = delivery
        self._transport = transport
        self._below = below
        self._timeout = timeout
        self._governed: frozenset[str] = frozenset()
        """Destinations that are paused or limited."""
        self._read_at = float("-inf")
        self._silent: dict[str, float] = {}
        """Destinations that have not answered, and until when they get nothing."""
        self._rests_until = float("-inf")

    def forward(self, entries: Sequence[IngestEntry], now: datetime) -> None:
        """Give messages that are due soon, and confirmed by the broker, their result. Raises StoreError."""
        if not self._below or time.monotonic() < self._rests_until:
            return
        before = now + self._below
        barred = self._read() | self._still_silent()
        soon = [
            entry
            for entry in entries
            if entry.message.due_time < before
            and entry.message.destination not in barred
            and entry.message.not_after is None  # a dispatcher knows whether it has expired
        ]
        if not soon:
            return
        outcomes = self._transport.send([entry.message for entry in soon], None, self._timeout)
        rest = time.monotonic() + _REST
        for entry, outcome in zip(soon, outcomes, strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                entry.result = IngestResult.PASSTHROUGH
            elif outcome.kind is OutcomeKind.UNAVAILABLE:
                self._silent[entry.message.destination] = rest
            elif outcome.kind is OutcomeKind.UNCONFIRMED:
                self._rests_until = rest

    def _still_silent(self) -> frozenset[str]:
        now = time.monotonic()
        self._silent = {destination: until for destination, until in self._silent.items() if now < until}
        return frozenset(self._silent)

    def _read(self) -> frozenset[str]:
        if self._delivery.operations.are_available and time.monotonic() - self._read_at > _READ_EVERY:
            self._read_at = time.monotonic()
            self._governed = frozenset(
                each.name
                for each in self._delivery.operations.destinations()
                if each.paused or each.max_rate is not None
            )
        return self._governed


_RETRY_TIMEOUT: Final = 10.0
"""Seconds for which a batch is tried again before its messages go back to their queue, where others may take them."""
_FEW: Final = 3
"""Where the store fails on this number, one by one, and has taken none, it is the store's fault."""
FAILS_FOR: Final = 60.0
"""Seconds for which the store fails on a message, although it answers, before the message is rejected."""
_AGAIN: Final = 1.0
"""Seconds for messages on which the store has failed, each time; each may take its own, and others wait."""
_BEHIND: Final = (
    "an earlier message of the message_id {!r} is not stored yet; the new one stays in its queue, and is tried after it"
)
_PAGE: Final = 200
"""Timeouts of a saga that are looked up and cancelled in one transaction."""
_ASKING: Final = 5.0
"""Seconds for the store to say how it is."""
_SLOW: Final = 0.5
"""Seconds for an answer; delays may be longer by them. After a slower one the store is asked once more."""

logger = logging.getLogger("delaystore.ingress")


class BatchProcessor:
    """Processes batches, one at a time.

    `changes`: makes the changes of waiting messages that publishers ask for. `stopping`: nothing is tried again once it
    is set.

    Where is a message if the process dies? In its queue, until it is acknowledged; from the store's commit, or the
    confirm of its copy, on also there.
    """

    def __init__(
        self,
        delivery: DelayedDelivery,
        changes: MessageChanges,
        reader: IncomingReader,
        storing: EntryStorage,
        passthrough: Passthrough,
        rejecting: RejectedQueue,
        breaker: RepeatedFailuresOverTimeCircuitBreaker,
        stopping: StopFlag,
    ) -> None:
        self._delivery = delivery
        self._changes = changes
        self._reader = reader
        self._storing = storing
        self._passthrough = passthrough
        self._rejecting = rejecting
        self._breaker = breaker
        self._stopping = stopping
        self._unacknowledged: set[str] = set()
        """Ids of messages that are to be stored before later messages with the same ids."""
        self._stored_at = 0.0
        """When something was last stored, by time.monotonic."""

    def process(self, entries: Sequence[IngestEntry], unacknowledged: Collection[str] = ()) -> str | None:
        """Give each entry a result. Why some have none; None: all have one.

        Those without one are to be tried again, apart from others: the store fails on them, or the rejected queue does
        not take them, or earlier messages of their ids are yet to be stored. `unacknowledged`: the ids of such
        messages. In an outage of the store it tries for a while, and then raises the store's error; entries that have
        a result keep it.
        """
        self._unacknowledged = set(unacknowledged)
        undone = _open(entries)
        failing = [entry for entry in undone if entry.failure is not None]
        fresh = [entry for entry in undone if entry.failure is None] if failing else undone
        trouble = (self._process_with_retries(fresh) if fresh else None) or _trouble(fresh)
        trouble = (self._try_again(failing) if failing else None) or trouble
        rejected = [entry for entry in entries if entry.result is None and entry.objection is not None]
        return (self._rejecting.reject(rejected) if rejected else None) or trouble

    def _process_with_retries(self, entries: Sequence[IngestEntry]) -> str | None:
        gives_up = time.monotonic() + _RETRY_TIMEOUT
        failed_before = False
        while True:
            try:
                self._process(self._not_behind(entries))
                self._breaker.success()
                return None
            except Exception as error:
                pause = self._breaker.failure(error)
                if failed_before and self._store_answers:
                    with suppress(Exception):  # it is the store's fault after all
                        return self._single_out(entries, error)
                failed_before = True
                if time.monotonic() + pause > gives_up or self._stopping.wait(pause):
                    return self._single_out(entries, error)

    def _single_out(self, entries: Sequence[IngestEntry], error: Exception) -> str | None:
        """Find, by halves, the messages that the store fails on, and note them; all others are stored. Raises in an
        outage.
        """
        failed: list[tuple[IngestEntry, str]] = []
        worked = False
        parts = _halves(self._not_behind(entries))
        while parts:
            if self._stopping.is_set() or not (worked or (len(failed) < _FEW and self._store_answers)):
                raise error
            part = parts.pop()
            try:
                self._process(self._not_behind(part))
                worked = True
                self._leave_unacknowledged(_open(part))
            except Exception as its_own:
                error = its_own
                left = self._not_behind(part)
                parts += _halves(left) if len(left) > 1 else []
                if len(left) == 1:
                    failed.append((left[0], str(error)))
                    self._leave_unacknowledged(left)
        if worked:
            self._breaker.success()
        for entry, failure in failed:
            logger.warning("the store fails on a message of %r: %s", entry.incoming.queue, failure)
            entry.failure, entry.failing_since = failure, time.monotonic()
        return _fails(error) if failed else None

    def _try_again(self, entries: Sequence[IngestEntry]) -> str | None:
        """Process one by one, for a while, the messages that the store has failed on; give up after failing for
        long.
        """
        until = time.monotonic() + _AGAIN
        for entry in entries:
            if entry.message_id in self._unacknowledged:
                continue
            try:
                self._process([entry])
            except Exception as error:
                entry.failure = str(error)
            self._leave_unacknowledged(_open([entry]))
            if time.monotonic() > until:
                break
        self._give_up(_open(entries))
        return _trouble(entries)

    def _not_behind(self, entries: Sequence[IngestEntry]) -> list[IngestEntry]:
        """Return open entries, without entries that stay behind an earlier message of their id.

        The latter get a failure that says so.
        """
        if not self._unacknowledged:
            return _open(entries)
        self._read(_unread(entries))
        found: list[IngestEntry] = []
        for entry in _open(entries):
            if entry.message_id not in self._unacknowledged:
                found.append(entry)
            elif entry.failure is None:
                entry.is_claimed, entry.failing_since = True, time.monotonic()
                entry.failure = _BEHIND.format(entry.message_id)
        return found

    def _leave_unacknowledged(self, entries: Iterable[IngestEntry]) -> None:
        """Have later messages with the ids of `entries` stay behind them."""
        self._unacknowledged |= {entry.message_id for entry in entries if entry.message_id is not None}

    def _give_up(self, entries: Sequence[IngestEntry]) -> None:
        """Object to messages that the store has failed on for long, or that have no room any more.

        Only where it has stored another one meanwhile: otherwise it may refuse them all, which says nothing of them.
        """
        now = time.monotonic()
        refused = (entry for entry in entries if not entry.is_claimed)
        doubtful = (entry for entry in refused if entry.given_up or now - entry.failing_since > FAILS_FOR)
        hopeless = [entry for entry in doubtful if entry.failing_since < self._stored_at]
        if hopeless and not self._store_answers:
            for entry in entries:
                entry.failing_since = now
        else:
            for entry in hopeless:
                entry.objection = f"the store fails on it: {entry.failure}"

    @property
    def _store_answers(self) -> bool:
        return self._delivery.health(_ASKING).store is None

    def _process(self, entries: Sequence[IngestEntry]) -> None:
        self._read(_unread(entries))
        messages: list[IngestEntry] = []  # one after the other: what is cancelled in between is stored by then
        for entry in _open(entries):
            if not isinstance(entry.meaning, SagaCleared):
                messages.append(entry)
                continue
            self._keep(messages)
            messages = []
            self._apply(entry)
        self._keep(messages)
        if any(entry.result is IngestResult.STORED for entry in entries):
            self._stored_at = time.monotonic()

    def _read(self, entries: Iterable[IngestEntry]) -> None:
        """Read the content of each. Delays count from when it came."""
        now, reading_at = self._clock()
        came_at, came = reading_at, now
        for entry in entries:
            if entry.at != came_at:
                came_at, came = entry.at, now - timedelta(seconds=reading_at - entry.at)
            try:
                entry.meaning = self._reader.read(entry.incoming, came)
            except (RejectedMessageError, InvalidMessageError) as error:
                entry.objection = str(error)
            except Exception as error:  # whatever it is, the others go on
                logger.exception("internal error while reading a message of %r; it is rejected", entry.incoming.queue)
                entry.objection = f"it could not be read: {error!r}"

    def _clock(self) -> tuple[datetime, float]:
        """The store's time, never behind, and when it was asked, by time.monotonic: never after the store was.

        Otherwise delays would begin before their messages came, by as long as the answer took.
        """
        asked_at, now = time.monotonic(), self._delivery.operations.latest_now()
        if time.monotonic() - asked_at > _SLOW:
            asked_at, now = time.monotonic(), self._delivery.operations.latest_now()
        return now, asked_at

    def _keep(self, entries: Sequence[IngestEntry]) -> None:
        if not entries:
            return
        self._passthrough.forward(entries, self._delivery.operations.now())
        self._storing.store([entry for entry in entries if entry.result is None])

    def _apply(self, entry: IngestEntry) -> None:
        """Cancel the saga's timeouts that wait by now."""
        assert isinstance(entry.meaning, SagaCleared)
        while self._cancel_some(entry.meaning.id_prefix):
            pass
        entry.result = IngestResult.APPLIED

    def _cancel_some(self, id_prefix: str) -> bool:
        """Cancel a page of them. Whether there may be more; claimed ones are left to their dispatchers.

        No operation by filter does it, which would look at all waiting messages: ids are found by their index. If
        the process dies, cancelled messages stay cancelled; the message that asks for it is in its queue, and asks
        again.
        """
        ids = self._delivery.message_ids(id_prefix, _PAGE)
        if not ids:
            return False
        results = self._changes.do_all([CancelRequest(message_id=each) for each in ids])
        return len(ids) == _PAGE and any(result.outcome is ManagementOutcome.DONE for result in results)


def _fails(error: Exception | str | None) -> str:
    return f"the store answers, and fails on them: {error}"


def _trouble(entries: Iterable[IngestEntry]) -> str | None:
    """Why the first message without a result is to be tried again."""
    for entry in _open(entries):
        if entry.failure is not None:
            return entry.failure if entry.is_claimed else _fails(entry.failure)
    return None


def _unread(entries: Iterable[IngestEntry]) -> list[IngestEntry]:
    return [entry for entry in entries if entry.meaning is None and entry.objection is None]


def _open(entries: Iterable[IngestEntry]) -> list[IngestEntry]:
    return [entry for entry in entries if entry.result is None and entry.objection is None]


def _halves(entries: Sequence[IngestEntry]) -> list[Sequence[IngestEntry]]:
    """Both halves, the first one last; a single one is its own."""
    middle = len(entries) // 2
    return [part for part in (entries[middle:], entries[:middle]) if part]
