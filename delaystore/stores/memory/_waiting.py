"""What waits at one endpoint, in the order of next attempts, and who has claimed what."""

import heapq
import threading
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError, MessageBeingStoredError
from delaystore.failures import with_attempt
from delaystore.message import DelayedMessage, marked, position_of, utc
from delaystore.stores.memory._destinations import Destinations
from delaystore.stores.memory._reports import Reports
from delaystore.stores.operable import Change, FailedDelivery, MessageBefore, Operation

SPARE_ITEMS: Final = 64
"""Below this many items a heap is not worth tidying."""


@dataclass(slots=True)
class Entry:
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
        self.entries: dict[str, Entry] = {}
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
        self.destinations = Destinations()
        self.operations: dict[str, Operation] = {}
        """By id, in the order in which they were begun."""
        self.reports = Reports()
        self._free: list[_Item] = []
        self._leases: list[_Item] = []
        self._tickets = 0

    def check_new(
        self,
        messages: Sequence[DelayedMessage],
        claimer: object,
        now: datetime,
        *,
        removed: Set[str],
        own: Collection[str],
    ) -> None:
        """Raise for an id that occurs twice, waits (unless in `removed`), or is reserved; `own`: by the caller itself.

        DuplicateMessageError: the sender relies on those that wait; see `promise`.
        MessageBeingDispatchedError: others than `claimer` have claimed all that wait.
        """
        seen: set[str] = set()
        duplicates: list[str] = []
        claimed: list[str] = []
        for message in messages:
            message_id = message.message_id
            entry = None if message_id in removed else self.entries.get(message_id)
            if message_id in seen or message_id in own:
                duplicates.append(message_id)
            elif entry is not None and entry.claimer is not claimer and entry.is_claimed(now):
                claimed.append(message_id)
            elif entry is not None:
                duplicates.append(message_id)
            elif message_id in self.reserved:
                raise MessageBeingStoredError(message_id)
            seen.add(message_id)
        if duplicates:
            self.promise(duplicates, claimer)
            raise DuplicateMessageError(duplicates)
        if claimed:
            raise MessageBeingDispatchedError(claimed)

    def unclaimed(self, message_ids: Sequence[str], now: datetime) -> list[str]:
        """Those that wait, and that no dispatcher has claimed; senders rely on them from then on."""
        waiting = [each for each in message_ids if each in self.entries and not self.entries[each].is_claimed(now)]
        self.promise(waiting, None)
        return waiting

    def note(
        self,
        message: DelayedMessage,
        change: Change | None,
        now: datetime,
        due_time: datetime | None = None,
    ) -> None:
        """Note a change of `message`, which is as it was; `due_time`: its new one. `change` None: nothing is noted."""
        if change is not None:
            self.reports.note([change.of_message(now, MessageBefore.of(message), due_time)])

    def promise(self, message_ids: Sequence[str], claimer: object | None) -> None:
        """Mark what waits under these ids, unless `claimer` has it, and end what is left of a lease.

        No dispatcher then takes it for a message that it has sent already, or removes it late.
        """
        for entry in filter(None, map(self.entries.get, message_ids)):
            if entry.claimer is None or entry.claimer is not claimer:
                entry.message = replace(entry.message, due_time=marked(entry.message.due_time))
                self.free(entry)

    def add(self, message: DelayedMessage, first_sent: datetime | None = None) -> None:
        """Keep `message`; the caller has made sure that its id is new, and its key."""
        entry = self.entries[message.message_id] = Entry(message, first_sent=first_sent)
        if message.key is not None:
            self.keys[message.key] = message.message_id
        self._push(entry)

    def drop(self, message_id: str) -> None:
        """Forget a message."""
        entry = self.entries.pop(message_id)
        if entry.message.key is not None:
            del self.keys[entry.message.key]
        self.parked.discard(message_id)
        self._tidy()

    def change(self, message_id: str, message: DelayedMessage) -> None:
        """Put `message` in the place of the one that waits, unclaimed."""
        entry = self.entries[message_id]
        entry.message = message
        self.free(entry)

    def free(self, entry: Entry) -> None:
        """End the claim on `entry`, and sort it by the message it has now."""
        entry.claimer = entry.claimed_until = None
        self._push(entry)
        self._tidy()

    def claim(self, entry: Entry, claimer: object, until: datetime | None) -> None:
        """Give `entry` to `claimer`, until a time or (None) until it is freed."""
        entry.claimer, entry.claimed_until = claimer, until
        self._push(entry)

    def claim_due(
        self, at: datetime, limit: int, most_bytes: int, claimer: object, now: datetime, until: datetime | None
    ) -> list[Entry]:
        """Claim up to `limit` free messages whose next attempt is at or before `at`, in the order of positions.

        Their bodies have at most `most_bytes` together, unless the first alone has more.
        """
        self._free_expired(now)
        claimed: list[Entry] = []
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

    def _push(self, entry: Entry) -> None:
        self._tickets += 1
        entry.ticket = self._tickets
        message = entry.message
        (self.parked.add if message.is_parked else self.parked.discard)(message.message_id)
        if entry.claimer is None:
            heapq.heappush(self._free, (*position_of(message), entry.ticket))
        elif entry.claimed_until is not None:
            heapq.heappush(self._leases, (entry.claimed_until, message.message_id, entry.ticket))

    def _first(self, heap: list[_Item]) -> Entry | None:
        while heap:
            entry = self._entry_at(heap[0])
            if entry is not None:
                return entry
            heapq.heappop(heap)
        return None

    def _entry_at(self, item: _Item) -> Entry | None:
        entry = self.entries.get(item[1])
        return entry if entry is not None and entry.ticket == item[2] else None

    def _free_expired(self, now: datetime) -> None:
        while (entry := self._first(self._leases)) is not None and not entry.is_claimed(now):
            self.free(entry)

    def _tidy(self) -> None:
        """Drop the outdated items of a heap once they outnumber the valid ones, so that they cannot fill the memory."""
        for heap in (self._free, self._leases):
            if len(heap) > 2 * len(self.entries) + SPARE_ITEMS:
                heap[:] = [item for item in heap if self._entry_at(item) is not None]
                heapq.heapify(heap)


def fetched(message: DelayedMessage) -> DelayedMessage:
    """`message` as a dispatcher gets it: without what it does not need, and with headers and properties of its own."""
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
    """`message`, due at `due_time`, as if forwarding had never failed."""
    return replace(message, due_time=due_time, failure_count=0, next_attempt=due_time)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
