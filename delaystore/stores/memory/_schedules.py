"""The schedules of the in-memory store, in a transaction."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Protocol

from typing_extensions import override

from delaystore.errors import StoreUnavailableError
from delaystore.message import KEY_TIMEOUT, DelayedMessage
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.schedules import OCCURRENCES, ScheduleMessages, ScheduleRows, StoredSchedule


class KnownSchedules:
    """The schedules of one endpoint, as they are committed.

    Attributes:
        rows: The rows by name.
        lock: Held by the transaction that changes schedules, until its end.

    """

    def __init__(self) -> None:
        self.rows: dict[str, StoredSchedule] = {}
        self.lock: Final = threading.Lock()


class _MemoryTransaction(ScheduleMessages, Protocol):
    """A transaction, and its messages; see InMemoryTransaction."""

    def get(self, message_id: str) -> DelayedMessage | None: ...

    def cancel(self, message_id: str, *, by: str | None = None) -> ManagementOutcome: ...


class MemorySchedules(ScheduleRows):
    """One transaction at a time changes schedules: the others wait for it, and `take_due` finds none.

    `ids`: the ids of waiting messages that begin with a prefix.
    """

    def __init__(
        self, known: KnownSchedules, transaction: _MemoryTransaction, ids: Callable[[str], Sequence[str]]
    ) -> None:
        self._known = known
        self.transaction = self._messages = transaction
        self._ids = ids
        self._changed: dict[str, StoredSchedule] | None = None
        """All rows as this transaction has them; None: it has not locked any."""

    @property
    def _rows(self) -> Mapping[str, StoredSchedule]:
        return self._known.rows if self._changed is None else self._changed

    @override
    def lock(self, names: Collection[str]) -> Mapping[str, StoredSchedule]:
        rows = self._locked()
        return {name: rows[name] for name in sorted(names) if name in rows}

    @override
    def take_due(self, at: datetime, limit: int) -> Sequence[StoredSchedule]:
        if not self._take(0.0):
            return []
        due = [(each.look_at, each.name) for each in self._rows.values() if each.look_at and each.look_at <= at]
        return [self._rows[name] for _, name in sorted(due)[:limit]]

    @override
    def list(self, prefix: str = "", *, after: str | None = None, limit: int = 100) -> Sequence[StoredSchedule]:
        names = sorted(name for name in self._rows if name.startswith(prefix) and (after is None or name > after))
        return [self._rows[name] for name in names[:limit]]

    @override
    def next_look(self) -> datetime | None:
        return min((each.look_at for each in self._rows.values() if each.look_at), default=None)

    @override
    def zones(self) -> Collection[tuple[str, str]]:
        return {(each.zone, each.zone_rules) for each in self._rows.values()}

    @override
    def of_zone(self, zone: str, zone_rules: str, limit: int) -> Sequence[StoredSchedule]:
        if not self._take(0.0):
            return []
        return [each for each in self._rows.values() if (each.zone, each.zone_rules) == (zone, zone_rules)][:limit]

    @override
    def add(self, rows: Sequence[StoredSchedule]) -> bool:
        self.write(rows)
        return True

    @override
    def write(self, rows: Sequence[StoredSchedule]) -> None:
        if rows:
            self._locked().update((each.name, each) for each in rows)

    @override
    def advance(self, rows: Sequence[StoredSchedule]) -> None:
        known = self._locked() if rows else {}
        for each in rows:
            known[each.name] = replace(
                known[each.name],
                next_due=each.next_due,
                look_at=each.look_at,
                zone_rules=each.zone_rules,
                progress=each.progress,
            )

    @override
    def delete(self, names: Collection[str]) -> None:
        rows = self._locked() if names else {}
        for name in names:
            rows.pop(name, None)

    @override
    def names(self, prefix: str) -> Sequence[str]:
        return sorted(name for name in self._rows if name.startswith(prefix))

    @override
    def occurrences(self, prefix: str) -> Sequence[str]:
        return sorted(each for each in self._ids(f"{OCCURRENCES}{prefix}") if self._messages.get(each))

    @override
    def messages(self, message_ids: Sequence[str]) -> Mapping[str, DelayedMessage]:
        found = {each: self._messages.get(each) for each in message_ids}
        return {each: message for each, message in found.items() if message is not None}

    @override
    def remove_occurrences(self, message_ids: Sequence[str], by: str | None) -> Collection[str]:
        done = ManagementOutcome.DONE
        return [each for each in message_ids if self._messages.cancel(each, by=by) is done]

    @override
    def waiting_of(self, message_ids: Sequence[str]) -> Collection[str]:
        return [each for each in message_ids if self._messages.get(each) is not None]

    def end(self, *, committed: bool) -> None:
        """Keep the changes, or forget them, and let others change schedules."""
        if self._changed is not None:
            if committed:
                self._known.rows = self._changed
            self._changed = None
            self._known.lock.release()

    def _locked(self) -> dict[str, StoredSchedule]:
        if not self._take(KEY_TIMEOUT):
            raise StoreUnavailableError(
                "the schedules cannot be changed, because another transaction has changed some and has not ended; "
                "end it, and try again"
            )
        assert self._changed is not None
        return self._changed

    def _take(self, seconds: float) -> bool:
        if self._changed is None and self._known.lock.acquire(timeout=seconds):
            self._changed = dict(self._known.rows)
        return self._changed is not None
