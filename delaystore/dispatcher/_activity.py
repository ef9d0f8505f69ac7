"""What a dispatcher has done since its last beat, by minute."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final

from delaystore.dispatcher._batch import Batch
from delaystore.dispatcher.health import DispatchReport
from delaystore.lateness import BOUNDS, LatenessHistogram
from delaystore.message import DelayedMessage
from delaystore.stores.operable import BUSIEST, Activity

MOST_MINUTES: Final = 60
"""Minutes kept while no beat succeeds; the oldest go first."""
MOST_DESTINATIONS: Final = 1_000
"""Destinations counted in one minute; beyond that those that got least are forgotten."""
_FEW: Final = 50
"""Up to so many messages it takes less to look for the bucket of each."""
_BOUNDS: Final = [timedelta(seconds=bound) for bound in BOUNDS]
_destination = attrgetter("destination")


@dataclass(slots=True)
class _Minute:
    delivered: int = 0
    failed: int = 0
    moved: int = 0
    gave_way: int = 0
    lateness: LatenessHistogram = field(default_factory=LatenessHistogram)
    by_destination: Counter[str] = field(default_factory=Counter)


class RecentActivity:
    """Adds up what passes did. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: dict[datetime, _Minute] = {}

    def note(self, batch: Batch, report: DispatchReport, now: datetime) -> None:
        """Count a pass; `now`: when it began, for what was not sent in it."""
        at = batch.sent_at or now
        due_times = [] if batch.sent_at is None else [message.due_time for message in batch.delivered]
        with self._lock:
            minute = self._minutes.setdefault(at.replace(second=0, microsecond=0), _Minute())
            minute.delivered += report.delivered
            minute.failed += report.failed
            minute.moved += report.moved_to_error_queue
            minute.gave_way += report.gave_way
            _add_lateness(minute.lateness, due_times, at)
            _add_destinations(minute.by_destination, batch.delivered)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._minutes

    def take(self) -> Sequence[Activity]:
        """What was counted since it was taken last."""
        with self._lock:
            minutes, self._minutes = self._minutes, {}
        return [_activity(minute, done) for minute, done in sorted(minutes.items())]

    def give_back(self, activities: Sequence[Activity]) -> None:
        """Keep for the next beat what could not be told."""
        with self._lock:
            for each in activities:
                minute = self._minutes.setdefault(each.minute, _Minute())
                minute.delivered += each.delivered
                minute.failed += each.failed
                minute.moved += each.moved_to_error_queue
                minute.gave_way += each.gave_way
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
        gave_way=done.gave_way,
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
    """Count each that was due when it was sent; what was handed over earlier is not late at all."""
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
