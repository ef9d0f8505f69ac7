"""When a message that could not be forwarded is tried again, and when its failures are logged."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from delaystore.dispatcher._batch import PassBatch
from delaystore.dispatcher._in_flight import keep_youngest
from delaystore.dispatcher.error_queue import Failure
from delaystore.message import LATEST_DUE_TIME, DelayedMessage, FailedAttempt
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import FailedDelivery, retried_at
from delaystore.text import counted

FACTOR: Final = 4.0


"""Each gap is this many times the one before."""


JITTER: Final = 0.2


"""Gaps are lengthened at random by up to this share, so that retries of many messages spread out."""


SHORTEST_GAP: Final = 1.0


"""Seconds; gaps are shorter where the whole span is too short for this."""


LONGEST_GAP_PAST_RETRIES: Final = 60.0


"""The most seconds between attempts of a message that the error queue did not take either."""


LONGEST_DEFERRAL: Final = timedelta(seconds=45)


"""The longest that a message gives way. Its destination is tried each few seconds, so that the last message arrives
within a minute of the recovery."""


MOST_COUNTS: Final = 100_000


"""The most messages remembered, in some ten megabytes. Beyond that, the deferrals of the oldest count as failed
attempts."""


def back_off(failure_count: int, number_of_retries: int, span: timedelta, random: Callable[[], float]) -> timedelta:
    """How long a message waits after its `failure_count`-th failure (from 1).

    There are `number_of_retries` gaps, each four times the one before, and together at least `span`. A message that has
    used them up, and that the error queue did not take, waits as long as the longest gap, but about a minute at most.
    `random` gives numbers from 0 to 1.
    """
    total = span.total_seconds()
    if failure_count > number_of_retries:
        gap = min(_gap(number_of_retries, number_of_retries, total), LONGEST_GAP_PAST_RETRIES)
    else:
        gap = _gap(failure_count, number_of_retries, total)
    return timedelta(seconds=gap * (1 + JITTER * random()))


def deferral(gap: timedelta, random: Callable[[], float]) -> timedelta:
    """How long a message gives way that would wait for `gap` after a failure: at least half of that, at random.

    So messages that gave way together come back one by one, and some of them soon.
    """
    return min(gap, LONGEST_DEFERRAL) * (1 - random() / 2)


def next_attempt(now: datetime, gap: timedelta) -> datetime:
    """`now` + `gap`, or the latest time a message can have."""
    try:
        return min(now + gap, LATEST_DUE_TIME)
    except OverflowError:
        return LATEST_DUE_TIME


def _gap(failure_count: int, number_of_retries: int, total: float) -> float:
    """Seconds, without jitter. Weights count back from the last gap, so that many retries overflow nothing."""
    if number_of_retries == 0:
        return total
    sum_of_weights = (1 - FACTOR**-number_of_retries) / (1 - 1 / FACTOR)
    gap = total * FACTOR ** (failure_count - number_of_retries) / sum_of_weights
    return max(gap, min(SHORTEST_GAP, total / number_of_retries))


class Deferrals:
    """Counts how often each message gave way to others because it got no answer.

    The store can show a message later only by counting a failure. Deferrals must not use up retries, so they are
    subtracted while this process lives. Threads may share it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}
        """Numbers of deferrals. By a hash of message_id and due time (an id may be used again), which takes little."""

    def note(self, messages: Iterable[DelayedMessage]) -> None:
        """Count one more deferral of each of `messages`, whose failure counts the store has raised."""
        with self._lock:
            for message in messages:
                key = _key(message)
                self._counts[key] = self._counts.pop(key, 0) + 1
            keep_youngest(self._counts, MOST_COUNTS)

    def failures(self, message: DelayedMessage) -> int:
        """How often `message` has failed, without its deferrals."""
        with self._lock:
            return max(0, message.failure_count - self._counts.get(_key(message), 0))

    def forget(self, messages: Iterable[DelayedMessage]) -> None:
        """Forget `messages`, which have arrived."""
        with self._lock:
            if self._counts:
                for message in messages:
                    self._counts.pop(_key(message), None)


def _key(message: DelayedMessage) -> int:
    return hash((message.message_id, message.due_time))


_STILL_ON_ITS_WAY: Final = 2


"""Times `dispatch_timeout` that a message on its way is not shown, as other dispatchers would send it again."""


_LONGEST: Final = timedelta(seconds=LONGEST_GAP_PAST_RETRIES)


"""The longest that a message is not shown that is UNSETTLED while the broker answers others."""


class NextAttempts:
    """Decides when messages are shown again, and writes it. Threads may share it.

    `random` gives numbers from 0 to 1.
    """

    def __init__(self, settings: DelayedDeliverySettings, deferrals: Deferrals, random: Callable[[], float]) -> None:
        self._settings = settings
        self._deferrals = deferrals
        self._random = random

    def has_retries(self, message: DelayedMessage) -> bool:
        """Whether a refused message is to be tried again."""
        return self._deferrals.failures(message) < self._settings.number_of_retries

    def give_way(
        self, batch: PassBatch, failure: Failure, *, on_its_way: bool = False, at_most: float | None = None
    ) -> None:
        """Note in `batch` that a message gives way to others for a while, at no retry's cost; `at_most`: seconds."""
        gap = deferral(self._gap(failure.message.failure_count), self._random)
        if on_its_way:
            gap = max(gap, _STILL_ON_ITS_WAY * self._settings.dispatch_timeout)
        elif at_most is not None:
            gap = min(gap, timedelta(seconds=at_most))
        batch.giving_way.append((failure, gap))

    def defer(self, batch: PassBatch) -> None:
        """Note that what has no answer gives way, though it is unknown whether its destination takes nothing."""
        batch.giving_way += [(each, min(self._gap(each.message.failure_count), _LONGEST)) for each in batch.unsettled]
        batch.deferred, batch.unsettled = len(batch.unsettled), []

    def write(self, tx: DelayedMessageStore, batch: PassBatch) -> None:
        """Count failures; the store shows these messages again later, counted from now. Raises its errors."""
        failed = [*batch.refused, *batch.not_moved]
        if failed or batch.giving_way:
            now = tx.now()
            gaps = [(failure, self._gap(self._deferrals.failures(failure.message))) for failure in failed]
            batch.failed = self._count(tx, batch, gaps, now)
            batch.gave_way = self._count(tx, batch, batch.giving_way, now)
        if batch.unsuited:
            self._keep_until_due(tx, batch)

    def _count(
        self, tx: DelayedMessageStore, batch: PassBatch, gaps: Sequence[tuple[Failure, timedelta]], now: datetime
    ) -> int:
        """Count a failure of each message, and show it again after its gap; returns how many were there."""
        if not gaps:
            return 0
        times = [
            retried_at(self.shown_at(_not_late(failure.message, now, next_attempt(now, gap)))) for failure, gap in gaps
        ]
        failures = [failure for failure, _ in gaps]
        if batch.operable is None:
            return tx.increment_failure_counts(
                [(failure.message, time) for failure, time in zip(failures, times, strict=True)]
            )
        return batch.operable.count_failures(
            [
                FailedDelivery(
                    message=failure.message,
                    next_attempt=time,
                    attempt=FailedAttempt(now, failure.kind, failure.reason),
                )
                for failure, time in zip(failures, times, strict=True)
            ]
        )

    def _keep_until_due(self, tx: DelayedMessageStore, batch: PassBatch) -> None:
        """Show again what cannot be delayed natively; that is no failure, but not every store knows the difference."""
        shown = [(message, retried_at(self.shown_at(message.due_time))) for message in batch.unsuited]
        if batch.operable is None:
            tx.increment_failure_counts(shown)
        else:
            batch.operable.postpone(shown)

    def shown_at(self, time: datetime) -> datetime:
        """The next attempt with which a message is fetched at `time`: passes fetch a horizon ahead."""
        return next_attempt(time, self._settings.handover_horizon)

    def _gap(self, earlier_failures: int) -> timedelta:
        settings = self._settings
        return back_off(earlier_failures + 1, settings.number_of_retries, settings.retry_span, self._random)


def _not_late(message: DelayedMessage, now: datetime, attempt: datetime) -> datetime:
    """`attempt`, but no later than the due time of a message that is not due yet."""
    return min(attempt, message.due_time) if message.due_time > now else attempt


logger = logging.getLogger("delaystore.dispatcher")


QUIET: Final = 60.0


"""Seconds in which failures of the same destination, for the same reason, are told of once."""


MOST_REPORTED: Final = 1_000


MOST_NAMED: Final = 20


"""Message_ids that one line names, where the log has the level DEBUG."""


class FailureGroup(NamedTuple):
    """What messages have in common that fail alike."""

    destination: str
    kind: str
    reason: str


def grouped(failures: Iterable[Failure]) -> Mapping[FailureGroup, Sequence[DelayedMessage]]:
    """The messages of `failures` by what they have in common."""
    groups: dict[FailureGroup, list[DelayedMessage]] = {}
    for each in failures:
        groups.setdefault(FailureGroup(each.message.destination, each.kind, each.reason), []).append(each.message)
    return groups


class FailureLog:
    """Tells of the failures of passes. Threads may share it.

    What gives way is told at DEBUG only: WARNING has it when its destination is set aside.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._told: dict[FailureGroup, float] = {}

    def tell(self, batch: PassBatch) -> None:
        """Tell why messages of a pass were not forwarded."""
        for alike, messages in grouped(batch.refused).items():
            level = logging.WARNING if self._is_news(alike) else logging.DEBUG
            _tell(level, "failed and will be tried again", alike, messages)
        if batch.giving_way and logger.isEnabledFor(logging.DEBUG):
            for alike, messages in grouped(failure for failure, _ in batch.giving_way).items():
                _tell(logging.DEBUG, "give way", alike, messages)

    def _is_news(self, alike: FailureGroup) -> bool:
        now = self._monotonic()
        with self._lock:
            told = self._told.pop(alike, None)
            is_news = told is None or now - told >= QUIET
            self._told[alike] = now if told is None or is_news else told
            keep_youngest(self._told, MOST_REPORTED)
        return is_news


def _tell(level: int, what: str, alike: FailureGroup, messages: Sequence[DelayedMessage]) -> None:
    named = MOST_NAMED if logger.isEnabledFor(logging.DEBUG) else 1
    ids = ", ".join(repr(message.message_id) for message in messages[:named])
    more = ", ..." if len(messages) > named else ""
    logger.log(
        level,
        "%s to %r %s: %s: %s; %s%s",
        counted(len(messages), "message"),
        alike.destination,
        what,
        alike.kind,
        alike.reason,
        ids,
        more,
    )
