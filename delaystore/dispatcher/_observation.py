"""Telling an observer about a pass."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from itertools import repeat
from operator import sub

from typing_extensions import override

from delaystore.dispatcher._batch import Batch
from delaystore.dispatcher.health import NOTHING_DONE, DispatchReport
from delaystore.dispatcher.observer import GuardedObserver, PassReport, SettledMessages, Stopwatch
from delaystore.message import DelayedMessage


@contextmanager
def observed(observer: GuardedObserver, batch: Batch, began: datetime) -> Iterator[None]:
    """A block that is one pass over `batch`, transaction included; `observer` hears of it at the block's end."""
    batch.stopwatch = Stopwatch()
    try:
        yield
    except Exception:
        observer.pass_ended(_report(batch, began, batch.stopwatch))
        raise
    report = _report(batch, began, batch.stopwatch)
    if observer.hears_of_messages and batch.messages and batch.undone is None:
        observer.messages_settled(report, _settled(batch))
    observer.pass_ended(report)


def _report(batch: Batch, began: datetime, stopwatch: Stopwatch) -> PassReport:
    done = batch.undone is None
    return PassReport(
        began=began,
        counts=batch.report() if done else NOTHING_DONE,
        by_destination=_ByDestination(batch) if done else {},
        lateness=_lateness(batch.delivered, batch.sent_at) if done else (),
        durations=stopwatch.end(),
        error=batch.undone,
    )


def by_destination(batch: Batch) -> dict[str, DispatchReport]:
    """What became of the batch, in numbers for each destination."""
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for outcome, messages in _by_outcome(batch).items():
        for destination, count in Counter([message.destination for message in messages]).items():
            counts[destination][outcome] = count
    return {destination: DispatchReport(**numbers) for destination, numbers in counts.items()}


class _ByDestination(Mapping[str, DispatchReport]):
    """What `by_destination` returns, counted once somebody looks: that costs as much as all else of a report."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    @cached_property
    def _counted(self) -> dict[str, DispatchReport]:
        return by_destination(self._batch)

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


def _by_outcome(batch: Batch) -> Mapping[str, Sequence[DelayedMessage]]:
    return {
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


def _settled(batch: Batch) -> SettledMessages:
    giving_way = (failure for failure, _ in batch.giving_way)
    failures = (*batch.moved, *batch.refused, *batch.not_moved, *giving_way, *batch.unsettled)
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
