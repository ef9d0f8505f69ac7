"""The waiting messages of one endpoint, in the order of next attempts, their claims, and the state of destinations."""

import heapq
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from delaystore.message import PARKED, DelayedMessage, marked, moved, unmarked, utc, with_attempt
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.history import HistoryEntry
from delaystore.stores.memory._schedules import KnownSchedules
from delaystore.stores.records import (
    ATTEMPTED,
    DELIVERED,
    Activity,
    Allowance,
    AuditEntry,
    Destination,
    DispatcherRecord,
    Ending,
    FailedDelivery,
    IngressRecord,
    Operation,
    is_postponed,
)
from delaystore.stores.shared import Bucket, DestinationState, allowed, number_of, seconds_of, shown_by, start_of

SPARE_ITEMS: Final = 64
"""Below this many items a heap is not worth cleaning up."""


class MemoryDestinations:
    """Destinations that are paused, limited or resuming; callers have taken the lock of the waiting messages."""

    def __init__(self) -> None:
        self._states: dict[str, DestinationState] = {}
        self.limits_as_of = 0
        """Another number once promises were forgiven."""

    def all(self, now: datetime) -> Sequence[Destination]:
        """By name, as they are at `now`."""
        return [self._states[name].at(now).destination for name in sorted(self._states)]

    def is_paused(self, name: str, now: datetime) -> bool:
        """Whether messages for it are to be parked."""
        state = self._states.get(name)
        return state is not None and state.at(now).destination.paused

    def pause(self, name: str, by: str, until: datetime | None, now: datetime) -> None:
        """Paused from now on."""
        self._put(self._state(name, by, now).paused(until))

    def resume(self, name: str, by: str, now: datetime) -> bool:
        """Whether it was paused."""
        if not self.is_paused(name, now):
            return False
        self._forgive(self._state(name, by, now).resumed(now))
        return True

    def limit(self, name: str, max_rate: float | None, by: str, now: datetime) -> None:
        """None: no limit."""
        self._forgive(self._state(name, by, now).limited(max_rate, now))

    def end_pauses(self, now: datetime) -> None:
        """Let those resume whose time is over, or whose postponed messages would wait for a time of another clock."""
        for state in list(self._states.values()):
            current = state.at(now)
            if current != state:
                self._forgive(current)

    def end_resuming(self, *, postponed: bool) -> None:
        """None of their messages is parked any more, and, if `postponed`, none postponed by an earlier limit."""
        for state in list(self._states.values()):
            if state.destination.resuming and (postponed or state.reach is None):
                self._put(state.shown())

    def promised(self, names: Collection[str], now: datetime) -> Mapping[str, datetime]:
        """Of those of `names` that are limited: the last time that was given to a message."""
        states = {name: self._states[name] for name in names if name in self._states}
        return {name: time for name, state in states.items() if (time := state.promised(now)) is not None}

    def is_to_be_shown(self, message: DelayedMessage, ahead: timedelta, now: datetime) -> bool:
        """Whether an earlier limit has postponed it further than the limit of now."""
        state = self._states.get(message.destination)
        if state is None or state.reach is None or not is_postponed(message):
            return False
        return message.next_attempt > shown_by(state.promised(now), ahead, now)

    def allowance(self, name: str, wanted: int, now: datetime) -> Allowance:
        """Messages that may go now count as gone."""
        state = self._states.get(name)
        max_rate = None if state is None else state.destination.max_rate
        if max_rate is None:
            return Allowance(granted=wanted)
        self.end_pauses(now)
        state = self._states[name]
        allowance, bucket = allowed(state.bucket or Bucket.full(now), max_rate, now, wanted)
        self._put(state._replace(bucket=bucket))
        return allowance

    def settled(self, message: DelayedMessage, now: datetime) -> DelayedMessage:
        """`message` as it is kept: not parked if its destination was resumed meanwhile."""
        return shown(message) if message.is_parked and not self.is_paused(message.destination, now) else message

    def _state(self, name: str, by: str, now: datetime) -> DestinationState:
        """As of now, to be changed by `by`."""
        known = self._states.get(name)
        if known is None:
            return DestinationState(Destination(name=name, changed=now, by=by))
        current = known.at(now)
        return current._replace(destination=replace(current.destination, changed=now, by=by))

    def _forgive(self, state: DestinationState) -> None:
        self.limits_as_of += 1
        self._put(state)

    def _put(self, state: DestinationState) -> None:
        known = state.destination
        if known.paused or known.resuming or known.max_rate is not None:
            self._states[known.name] = state
        else:
            self._states.pop(known.name, None)


class MemoryHistory:
    """The history; callers have taken the lock of the waiting messages."""

    def __init__(self) -> None:
        self.entries: list[HistoryEntry] = []
        self.kept: timedelta | None = None
        self.since: datetime | None = None

    def keep(self, kept: timedelta | None, now: datetime) -> None:
        """See `StoreWithHistory.keep_history`."""
        if kept is not None and self.kept is not None and self.since is not None and self.kept < kept:
            self.since = max(self.since, now - self.kept)  # older entries are deleted already
        self.kept = kept or self.kept
        self.since = None if kept is None else self.since or now

    def delivered(self, message_ids: Collection[str]) -> Collection[str]:
        """Those of the ids whose messages were delivered, or handed over to a native delay."""
        known = {each.message_id for each in self.entries if each.ending in DELIVERED}
        return () if self.since is None else known.intersection(message_ids)

    def made_of(
        self, message: DelayedMessage, ending: Ending, at: datetime, by: str | None = None
    ) -> Sequence[HistoryEntry]:
        """The entry of a message that leaves; none, where no history is kept."""
        if self.since is None:
            return ()
        due_time, is_tried = unmarked(message), ending in ATTEMPTED
        if ending is Ending.DELIVERED and due_time > at:
            ending = Ending.HANDED_OVER
        entry = HistoryEntry(
            message_id=message.message_id,
            destination=message.destination,
            due_time=due_time,
            ended=at,
            ending=ending,
            attempts=message.failure_count + is_tried,
            key=message.key,
            by=by,
            body_hash=sha256(message.body).hexdigest(),
            failures=message.failures,
        )
        return [entry]


@dataclass(slots=True)
class WaitingEntry:
    """One waiting message. `ticket` names its only valid item in a heap; `claimer` None means free."""

    message: DelayedMessage
    ticket: int = 0
    claimer: object | None = None
    claimed_until: datetime | None = None
    first_sent: datetime | None = None
    """When the first of those messages was sent that have replaced one another under its key."""

    def is_claimed(self, now: datetime) -> bool:
        """Whether a dispatcher has claimed it at `now`; a claim without an end lasts until it is freed."""
        return self.claimer is not None and (self.claimed_until is None or now < self.claimed_until)


_Item = tuple[datetime, str, int]
"""An item of a heap: next attempt or end of a lease, message_id, ticket."""


class WaitingMessages:
    """A dict by message_id and two heaps (free ones by position, leases by their end).

    Removing an item from the middle of a heap would take a walk over it. Instead every change gives the entry a new
    ticket, and items with an old ticket are skipped. Callers have taken `lock`.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entries: dict[str, WaitingEntry] = {}
        self.reserved: set[str] = set()
        """Ids that open transactions are about to store."""
        self.enlisted: dict[int, tuple[object, Any]] = {}
        """Open transactions of others by their id, each with the store that is enlisted in it."""
        self.keys: dict[str, str] = {}
        """The message_id by key."""
        self.reserved_keys: set[str] = set()
        """Keys of what open transactions are about to store."""
        self.parked: set[str] = set()
        """The ids of those whose destination is paused, or was until just now."""
        self.destinations = MemoryDestinations()
        self.operations: dict[str, Operation] = {}
        """By id, in the order in which they were begun."""
        self.dispatchers: dict[str, DispatcherRecord] = {}
        self.ingresses: dict[str, IngressRecord] = {}
        self.activity: dict[datetime, Activity] = {}
        """By minute."""
        self.changes: list[AuditEntry] = []
        self.history = MemoryHistory()
        self.schedules = KnownSchedules()
        self._free: list[_Item] = []
        self._leases: list[_Item] = []
        self._tickets = 0

    def outcome(self, message_id: str, now: datetime) -> ManagementOutcome:
        """The outcome of a change of that message: DONE, unless a dispatcher has claimed it or it does not wait."""
        entry = self.entries.get(message_id)
        if entry is None:
            return ManagementOutcome.NOT_FOUND
        return ManagementOutcome.BEING_DISPATCHED if entry.is_claimed(now) else ManagementOutcome.DONE

    def promise(self, message_ids: Sequence[str], claimer: object | None) -> None:
        """Mark the waiting messages of these ids, unless `claimer` has it, and end an expired lease.

        No dispatcher then takes it for a message that it has sent already, or removes it late.
        """
        for entry in filter(None, map(self.entries.get, message_ids)):
            if entry.claimer is None or entry.claimer is not claimer:
                entry.message = replace(entry.message, due_time=marked(entry.message.due_time))
                self.free(entry)

    def add(self, new: Mapping[str, WaitingEntry]) -> None:
        """Keep new entries, by message_id; the caller has made sure that the ids are new, and the keys."""
        self.entries.update(new)
        for message_id, entry in new.items():
            if entry.message.key is not None:
                self.keys[entry.message.key] = message_id
            self._push(entry)

    def drop(self, message_id: str) -> None:
        """Forget a message."""
        entry = self.entries.pop(message_id)
        if entry.message.key is not None:
            del self.keys[entry.message.key]
        self.parked.discard(message_id)
        self._clean_up()

    def change(self, message_id: str, message: DelayedMessage) -> None:
        """Put `message` in the place of the one that waits, unclaimed."""
        entry = self.entries[message_id]
        entry.message = message
        self.free(entry)

    def free(self, entry: WaitingEntry) -> None:
        """End the claim on `entry`, and sort it by the message it has now."""
        entry.claimer = entry.claimed_until = None
        self._push(entry)
        self._clean_up()

    def claim(self, entry: WaitingEntry, claimer: object, until: datetime | None) -> None:
        """Give `entry` to `claimer`, until a time or (None) until it is freed."""
        entry.claimer, entry.claimed_until = claimer, until
        self._push(entry)

    def claim_due(
        self, at: datetime, limit: int, most_bytes: int, claimer: object, now: datetime, until: datetime | None
    ) -> list[WaitingEntry]:
        """Claim up to `limit` free messages whose next attempt is at or before `at`, in the order of positions.

        Their bodies have at most `most_bytes` together, unless the first alone has more.
        """
        self._free_expired(now)
        claimed: list[WaitingEntry] = []
        while len(claimed) < limit:
            entry = self._first(self._free)
            if entry is None or entry.message.next_attempt > at:
                break
            most_bytes -= len(entry.message.body)
            if most_bytes < 0 and claimed:
                break
            self.claim(entry, claimer, until)
            claimed.append(entry)
        return claimed

    def next(self) -> datetime | None:
        """The first next attempt of a free message, or end of a lease; None: there is neither."""
        free, lease = self._first(self._free), self._first(self._leases)
        times = [free.message.next_attempt] if free else []
        if lease is not None and lease.claimed_until is not None:
            times.append(lease.claimed_until)
        return min(times, default=None)

    def _push(self, entry: WaitingEntry) -> None:
        self._tickets += 1
        entry.ticket = self._tickets
        message = entry.message
        if message.is_parked:
            self.parked.add(message.message_id)
        elif self.parked:
            self.parked.discard(message.message_id)
        if entry.claimer is None:
            heapq.heappush(self._free, (message.next_attempt, message.message_id, entry.ticket))
        elif entry.claimed_until is not None:
            heapq.heappush(self._leases, (entry.claimed_until, message.message_id, entry.ticket))

    def _first(self, heap: list[_Item]) -> WaitingEntry | None:
        while heap:
            entry = self._entry_at(heap[0])
            if entry is not None:
                return entry
            heapq.heappop(heap)
        return None

    def _entry_at(self, item: _Item) -> WaitingEntry | None:
        entry = self.entries.get(item[1])
        return entry if entry is not None and entry.ticket == item[2] else None

    def _free_expired(self, now: datetime) -> None:
        while (entry := self._first(self._leases)) is not None and not entry.is_claimed(now):
            self.free(entry)

    def _clean_up(self) -> None:
        """Drop the outdated items of a heap once they outnumber the valid ones, so that they cannot fill the memory."""
        for heap in (self._free, self._leases):
            if len(heap) > 2 * len(self.entries) + SPARE_ITEMS:
                heap[:] = [item for item in heap if self._entry_at(item) is not None]
                heapq.heapify(heap)


def fetched(message: DelayedMessage) -> DelayedMessage:
    """`message` as a dispatcher gets it: without fields that it does not need, and with headers and properties of
    its own.
    """
    return copied(replace(message, failures=()) if message.failures else message)


def copied(message: DelayedMessage) -> DelayedMessage:
    """`message` with headers and properties of its own."""
    if not message.headers and not message.properties:
        return message
    return replace(message, headers=_copied(message.headers), properties=_copied(message.properties))


def after_failure(message: DelayedMessage, next_attempt: datetime) -> DelayedMessage:
    """`message` with one more failure, to be shown again at `next_attempt`."""
    return replace(message, failure_count=message.failure_count + 1, next_attempt=next_attempt)


def after_failed_delivery(message: DelayedMessage, failure: FailedDelivery) -> DelayedMessage:
    """As `after_failure`, and why it failed."""
    failures = with_attempt(message.failures, failure.attempt)
    return replace(after_failure(message, utc(failure.next_attempt, "next_attempt")), failures=failures)


def rescheduled(message: DelayedMessage, due_time: datetime) -> DelayedMessage:
    """`message`, due at `due_time`, as if forwarding had never failed; its latest delivery moves with it."""
    limit = moved(message, due_time)
    return replace(message, due_time=due_time, failure_count=0, next_attempt=due_time, not_after=limit)


def parked(message: DelayedMessage) -> DelayedMessage:
    """`message`, hidden until its destination resumes."""
    return replace(message, next_attempt=PARKED)


def shown(message: DelayedMessage) -> DelayedMessage:
    """`message`, to be forwarded when it is due, or at once."""
    return replace(message, next_attempt=message.due_time)


def counted(times: Iterable[datetime], bucket: timedelta) -> Mapping[datetime, int]:
    """How many of `times` are in each bucket, by the beginning of the bucket."""
    seconds_of(bucket)
    numbers = Counter(number_of(time, bucket) for time in times)
    return {start_of(number, bucket): numbers[number] for number in sorted(numbers)}


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
