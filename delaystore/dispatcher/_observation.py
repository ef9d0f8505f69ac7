"""Telling an observer about a pass."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from delaystore.dispatcher._batch import Batch
from delaystore.dispatcher.health import NOTHING_DONE, DispatchReport
from delaystore.dispatcher.observer import DispatchObserver, PassReport, Stopwatch
from delaystore.message import DelayedMessage


@contextmanager
def observed(observer: DispatchObserver, batch: Batch, began: datetime) -> Iterator[None]:
    """A block that is one pass over `batch`, transaction included; `observer` hears of it at the block's end."""
    batch.stopwatch = Stopwatch()
    try:
        yield
    except Exception:
        observer.pass_ended(_report(batch, began, batch.stopwatch))
        raise
    observer.pass_ended(_report(batch, began, batch.stopwatch))


def _report(batch: Batch, began: datetime, stopwatch: Stopwatch) -> PassReport:
    done = batch.undone is None
    return PassReport(
        began=began,
        counts=batch.report() if done else NOTHING_DONE,
        by_destination=by_destination(batch) if done else {},
        lateness=_lateness(batch.delivered, batch.sent_at) if done else (),
        durations=stopwatch.end(),
        error=batch.undone,
    )


def by_destination(batch: Batch) -> Mapping[str, DispatchReport]:
    """What became of the batch, in numbers for each destination."""
    by_outcome: Mapping[str, Iterable[DelayedMessage]] = {
        "fetched": batch.messages,
        "delivered": batch.delivered,
        "moved_to_error_queue": [failure.message for failure in batch.moved],
        "failed": [failure.message for failure in (*batch.refused, *batch.not_moved)],
        "gave_way": [failure.message for failure, _ in batch.giving_way],
        "unsettled": [failure.message for failure in batch.unsettled],
        "unsuited": batch.unsuited,
        "parked": batch.parked,
        "postponed": [message for message, _ in batch.postponed],
    }
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for outcome, messages in by_outcome.items():
        for message in messages:
            counts[message.destination][outcome] += 1
    return {destination: DispatchReport(**numbers) for destination, numbers in counts.items()}


def _lateness(delivered: Sequence[DelayedMessage], sent_at: datetime | None) -> Sequence[float]:
    """In seconds; messages handed over before they were due are left out."""
    if sent_at is None:
        return ()
    return [(sent_at - message.due_time).total_seconds() for message in delivered if message.due_time <= sent_at]
