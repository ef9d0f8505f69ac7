"""When the store shows a message again that was not removed."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from delaystore.dispatcher._batch import Batch
from delaystore.dispatcher._error_queue import Failure
from delaystore.dispatcher._retries import LONGEST_GAP_PAST_RETRIES, Deferrals, back_off, deferral, next_attempt
from delaystore.failures import FailedAttempt
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import FailedDelivery, retried_at

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
        self, batch: Batch, failure: Failure, *, on_its_way: bool = False, at_most: float | None = None
    ) -> None:
        """Note in `batch` that a message gives way to others for a while, at no retry's cost; `at_most`: seconds."""
        gap = deferral(self._gap(failure.message.failure_count), self._random)
        if on_its_way:
            gap = max(gap, _STILL_ON_ITS_WAY * self._settings.dispatch_timeout)
        elif at_most is not None:
            gap = min(gap, timedelta(seconds=at_most))
        batch.giving_way.append((failure, gap))

    def defer(self, batch: Batch) -> None:
        """Note that what has no answer gives way, though it is unknown whether its destination takes nothing."""
        batch.giving_way += [(each, min(self._gap(each.message.failure_count), _LONGEST)) for each in batch.unsettled]
        batch.deferred, batch.unsettled = len(batch.unsettled), []

    def write(self, tx: DelayedMessageStore, batch: Batch) -> None:
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
        self, tx: DelayedMessageStore, batch: Batch, gaps: Sequence[tuple[Failure, timedelta]], now: datetime
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

    def _keep_until_due(self, tx: DelayedMessageStore, batch: Batch) -> None:
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
