"""One batch of due messages: the result of each, for the observer, the report and recent activity."""

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from itertools import repeat
from operator import attrgetter, sub
from typing import Final

from typing_extensions import override

from delaystore.dispatcher._in_flight import Ended
from delaystore.dispatcher.error_queue import EXPIRED, Failure
from delaystore.dispatcher.health import NOTHING_DONE, DispatchReport
from delaystore.dispatcher.observer import GuardedObserver, PassReport, Phase, SettledMessages, Stopwatch
from delaystore.message import DelayedMessage
from delaystore.stores.documents import BOUNDS, LatenessHistogram
from delaystore.stores.operable import OperableTransaction
from delaystore.stores.records import BUSIEST, Activity, Ending

FIRST_LIMIT: Final = 64
"""How many messages to ask for at first."""


@dataclass(slots=True)
class PassBatch:
    """The messages of one pass, by their results so far; filled also when the pass fails."""

    at: datetime
    """Messages due at this time were asked for."""
    began: datetime = field(default_factory=partial(datetime.now, UTC))
    """On the store's clock; on this computer's while the store has not answered."""
    messages: Sequence[DelayedMessage] = ()
    operable: OperableTransaction | None = None
    """The pass's transaction, if the store is operable."""
    full: bool = False
    """As many were fetched as were asked for."""
    again: bool = False
    """Some stay as they were that may go in the next pass."""
    sent_at: datetime | None = None
    """When it was sent, on the store's clock; None: it was not."""
    early_from: datetime | None = None
    """Messages that were due later have been handed over to the native delay; None: none were."""
    delivered: Sequence[DelayedMessage] = ()
    undeliverable: list[Failure] = field(default_factory=list)
    """For the error queue."""
    refused: list[Failure] = field(default_factory=list)
    """To be tried again."""
    unconfirmed: list[Failure] = field(default_factory=list)
    """Without an answer; they stay as they were."""
    deferred: list[tuple[Failure, timedelta]] = field(default_factory=list)
    """Not to be sent for that time, so that others come first."""
    unanswered: list[DelayedMessage] = field(default_factory=list)
    """Messages of `deferred` that have no answer although the broker is there; the reason is unknown."""
    not_delayable: list[DelayedMessage] = field(default_factory=list)
    """Not due yet, and the transport cannot delay them; they stay until they are due."""
    moved: list[Failure] = field(default_factory=list)
    """In the error queue."""
    dropped: list[Failure] = field(default_factory=list)
    """To be deleted, because their latest delivery has passed."""
    not_moved: list[Failure] = field(default_factory=list)
    """Not taken by the error queue, with the reason why not."""
    paused: list[DelayedMessage] = field(default_factory=list)
    """For a paused destination; to be parked."""
    parked: Sequence[DelayedMessage] = ()
    """Messages of `paused` that the store has parked; the others stay as they were."""
    postponed: list[tuple[DelayedMessage, datetime]] = field(default_factory=list)
    """More than a limit allows, with their next attempts."""
    answered: bool = False
    """Whether the broker is known to have settled any of them."""
    silence: str = ""
    """Why the first of `unconfirmed` (or, if there are none, of the unanswered) has no answer."""
    outage: str | None = None
    """Why the transport could send nothing more, asked after the last send; None: it could."""
    counting: bool = False
    """Whether failures are being counted in the store."""
    failed: int = 0
    """Failures that the store has counted."""
    deferred_count: int = 0
    """How many of `deferred` the store shows later."""
    shown_later: int = 0
    """How many of `postponed` the store shows later."""
    claims_lost: int = 0
    undone: Exception | None = None
    """Why its transaction was undone; None: it was not."""
    stopwatch: Stopwatch | None = None
    """None: there is no observer."""

    @property
    def arrived(self) -> Sequence[DelayedMessage]:
        """Messages at their destination or in the error queue; undoing the transaction does not undo that."""
        return [*self.delivered, *(failure.message for failure in self.moved)] if self.moved else self.delivered

    @property
    def ended_at(self) -> datetime:
        """When the messages of the batch have ended, on the store's clock."""
        return self.sent_at or self.began

    @property
    def endings(self) -> Mapping[Ended, Sequence[DelayedMessage]]:
        """The messages of `arrived` by how they have ended."""
        expired = [failure.message for failure in self.moved if failure.kind == EXPIRED]
        found: dict[Ending, Sequence[DelayedMessage]] = {
            Ending.DELIVERED: self.delivered,
            Ending.FAILED: self.failed_for_good,
            Ending.EXPIRED: expired,
        }
        if self.early_from is not None:
            early = [each for each in self.delivered if each.due_time > self.early_from]
            found[Ending.DELIVERED] = [each for each in self.delivered if each.due_time <= self.early_from]
            found[Ending.HANDED_OVER] = early
        return {Ended(ending, self.ended_at): messages for ending, messages in found.items() if messages}

    @property
    def expired(self) -> Sequence[DelayedMessage]:
        """Messages whose latest delivery had passed, dropped or in the error queue."""
        return [failure.message for failure in (*self.dropped, *self.moved) if failure.kind == EXPIRED]

    @property
    def failed_for_good(self) -> Sequence[DelayedMessage]:
        """Messages in the error queue for another reason."""
        return [failure.message for failure in self.moved if failure.kind != EXPIRED]

    @property
    def silent(self) -> bool:
        """Whether messages have no answer, and that looks like an outage."""
        return bool(self.unconfirmed or (self.unanswered and not self.answered))

    def leave_unconfirmed(self, message: DelayedMessage, reason: str) -> None:
        """Note that `message` has no answer."""
        if not self.unconfirmed:
            self.silence = reason
        self.unconfirmed.append(Failure(message, "Unconfirmed", reason))

    def begin(self, phase: Phase) -> None:
        """Tell the stopwatch that `phase` begins."""
        if self.stopwatch is not None:
            self.stopwatch.begin(phase)

    def report(self) -> DispatchReport:
        """The results of the batch, in numbers."""
        return DispatchReport(
            fetched=len(self.messages),
            delivered=len(self.delivered),
            moved_to_error_queue=len(self.failed_for_good),
            expired=len(self.expired),
            failed=self.failed,
            deferred=self.deferred_count,
            unconfirmed=len(self.unconfirmed),
            not_delayable=len(self.not_delayable),
            parked=len(self.parked),
            postponed=self.shown_later,
            claims_lost=self.claims_lost,
        )


class BatchSizer:
    """Decides how many messages to ask for: few at first, twice as many after each full batch.

    The bodies of a batch stay near `most_bytes`. `largest_body`: the longest body expected, in bytes; before the first
    batch, every body is taken to be that long.
    """

    def __init__(self, most: int, most_bytes: int, largest_body: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._average = 0.0
        self.limit = max(1, min(FIRST_LIMIT, most, most_bytes // largest_body))
        """How many messages to ask for next."""

    def learn(self, batch: Sequence[DelayedMessage]) -> None:
        """Take a fetched batch into account; an empty one changes nothing."""
        if not batch:
            return
        average = sum([len(message.body) for message in batch]) / len(batch)
        # Longer bodies count at once, shorter ones slowly: memory matters more than speed.
        self._average = max(average, (self._average + average) / 2)
        wanted = self.limit * 2 if len(batch) >= self.limit else self.limit
        bearable = int(self._most_bytes // max(self._average, 1))
        self.limit = max(1, min(wanted, self._most, bearable))

    def slow_down(self) -> None:
        """The broker did not settle a batch in time: ask for half as many."""
        self.limit = max(1, self.limit // 2)


MOST_MINUTES: Final = 60
"""Minutes kept while no heartbeat succeeds; the oldest go first."""

MOST_DESTINATIONS: Final = 1_000
"""Destinations counted in one minute; beyond this number the ones with the fewest messages are forgotten."""

_FEW: Final = 50
"""Up to this many messages, looking for the bucket of each is faster."""

_BOUNDS: Final = [timedelta(seconds=bound) for bound in BOUNDS]
_destination = attrgetter("destination")


@dataclass(slots=True)
class _Minute:
    delivered: int = 0
    failed: int = 0
    moved: int = 0
    expired: int = 0
    deferred: int = 0
    lateness: LatenessHistogram = field(default_factory=LatenessHistogram)
    by_destination: Counter[str] = field(default_factory=Counter)


class RecentActivity:
    """Adds up the results of passes. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: defaultdict[datetime, _Minute] = defaultdict(_Minute)

    def note(self, batch: PassBatch, report: DispatchReport, now: datetime) -> None:
        """Count a pass; `now`: when it began, for messages that it did not send."""
        at = batch.sent_at or now
        due_times = [] if batch.sent_at is None else [message.due_time for message in batch.delivered]
        with self._lock:
            minute = self._minutes[at.replace(second=0, microsecond=0)]
            minute.delivered += report.delivered
            minute.failed += report.failed
            minute.moved += report.moved_to_error_queue
            minute.expired += report.expired
            minute.deferred += report.deferred
            _add_lateness(minute.lateness, due_times, at)
            _add_destinations(minute.by_destination, batch.delivered)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._minutes

    def take(self) -> Sequence[Activity]:
        """Take the counts since the last call."""
        with self._lock:
            minutes, self._minutes = self._minutes, defaultdict(_Minute)
        return [_activity(minute, done) for minute, done in sorted(minutes.items())]

    def give_back(self, activities: Sequence[Activity]) -> None:
        """Keep activities that could not be reported, for the next heartbeat."""
        with self._lock:
            for each in activities:
                minute = self._minutes[each.minute]
                minute.delivered += each.delivered
                minute.failed += each.failed
                minute.moved += each.moved_to_error_queue
                minute.expired += each.expired
                minute.deferred += each.deferred
                minute.lateness += each.lateness
                minute.by_destination.update(each.by_destination)
            for oldest in sorted(self._minutes)[:-MOST_MINUTES]:
                del self._minutes[oldest]


def _activity(minute: datetime, done: _Minute) -> Activity:
    return Activity(
        minute=minute,
        delivered=done.delivered,
        failed=done.failed,
        moved_to_error_queue=done.moved,
        expired=done.expired,
        deferred=done.deferred,
        lateness=done.lateness,
        by_destination=dict(done.by_destination.most_common(BUSIEST)),
    )


def _add_destinations(counts: Counter[str], delivered: Sequence[DelayedMessage]) -> None:
    counts.update(map(_destination, delivered))
    if len(counts) > MOST_DESTINATIONS:
        busiest = counts.most_common(MOST_DESTINATIONS // 2)
        counts.clear()
        counts.update(dict(busiest))


def _add_lateness(histogram: LatenessHistogram, due_times: list[datetime], sent_at: datetime) -> None:
    """Count each message that was due when it was sent; a message that was handed over earlier is not late at all."""
    if len(due_times) <= _FEW:
        histogram.add((sent_at - due_time).total_seconds() for due_time in due_times if due_time <= sent_at)
        return
    due_times.sort()  # in order but for retries: nearly for nothing
    later = bisect_left(due_times, sent_at + timedelta(microseconds=1))
    for number, bound in enumerate(_BOUNDS):
        not_later_than = bisect_left(due_times, sent_at - bound, hi=later)
        histogram.counts[number] += later - not_later_than
        later = not_later_than
        if not later:
            return
    histogram.counts[-1] += later


@contextmanager
def observed(observer: GuardedObserver, batch: PassBatch) -> Iterator[None]:
    """A block that is one pass over `batch`, transaction included; `observer` hears of it at the block's end."""
    batch.stopwatch = Stopwatch()
    try:
        yield
    except Exception:
        observer.pass_ended(_report(batch, batch.stopwatch))
        raise
    report = _report(batch, batch.stopwatch)
    if observer.hears_of_messages and batch.messages and batch.undone is None:
        observer.messages_settled(report, _settled(batch))
    observer.pass_ended(report)


def _report(batch: PassBatch, stopwatch: Stopwatch) -> PassReport:
    done = batch.undone is None
    return PassReport(
        began=batch.began,
        counts=batch.report() if done else NOTHING_DONE,
        by_destination=_ByDestination(batch) if done else {},
        lateness=_lateness(batch.delivered, batch.sent_at) if done else (),
        durations=stopwatch.end(),
        error=batch.undone,
    )


class _ByDestination(Mapping[str, DispatchReport]):
    """The results of the batch, in numbers for each destination.

    Counted once an observer looks: counting costs as much as all else of a report.
    """

    def __init__(self, batch: PassBatch) -> None:
        self._batch = batch

    @override
    def __getitem__(self, destination: str) -> DispatchReport:
        return self._counted[destination]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._counted)

    @override
    def __len__(self) -> int:
        return len(self._counted)

    @override
    def __repr__(self) -> str:
        return repr(self._counted)

    @cached_property
    def _counted(self) -> dict[str, DispatchReport]:
        counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for outcome, messages in _by_outcome(self._batch).items():
            for destination, count in Counter([message.destination for message in messages]).items():
                counts[destination][outcome] = count
        return {destination: DispatchReport(**numbers) for destination, numbers in counts.items()}


def _by_outcome(batch: PassBatch) -> Mapping[str, Sequence[DelayedMessage]]:
    return {
        "fetched": batch.messages,
        "delivered": batch.delivered,
        "moved_to_error_queue": batch.failed_for_good,
        "expired": batch.expired,
        "failed": [failure.message for failure in (*batch.refused, *batch.not_moved)],
        "deferred": [failure.message for failure, _ in batch.deferred],
        "unconfirmed": [failure.message for failure in batch.unconfirmed],
        "not_delayable": batch.not_delayable,
        "parked": batch.parked,
        "postponed": [message for message, _ in batch.postponed],
    }


def _settled(batch: PassBatch) -> SettledMessages:
    deferred = (failure for failure, _ in batch.deferred)
    failures = (*batch.moved, *batch.dropped, *batch.refused, *batch.not_moved, *deferred, *batch.unconfirmed)
    reasons = {failure.message.message_id: failure.reason for failure in failures}
    return SettledMessages(by_outcome=_by_outcome(batch), reasons=reasons)


def _lateness(delivered: Sequence[DelayedMessage], sent_at: datetime | None) -> Sequence[float]:
    """In seconds; messages handed over before they were due are left out."""
    if sent_at is None:
        return ()
    due_times = [message.due_time for message in delivered]
    if due_times and max(due_times) > sent_at:
        due_times = [due_time for due_time in due_times if due_time <= sent_at]
    return list(map(timedelta.total_seconds, map(sub, repeat(sent_at), due_times)))  # at C's speed, for each message
