"""Which dispatchers and ingresses live, what they did in each minute, and who changed what."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from delaystore.stores._ingresses import told_of
from delaystore.stores.operable import ACTIVITY_KEPT, ALIVE, Activity, AuditEntry, DispatcherRecord, IngressRecord


class Reports:
    """What is told to the store. Callers have taken the lock of what waits."""

    def __init__(self) -> None:
        self._dispatchers: dict[str, DispatcherRecord] = {}
        self._ingresses: dict[str, IngressRecord] = {}
        self._activity: dict[datetime, Activity] = {}
        self._changes: list[AuditEntry] = []

    def beat(self, record: DispatcherRecord, done: Sequence[Activity], now: datetime) -> None:
        """Add to what is known, and forget what is old."""
        self._dispatchers = {each.dispatcher_id: each for each in self._alive(now)}
        self._dispatchers[record.dispatcher_id] = replace(record, beat=now)
        for activity in done:
            known = self._activity.get(activity.minute, Activity(minute=activity.minute))
            self._activity[activity.minute] = known + activity
        oldest = now - ACTIVITY_KEPT
        self._activity = {minute: each for minute, each in self._activity.items() if minute >= oldest}

    def retire(self, dispatcher_id: str) -> None:
        """Forget a dispatcher, if it is known."""
        self._dispatchers.pop(dispatcher_id, None)

    def dispatchers(self, now: datetime) -> Sequence[DispatcherRecord]:
        """Those that live, by name and id."""
        return sorted(self._alive(now), key=lambda each: (each.name, each.dispatcher_id))

    def beat_of_ingress(self, record: IngressRecord, now: datetime) -> None:
        """Keep what it tells, and forget what is told of no more."""
        known = {each.ingress_id: each for each in told_of(self._ingresses.values(), now)}
        self._ingresses = {**known, record.ingress_id: replace(record, beat=now)}

    def retire_ingress(self, ingress_id: str) -> None:
        """Forget an ingress, if it is known."""
        self._ingresses.pop(ingress_id, None)

    def ingresses(self, now: datetime) -> Sequence[IngressRecord]:
        """Those that are told of."""
        return told_of(self._ingresses.values(), now)

    def activity(self, since: datetime) -> Sequence[Activity]:
        """Of each minute that begins at `since` or later, in order."""
        return [self._activity[minute] for minute in sorted(self._activity) if minute >= since]

    def note(self, entries: Sequence[AuditEntry]) -> None:
        """Keep them until `forget`."""
        self._changes += entries

    def forget(self, before: datetime, at_most: int) -> int:
        """Delete the oldest entries; returns how many."""
        numbered = enumerate(self._changes)
        old = sorted((entry.at, number) for number, entry in numbered if entry.at < before)[:at_most]
        gone = {number for _, number in old}
        self._changes = [entry for number, entry in enumerate(self._changes) if number not in gone]
        return len(old)

    def changes(self, limit: int, before: datetime | None) -> Sequence[AuditEntry]:
        """The newest first."""
        found = [entry for entry in reversed(self._changes) if before is None or entry.at < before]
        return sorted(found, key=lambda entry: entry.at, reverse=True)[:limit]

    def _alive(self, now: datetime) -> list[DispatcherRecord]:
        return [each for each in self._dispatchers.values() if now - each.beat <= ALIVE]
