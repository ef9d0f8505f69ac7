"""Destinations that are paused, limited, or resuming."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from delaystore.message import PARKED, DelayedMessage
from delaystore.stores._allowances import Bucket, allowed
from delaystore.stores.operable import Allowance, Destination


class Destinations:
    """A row for each, as long as it says something. Callers have taken the lock of what waits."""

    def __init__(self) -> None:
        self._rows: dict[str, Destination] = {}
        self._buckets: dict[str, Bucket] = {}

    def all(self, now: datetime) -> Sequence[Destination]:
        """By name, as they are at `now`."""
        return [_as_of(self._rows[name], now) for name in sorted(self._rows)]

    def is_paused(self, name: str, now: datetime) -> bool:
        """Whether messages for it are to be parked."""
        row = self._rows.get(name)
        return row is not None and _as_of(row, now).paused

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
        self._put(replace(self._row(name, by, now), max_rate=max_rate))
        self._forgive(name, now)

    def end_pauses(self, now: datetime) -> None:
        """Let those resume whose time is over."""
        for row in list(self._rows.values()):
            current = _as_of(row, now)
            if current != row:
                self._put(current)
                self._forgive(row.name, now)

    def end_resuming(self) -> None:
        """None of their messages is parked any more."""
        for row in list(self._rows.values()):
            if row.resuming:
                self._put(replace(row, resuming=False))

    def allowance(self, name: str, wanted: int, now: datetime) -> Allowance:
        """What may go now counts as gone."""
        row = self._rows.get(name)
        if row is None or row.max_rate is None:
            return Allowance(granted=wanted)
        bucket = self._buckets.get(name) or Bucket.full(now)
        allowance, self._buckets[name] = allowed(bucket, row.max_rate, now, wanted)
        return allowance

    def settled(self, message: DelayedMessage, now: datetime) -> DelayedMessage:
        """`message` as it is kept: not parked if its destination was resumed meanwhile."""
        return shown(message) if message.is_parked and not self.is_paused(message.destination, now) else message

    def _row(self, name: str, by: str, now: datetime) -> Destination:
        row = self._rows.get(name)
        return (
            Destination(name=name, changed=now, by=by) if row is None else replace(_as_of(row, now), changed=now, by=by)
        )

    def _put(self, row: Destination) -> None:
        if row.paused or row.resuming or row.max_rate is not None:
            self._rows[row.name] = row
        else:
            self._rows.pop(row.name, None)
        if row.max_rate is None:
            self._buckets.pop(row.name, None)

    def _forgive(self, name: str, now: datetime) -> None:
        if name in self._buckets:
            self._buckets[name] = self._buckets[name].forgiven(now)


def parked(message: DelayedMessage) -> DelayedMessage:
    """`message`, hidden until its destination resumes."""
    return replace(message, next_attempt=PARKED)


def shown(message: DelayedMessage) -> DelayedMessage:
    """`message`, to be forwarded when it is due, or at once."""
    return replace(message, next_attempt=message.due_time)


def _as_of(row: Destination, now: datetime) -> Destination:
    if row.paused and row.paused_until is not None and row.paused_until <= now:
        return replace(row, paused=False, paused_until=None, resuming=True)
    return row
