"""What waits at one endpoint, in the order of attention, and who has claimed what."""

import heapq
import threading
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from delaystore.errors import DuplicateMessageError
from delaystore.message import DelayedMessage

NAMED_DUPLICATES: Final = 10
"""The most ids a DuplicateMessageError names."""
SPARE_PLACES: Final = 64
"""Below this many places a heap is not worth tidying."""


@dataclass(slots=True)
class Entry:
    """One waiting message. `ticket` names its only valid place in a heap; `claimer` None means free."""

    message: DelayedMessage
    ticket: int = 0
    claimer: object | None = None
    claimed_until: datetime | None = None

    def is_claimed(self, now: datetime) -> bool:
        """Whether a dispatcher holds it at `now`; a claim without an end holds until it is freed."""
        return self.claimer is not None and (self.claimed_until is None or now < self.claimed_until)


_Place = tuple[datetime, str, int]


class WaitingMessages:
    """A dict by message_id and two heaps (free ones by attention time, leases by their end).

    Taking an entry out of the middle of a heap would cost a walk over it; instead every change gives the entry a new
    ticket, and places with an old ticket are passed over. Callers hold `lock`.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entries: dict[str, Entry] = {}
        self.reserved: set[str] = set()
        """Ids that open transactions are about to store."""
        self._free: list[_Place] = []
        self._leases: list[_Place] = []
        self._tickets = 0

    def check_new(self, messages: Sequence[DelayedMessage], removed: Set[str]) -> None:
        """DuplicateMessageError for an id that occurs twice, waits (unless in `removed`), or is reserved."""
        seen: set[str] = set()
        duplicates: list[str] = []
        for message in messages:
            message_id = message.message_id
            waits = message_id in self.entries and message_id not in removed
            if waits or message_id in self.reserved or message_id in seen:
                duplicates.append(message_id)
            seen.add(message_id)
        if duplicates:
            raise DuplicateMessageError(duplicates[:NAMED_DUPLICATES])

    def add(self, message: DelayedMessage) -> None:
        """Keep `message`; the caller has made sure that its id is new."""
        entry = self.entries[message.message_id] = Entry(message)
        self._place(entry)

    def drop(self, message_id: str) -> None:
        """Forget a message."""
        del self.entries[message_id]
        self._tidy()

    def free(self, entry: Entry) -> None:
        """End the claim on `entry`, and note the place of the message it has now."""
        entry.claimer = entry.claimed_until = None
        self._place(entry)
        self._tidy()

    def claim(self, entry: Entry, claimer: object, until: datetime | None) -> None:
        """Give `entry` to `claimer`, until a time or (None) until it is freed."""
        entry.claimer, entry.claimed_until = claimer, until
        self._place(entry)

    def claim_due(
        self, at: datetime, limit: int, claimer: object, now: datetime, until: datetime | None
    ) -> list[Entry]:
        """Claim up to `limit` free messages that want attention at or before `at`, the longest waiting first."""
        self._free_expired(now)
        claimed: list[Entry] = []
        while len(claimed) < limit:
            entry = self._first(self._free)
            if entry is None or entry.message.attention_time > at:
                break
            self.claim(entry, claimer, until)
            claimed.append(entry)
        return claimed

    def next(self) -> datetime | None:
        """When the next free message wants attention or the next lease ends; None when there is neither."""
        free, lease = self._first(self._free), self._first(self._leases)
        times = [free.message.attention_time] if free else []
        if lease is not None and lease.claimed_until is not None:
            times.append(lease.claimed_until)
        return min(times, default=None)

    def _place(self, entry: Entry) -> None:
        self._tickets += 1
        entry.ticket = self._tickets
        message = entry.message
        if entry.claimer is None:
            heapq.heappush(self._free, (message.attention_time, message.message_id, entry.ticket))
        elif entry.claimed_until is not None:
            heapq.heappush(self._leases, (entry.claimed_until, message.message_id, entry.ticket))

    def _first(self, heap: list[_Place]) -> Entry | None:
        while heap:
            entry = self._entry_at(heap[0])
            if entry is not None:
                return entry
            heapq.heappop(heap)
        return None

    def _entry_at(self, place: _Place) -> Entry | None:
        entry = self.entries.get(place[1])
        return entry if entry is not None and entry.ticket == place[2] else None

    def _free_expired(self, now: datetime) -> None:
        while (entry := self._first(self._leases)) is not None and not entry.is_claimed(now):
            self.free(entry)

    def _tidy(self) -> None:
        """Throw out what is passed over once it outnumbers what is not, so that memory follows what waits."""
        for heap in (self._free, self._leases):
            if len(heap) > 2 * len(self.entries) + SPARE_PLACES:
                heap[:] = [place for place in heap if self._entry_at(place) is not None]
                heapq.heapify(heap)
