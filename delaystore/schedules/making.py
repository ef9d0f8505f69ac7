"""Making occurrences: which ones a schedule's row makes at a time, and when a dispatcher looks at it again."""

import logging
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from delaystore.errors import DelaystoreError, InvalidScheduleError
from delaystore.message import DelayedMessage
from delaystore.schedules.definition import MOST_LATE, CatchUp, IfWaiting, Schedule
from delaystore.schedules.rules import zone_fingerprint
from delaystore.stores.schedules import ScheduleRows, StoredSchedule, occurrence_id
from delaystore.text import time_text

log = logging.getLogger("delaystore.schedules")
HORIZON: Final = timedelta(minutes=2)
"""How far ahead of their nominal times occurrences are made, at the most."""
LEAD: Final = timedelta(seconds=59.5)
"""How far ahead of the next occurrence a dispatcher looks at a row again: dispatchers may be away for so long.

Nominal times are whole seconds, at which many occurrences are dispatched; rows are looked at between them.
"""
MOST_CAUGHT_UP: Final = 1_000
"""The most missed occurrences that are made of one schedule."""
MOST_COUNTED: Final = 10_000
"""Up to how many missed occurrences are counted at once."""
AT_ONCE: Final = 200
"""The most rows of one transaction."""
LONGEST: Final = 1.0
"""Seconds of computing after which a transaction leaves the other rows to the next one."""
_AFTER_DUE: Final = timedelta(milliseconds=100)
"""How long after an occurrence is due a dispatcher looks whether it still waits."""
_UNREADABLE_AGAIN: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a transaction that makes occurrences.

    Attributes:
        rows: How many rows it has looked at.
        earliest: The first due time of its occurrences; None: it has made none.

    """

    rows: int
    earliest: datetime | None


def make_due(rows: ScheduleRows, limit: int = AT_ONCE) -> Made:
    """Make the occurrences of schedules that a dispatcher is to look at now, in the transaction of `rows`."""
    now = rows.transaction.now()
    taken = rows.take_due(now, limit)
    advanced, new = advance(rows, taken, now)
    return Made(len(advanced), min((each.due_time for each in new), default=None))


def advance(
    rows: ScheduleRows, taken: Sequence[StoredSchedule], now: datetime
) -> tuple[Sequence[StoredSchedule], Sequence[DelayedMessage]]:
    """Store the occurrences that locked rows make at `now`, and write these rows; returns both, as `occurrences`."""
    advanced, messages = occurrences(rows, taken, now)
    rows.advance(advanced)
    return advanced, store_new(rows, messages)


def store_new(rows: ScheduleRows, messages: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
    """Store those of `messages` whose ids do not wait; returns these."""
    there = set(rows.waiting_of([each.message_id for each in messages]))
    new = [each for each in messages if each.message_id not in there]
    if new:
        rows.transaction.store_many(new)
    return new


def occurrences(
    rows: ScheduleRows, taken: Sequence[StoredSchedule], now: datetime
) -> tuple[Sequence[StoredSchedule], Sequence[DelayedMessage]]:
    """The occurrences that locked rows make at `now`, and these rows as they are after that.

    If computing takes too long, the other rows are left to another call.
    """
    skipping = [each for each in taken if each.definition.get("if_waiting") == IfWaiting.SKIP]
    last = [(each.name, _made_last(each)) for each in skipping]
    waiting = rows.waiting_of([occurrence_id(name, nominal) for name, nominal in last if nominal is not None])
    advanced: list[StoredSchedule] = []
    messages: list[DelayedMessage] = []
    began = time.monotonic()
    for row in taken:
        try:
            making = _Making(row, Schedule.of_row(row), now, waiting)
            advanced.append(making.advanced())
            messages += making.messages
        except DelaystoreError as error:
            log.error("the schedule %r makes no occurrences: %s; will retry in a minute", row.name, error)
            advanced.append(replace(row, look_at=now + _UNREADABLE_AGAIN))
        if time.monotonic() - began > LONGEST:
            break
    return advanced, messages


def _made_last(row: StoredSchedule) -> datetime | None:
    """The nominal time of the occurrence that was made last; None: none was."""
    return row.progress.ahead[-1] if row.progress.ahead else row.progress.last


class _Making:
    """The occurrences of one row at one time. `waiting`: ids of waiting occurrences."""

    def __init__(self, row: StoredSchedule, schedule: Schedule, now: datetime, waiting: Collection[str]) -> None:
        self._row, self._schedule, self._now = row, schedule, now
        progress = row.progress.at(now)
        self._last, self._ahead, self._remaining = progress.last, [*progress.ahead], progress.remaining
        self._made, self._missed, self._overlapped = progress.made, progress.missed, progress.overlapped
        self._skips = set(progress.skips)
        self._made_last = _made_last(row)
        self._waits = self._made_last is not None and occurrence_id(row.name, self._made_last) in waiting
        self.messages: list[DelayedMessage] = []

    def advanced(self) -> StoredSchedule:
        """Make the occurrences up to the HORIZON; returns the row after that."""
        nominal, now, until = self._row.next_due, self._now, self._now + HORIZON
        if nominal is not None and nominal <= now:
            nominal = self._catch_up(nominal)
        while nominal is not None and nominal <= until and not self._is_blocked(nominal):
            nominal = self._make(nominal, self._schedule.after(nominal))
        if self._remaining == 0:
            nominal = None
        progress = replace(
            self._row.progress,
            last=self._last,
            ahead=tuple(sorted(self._ahead)),
            made=self._made,
            missed=self._missed,
            overlapped=self._overlapped,
            remaining=self._remaining,
            skips=tuple(sorted(each for each in self._skips if each > now)),
        )
        return replace(
            self._row,
            next_due=nominal,
            look_at=None if nominal is None else self._look_at(nominal, until),
            zone_rules=zone_fingerprint(self._row.zone),
            progress=progress,
        )

    def _catch_up(self, first: datetime) -> datetime | None:
        """Make those of the occurrences up to now that are to be made; returns the nominal time of the next one."""
        schedule, now = self._schedule, self._now
        before = first - _SECOND
        after, most = before, 1 if schedule.catch_up is CatchUp.LAST else MOST_CAUGHT_UP
        longest = schedule.max_late
        if longest is None and schedule.catch_up is CatchUp.NONE:
            longest = MOST_LATE
        if longest is not None:
            after = max(before, now - longest - schedule.jitter - timedelta(microseconds=1))
        chosen = newest(schedule, after, now, most, self._skips)
        if longest is not None:
            chosen = [each for each in chosen if schedule.due_time(each) + longest >= now]
        skipped = sum(before < each <= now for each in self._skips)
        self._missed += max(0, schedule.count_between(before, now, MOST_COUNTED) - len(chosen) - skipped)
        for nominal in chosen:
            if self._is_blocked(nominal):
                self._overlapped += 1
            else:
                self._make(nominal, schedule.after(nominal))
        return schedule.after(now)

    def _make(self, nominal: datetime, following: datetime | None) -> datetime | None:
        """Make one occurrence, unless it is to be skipped, or was made, or there are enough; returns `following`."""
        if nominal in self._skips or nominal in self._ahead:
            return following
        if self._remaining == 0:
            return None
        if self._remaining is not None:
            self._remaining -= 1
        self.messages.append(self._schedule.message(nominal, None if self._remaining == 0 else following))
        self._made_last, self._waits = nominal, True
        self._made += 1
        if nominal > self._now:
            self._ahead.append(nominal)
        else:
            self._last = nominal
        return following

    def _is_blocked(self, nominal: datetime) -> bool:
        """Whether an earlier occurrence waits, so that it is not decided yet whether this one is made."""
        is_skipping = self._schedule.if_waiting is IfWaiting.SKIP
        return is_skipping and self._waits and nominal not in self._skips

    def _look_at(self, nominal: datetime, until: datetime) -> datetime:
        """When to look at the row again."""
        if nominal > until:
            return nominal - LEAD
        assert self._made_last is not None  # it waits
        due = self._schedule.due_time(self._made_last)
        if due <= self._now and not self.messages:
            return nominal  # it is late: whether it still waits then, decides
        return min(nominal, max(due, self._now) + _AFTER_DUE)


def newest(
    schedule: Schedule, after: datetime, until: datetime, most: int, skips: Collection[datetime] = ()
) -> Sequence[datetime]:
    """The last `most` nominal times after `after`, up to `until`, that are not in `skips`, in their order."""
    span, wanted = timedelta(minutes=1), most + len(skips)
    while until - span > after and schedule.count_between(until - span, until, wanted) < wanted:
        span *= 2
    times = schedule.between(max(after, until - span), until)
    return list(deque((each for each in times if each not in skips), maxlen=most))


def made_lately(row: StoredSchedule, now: datetime) -> Sequence[datetime]:
    """Nominal times of the last day, MOST_CAUGHT_UP at most; none, if the row cannot be read."""
    try:
        return newest(Schedule.of_row(row), now - timedelta(days=1), now, MOST_CAUGHT_UP)
    except InvalidScheduleError:
        return ()


def recompute_zones(rows: ScheduleRows, limit: int = AT_ONCE) -> int:
    """Compute next occurrences again if the rules of their time zone have changed since they were computed.

    Returns:
        How many rows were looked at; 0: no more are left.

    """
    now, looked_at = rows.transaction.now(), 0
    for zone, zone_rules in rows.zones():
        try:
            current = zone_fingerprint(zone)
        except DelaystoreError as error:
            log.error("schedules in the time zone %r keep their next times: %s", zone, error)
            continue
        if current == zone_rules:
            continue
        found = rows.of_zone(zone, zone_rules, limit)
        looked_at += len(found)
        rows.advance([_recomputed(row, current, now) for row in found])
    return looked_at


def _recomputed(row: StoredSchedule, zone_rules: str, now: datetime) -> StoredSchedule:
    """`row` by the rules of its zone as this machine knows them."""
    row = replace(row, zone_rules=zone_rules)
    if row.next_due is None or row.next_due <= now:
        return row
    try:
        schedule = Schedule.of_row(row)
    except DelaystoreError as error:
        log.error("the schedule %r keeps its next time: %s", row.name, error)
        return row
    next_due = schedule.after(max([now, *row.progress.ahead]))
    if next_due == row.next_due:
        return row
    log.warning(
        "the schedule %r is next due at %s instead of %s, because the rules of the time zone %s have changed",
        row.name,
        time_text(next_due),
        time_text(row.next_due),
        row.zone,
    )
    look_at = None if row.look_at is None or next_due is None else next_due - LEAD
    return replace(row, next_due=next_due, look_at=look_at)
