"""Destinations that are paused, limited, or resuming."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from delaystore.message import PARKED, DelayedMessage
from delaystore.stores._allowances import Bucket, allowed, shown_by
from delaystore.stores.operable import Allowance, Destination, is_postponed


class Destinations:
    """A row for each, as long as it says something. Callers have taken the lock of what waits."""

    def __init__(self) -> None:
        self._rows: dict[str, Destination] = {}
        self._buckets: dict[str, Bucket] = {}
        self._with_postponed: set[str] = set()
        """Names of those that may have messages that an earlier limit had postponed."""
        self.limits_as_of = 0
        """Another number once a limit has changed."""

    def all(self, now: datetime) -> Sequence[Destination]:
        """By name, as they are at `now`."""
        return [self._as_of(self._rows[name], now) for name in sorted(self._rows)]

    def is_paused(self, name: str, now: datetime) -> bool:
        """Whether messages for it are to be parked."""
        row = self._rows.get(name)
        return row is not None and self._as_of(row, now).paused

    def pause(self, name: str, by: str, until: datetime | None, now: datetime) -> None:
        """Paused from now on."""
        self._put(replace(self._row(name, by, now), paused=True, paused_until=until, resuming=False))

    def resume(self, name: str, by: str, now: datetime) -> bool:
        """Whether it was paused."""
        if not self.is_paused(name, now):
            return False
        self._put(replace(self._row(name, by, now), paused=False, paused_until=None, resuming=True))
        self._forgive(name, now)
        return True

    def limit(self, name: str, max_rate: float | None, by: str, now: datetime) -> None:
        """None: no limit."""
        self._forgive(name, now)
        row = self._row(name, by, now)
        is_resuming = row.resuming or (name in self._with_postponed and not row.paused)
        self._put(replace(row, max_rate=max_rate, resuming=is_resuming))

    def end_pauses(self, now: datetime) -> None:
        """Let those resume whose time is over, or whose postponed messages would wait for a time of another clock."""
        for row in list(self._rows.values()):
            current = self._as_of(row, now)
            if current != row:
                self._put(current)
                self._forgive(row.name, now)

    def end_resuming(self, *, postponed: bool) -> None:
        """None of their messages is parked any more, and, if `postponed`, none postponed by an earlier limit."""
        if postponed:
            self._with_postponed -= {row.name for row in self._rows.values() if row.resuming}
        for row in list(self._rows.values()):
            if row.resuming and row.name not in self._with_postponed:
                self._put(replace(row, resuming=False))

    def promised(self, names: Collection[str], now: datetime) -> Mapping[str, datetime]:
        """Of those of `names` that are limited: the last time that was given to a message."""
        limited = [name for name in names if name in self._rows and self._rows[name].max_rate is not None]
        return {name: self._buckets[name].promised if name in self._buckets else now for name in limited}

    def is_to_be_shown(self, message: DelayedMessage, ahead: timedelta, now: datetime) -> bool:
        """Whether an earlier limit has postponed it further than that of now."""
        name = message.destination
        if name not in self._with_postponed or not self._rows[name].resuming or not is_postponed(message):
            return False
        return message.next_attempt > shown_by(self.promised([name], now).get(name), ahead, now)

    def allowance(self, name: str, wanted: int, now: datetime) -> Allowance:
        """What may go now counts as gone."""
        row = self._rows.get(name)
        if row is None or row.max_rate is None:
            return Allowance(granted=wanted)
        self.end_pauses(now)
        bucket = self._buckets.get(name) or Bucket.full(now)
        allowance, self._buckets[name] = allowed(bucket, row.max_rate, now, wanted)
        return allowance

    def settled(self, message: DelayedMessage, now: datetime) -> DelayedMessage:
        """`message` as it is kept: not parked if its destination was resumed meanwhile."""
        return shown(message) if message.is_parked and not self.is_paused(message.destination, now) else message

    def _row(self, name: str, by: str, now: datetime) -> Destination:
        row = self._rows.get(name)
        return (
            Destination(name=name, changed=now, by=by)
            if row is None
            else replace(self._as_of(row, now), changed=now, by=by)
        )

    def _put(self, row: Destination) -> None:
        if row.paused or row.resuming or row.max_rate is not None:
            self._rows[row.name] = row
        else:
            self._rows.pop(row.name, None)
        if row.max_rate is None:
            self._buckets.pop(row.name, None)

    def _forgive(self, name: str, now: datetime) -> None:
        self.limits_as_of += 1
        bucket = self._buckets.get(name)
        if bucket is not None:
            self._buckets[name] = bucket.forgiven(now)
            if bucket.has_promised(now):
                self._with_postponed.add(name)

    def _as_of(self, row: Destination, now: datetime) -> Destination:
        bucket = self._buckets.get(row.name)
        if row.paused:
            is_over = row.paused_until is not None and row.paused_until <= now
            return replace(row, paused=False, paused_until=None, resuming=True) if is_over else row
        return replace(row, resuming=True) if bucket is not None and bucket.is_of_another_clock(now) else row


def parked(message: DelayedMessage) -> DelayedMessage:
    """`message`, hidden until its destination resumes."""
    return replace(message, next_attempt=PARKED)


def shown(message: DelayedMessage) -> DelayedMessage:
    """`message`, to be forwarded when it is due, or at once."""
    return replace(message, next_attempt=message.due_time)
