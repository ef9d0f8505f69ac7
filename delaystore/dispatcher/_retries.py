"""When a message that could not be forwarded is tried again, and when its failures are logged."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from delaystore.dispatcher._batch import PassBatch
from delaystore.dispatcher._in_flight import InFlightTracker, keep_youngest
from delaystore.dispatcher.error_queue import EXPIRED, Failure
from delaystore.message import LATEST_DUE_TIME, DelayedMessage, FailedAttempt
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.records import FailedDelivery, retried_at
from delaystore.text import counted
from delaystore.transports.abc import Outcome, OutcomeKind

FACTOR: Final = 4.0
"""Each gap is this many times the one before."""

JITTER: Final = 0.2
"""Gaps are lengthened at random by up to this share, so that retries of many messages spread out."""

SHORTEST_GAP: Final = 1.0
"""Seconds; gaps are shorter where the whole span is too short for this."""

LONGEST_GAP_PAST_RETRIES: Final = 60.0
"""The most seconds between attempts of a message that the error queue did not take either."""


class Deferral(NamedTuple):
    """For how long messages without a confirm are deferred."""

    longest: timedelta
    earlier: float
    """The share of that time by which a message is shown earlier at most, at random."""

    def of(self, gap: timedelta, random: Callable[[], float]) -> timedelta:
        """How long a message is deferred that would wait for `gap` after a failure; `random` gives 0 to 1."""
        return min(gap, self.longest) * (1 - self.earlier * random())


UNAVAILABLE: Final = Deferral(timedelta(seconds=45), 0.5)
"""Of messages whose destination is unavailable. One message tries it each few seconds, so that the last one arrives
within a minute of the recovery. They come back one by one, and some of them soon: messages that come back while the
destination is suspended cost no time."""

NO_ANSWER: Final = Deferral(timedelta(seconds=60), 0.0)
"""Of messages that alone get no answer. They come back together: each batch with such a message in it waits for the
whole of `dispatch_timeout`."""

_IN_FLIGHT_FOR: Final = 2
"""Times `dispatch_timeout` that a message in flight is deferred at least. Other dispatchers do not know that it is in
flight, and would send it again."""


def deferral_of(outcome: Outcome, outage: str | None, *, answers_others: bool) -> Deferral | None:
    """The one rule for deferring: how a message with this outcome is deferred; None: it is not.

    In an outage, messages without an answer stay as they are, and are tried first when it is over. If the broker is
    there and does not answer just these (their queue has lost its majority), they would come first in every batch.
    Those of an unavailable destination are deferred in any case: the transport knows that the broker is there.

    Args:
        outcome: The transport's outcome of the message.
        outage: Why the transport can send nothing more; None: it can.
        answers_others: Whether the broker answers other messages. True also if it has answered none for long: a batch
            that holds only messages without an answer would otherwise come first forever.

    """
    if outcome.kind is OutcomeKind.UNAVAILABLE:
        return UNAVAILABLE
    if outage is not None or outcome.kind is not OutcomeKind.UNCONFIRMED:
        return None
    if outcome.late is not None:
        return UNAVAILABLE
    return NO_ANSWER if answers_others else None


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


class NextAttempts:
    """Decides when messages are shown again, and writes it. Threads may share it.

    `random` gives numbers from 0 to 1.
    """

    def __init__(
        self, settings: DelayedDeliverySettings, in_flight: InFlightTracker, random: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._in_flight = in_flight
        self._random = random
        self.shown_at: Final = partial(next_attempt, gap=settings.handover_horizon)
        """The next attempt with which a message is fetched at a time: passes fetch a horizon ahead."""

    def has_retries(self, message: DelayedMessage) -> bool:
        """Whether a refused message is to be tried again."""
        return self._in_flight.failures(message) < self._settings.number_of_retries

    def defer(
        self,
        batch: PassBatch,
        failure: Failure,
        deferral: Deferral,
        *,
        in_flight: bool = False,
        at_most: float | None = None,
    ) -> None:
        """Note in `batch` that a message is shown again later, without using a retry.

        Args:
            batch: The batch of the message.
            failure: The message, and why it is deferred.
            deferral: For how long.
            in_flight: Whether it may arrive yet; it is then not shown too soon.
            at_most: Seconds after which the message is to try its destination again; None: any.

        """
        gap = deferral.of(self._gap(failure.message.failure_count), self._random)
        if in_flight:
            gap = max(gap, _IN_FLIGHT_FOR * self._settings.dispatch_timeout)
        elif at_most is not None:
            gap = min(gap, timedelta(seconds=at_most))
        batch.deferred.append((failure, gap))

    def write(self, tx: DelayedMessageStore, batch: PassBatch) -> None:
        """Count failures; the store shows these messages again later, counted from now. Raises its errors."""
        failed = [*batch.refused, *batch.not_moved]
        if failed or batch.deferred:
            now = tx.now()
            gaps = [(failure, self._gap(self._in_flight.failures(failure.message))) for failure in failed]
            batch.failed = self._count(tx, batch, gaps, now)
            batch.deferred_count = self._count(tx, batch, batch.deferred, now)
        if batch.not_delayable:
            self._keep_until_due(tx, batch)

    def _count(
        self, tx: DelayedMessageStore, batch: PassBatch, gaps: Sequence[tuple[Failure, timedelta]], now: datetime
    ) -> int:
        """Count a failure of each message, and show it again after its gap; returns how many were there."""
        if not gaps:
            return 0
        times = [self._shown_again_at(failure.message, now, gap) for failure, gap in gaps]
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

    def _shown_again_at(self, message: DelayedMessage, now: datetime, gap: timedelta) -> datetime:
        """A horizon after the gap, but in time for its due time; not before that, also after the clock stepped back."""
        shown_at = self.shown_at(_not_late(message, now, next_attempt(now, gap)))
        return retried_at(max(shown_at, message.due_time))

    def _keep_until_due(self, tx: DelayedMessageStore, batch: PassBatch) -> None:
        """Show again messages that cannot be delayed natively; that is no failure, but not every store knows the
        difference.
        """
        shown = [(message, retried_at(self.shown_at(message.due_time))) for message in batch.not_delayable]
        if batch.operable is None:
            tx.increment_failure_counts(shown)
        else:
            batch.operable.postpone(shown)

    def _gap(self, earlier_failures: int) -> timedelta:
        settings = self._settings
        return back_off(earlier_failures + 1, settings.number_of_retries, settings.retry_span, self._random)


def _not_late(message: DelayedMessage, now: datetime, attempt: datetime) -> datetime:
    """`attempt`, but no later than the due time of a message that is not due yet."""
    return min(attempt, message.due_time) if message.due_time > now else attempt


logger = logging.getLogger("delaystore.dispatcher")
_EXPIRED: Final = "the latest delivery has passed"
QUIET: Final = 60.0
"""Seconds in which failures of the same destination, for the same reason, are logged once."""

MOST_REPORTED: Final = 1_000
MOST_NAMED: Final = 20
"""Message_ids that one line names, where the log has the level DEBUG."""


class FailureGroup(NamedTuple):
    """Destination, kind and reason of messages that fail alike."""

    destination: str
    kind: str
    reason: str


def grouped(failures: Iterable[Failure]) -> Mapping[FailureGroup, Sequence[DelayedMessage]]:
    """The messages of `failures`, grouped by their common part."""
    groups: dict[FailureGroup, list[DelayedMessage]] = {}
    for each in failures:
        reason = _EXPIRED if each.kind == EXPIRED else each.reason  # which says how late each message is
        groups.setdefault(FailureGroup(each.message.destination, each.kind, reason), []).append(each.message)
    return groups


class FailureLog:
    """Logs the failures of passes. Threads may share it.

    Deferred messages are logged at DEBUG only: a WARNING says when their destination is suspended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: dict[FailureGroup, float] = {}

    def log(self, batch: PassBatch) -> None:
        """Log why messages of a pass were not forwarded."""
        for alike, messages in grouped(batch.dropped).items():
            _log(logging.WARNING, "dropped", alike, messages)
        if not (batch.refused or batch.deferred):
            return
        for alike, messages in grouped(batch.refused).items():
            level = logging.WARNING if self._is_news(alike) else logging.DEBUG
            _log(level, "failed and will be tried again", alike, messages)
        if batch.deferred and logger.isEnabledFor(logging.DEBUG):
            for alike, messages in grouped(failure for failure, _ in batch.deferred).items():
                _log(logging.DEBUG, "deferred", alike, messages)

    def _is_news(self, alike: FailureGroup) -> bool:
        now = time.monotonic()
        with self._lock:
            logged = self._logged.pop(alike, None)
            is_news = logged is None or now - logged >= QUIET
            self._logged[alike] = now if logged is None or is_news else logged
            keep_youngest(self._logged, MOST_REPORTED)
        return is_news


def _log(level: int, what: str, alike: FailureGroup, messages: Sequence[DelayedMessage]) -> None:
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
