"""What operators and dispatchers do with the store in memory, besides storing and settling."""

import heapq
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta

from typing_extensions import override

from delaystore.clock import Clock
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, Position, check_destination, position_of, utc
from delaystore.stores._allowances import check_max_rate
from delaystore.stores._buckets import number_of, seconds_of, start_of
from delaystore.stores._checks import check_number
from delaystore.stores.abc import Page
from delaystore.stores.memory._operations import Operations
from delaystore.stores.memory._parking import park, unpark
from delaystore.stores.memory._transaction import InMemoryTransaction
from delaystore.stores.memory._waiting import WaitingMessages, copied
from delaystore.stores.operable import (
    EXAMINED,
    STEP,
    Activity,
    Allowance,
    AuditEntry,
    Change,
    Destination,
    DispatcherRecord,
    FailedDelivery,
    IngressRecord,
    OperableDelayedMessageStore,
    Operation,
)


class OperableInMemoryStore(OperableDelayedMessageStore):
    """All of it happens at once, under the lock of what waits. Searches and counts read everything."""

    _clock: Clock

    @abstractmethod
    def transaction(self) -> AbstractContextManager[InMemoryTransaction]: ...

    @abstractmethod
    def _waiting(self) -> WaitingMessages: ...

    @override
    def now(self) -> datetime:
        return self._clock.now()

    @property
    @override
    def is_operable(self) -> bool:
        return True

    @override
    def search(
        self,
        wanted: MessageFilter,
        *,
        after: Position | None = None,
        limit: int = 100,
        examine: int = EXAMINED,
    ) -> Page:
        check_number(limit, "limit")
        check_number(examine, "examine")
        behind = (message for message in self._messages(None) if after is None or position_of(message) > after)
        looked_at = heapq.nsmallest(examine + 1, behind, key=position_of)
        found: list[DelayedMessage] = []
        for number, message in enumerate(looked_at, 1):
            if wanted.matches(message):
                found.append(copied(message))
            if number < len(looked_at) and (len(found) == limit or number == examine):
                return Page(found, position_of(message))
        return Page(found, None)

    @override
    def count_between(self, since: datetime, until: datetime, bucket: timedelta) -> Mapping[datetime, int]:
        since, until = utc(since, "since"), utc(until, "until")
        seconds_of(bucket)
        times = (message.next_attempt for message in self._messages(None))
        numbers = Counter(number_of(instant, bucket) for instant in times if since <= instant < until)
        return {start_of(number, bucket): numbers[number] for number in sorted(numbers)}

    @override
    def count_by_destination(self, most: int = 1_000) -> Mapping[str, int]:
        check_number(most, "most")
        counts = Counter(message.destination for message in self._messages(None))
        return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:most])

    @override
    def begin_operation(self, operation: Operation, *, change: Change | None = None) -> None:
        waiting = self._waiting()
        with waiting.lock:
            Operations(waiting).begin(operation, change)

    @override
    def advance_operation(
        self, operation_id: str, examine: int = STEP, *, change: Change | None = None
    ) -> Operation | None:
        check_number(examine, "examine")
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return Operations(waiting).advance(operation_id, examine, now, change)

    @override
    def end_operation(self, operation_id: str, *, change: Change | None = None) -> Operation | None:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return Operations(waiting).end(operation_id, now, change)

    @override
    def operation(self, operation_id: str) -> Operation | None:
        waiting = self._waiting()
        with waiting.lock:
            return Operations(waiting).get(operation_id)

    @override
    def operations(self, limit: int = 20) -> Sequence[Operation]:
        check_number(limit, "limit")
        waiting = self._waiting()
        with waiting.lock:
            return Operations(waiting).last(limit)

    @override
    def destinations(self) -> Sequence[Destination]:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return waiting.destinations.all(now)

    @override
    def pause(self, destination: str, *, by: str, until: datetime | None = None) -> None:
        check_destination(destination)
        until = None if until is None else utc(until, "until")
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            waiting.destinations.pause(destination, by, until, now)

    @override
    def resume(self, destination: str, *, by: str) -> bool:
        check_destination(destination)
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return waiting.destinations.resume(destination, by, now)

    @override
    def limit_rate(self, destination: str, max_rate: float | None, *, by: str) -> None:
        check_destination(destination)
        max_rate = check_max_rate(max_rate)
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            waiting.destinations.limit(destination, max_rate, by, now)

    @override
    def park(self, until: datetime, at_most: int = STEP) -> int:
        until = utc(until, "until")
        check_number(at_most, "at_most")
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return park(waiting, until, at_most, now)

    @override
    def unpark(self, at_most: int = STEP, ahead: timedelta | None = None) -> int:
        check_number(at_most, "at_most")
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return unpark(waiting, at_most, ahead, now)

    @override
    def park_claimed(self, messages: Sequence[DelayedMessage]) -> Sequence[str]:
        with self.transaction() as transaction:
            return transaction.park_claimed(messages)

    @override
    def allowance(self, destination: str, wanted: int) -> Allowance:
        waiting = self._waiting()
        with waiting.lock:
            return waiting.destinations.allowance(destination, wanted, self._clock.now())

    @override
    def postpone(self, postponed: Sequence[tuple[DelayedMessage, datetime]]) -> int:
        with self.transaction() as transaction:
            return transaction.postpone(postponed)

    @override
    def promised(self, destinations: Collection[str]) -> Mapping[str, datetime]:
        with self.transaction() as transaction:
            return transaction.promised(destinations)

    @override
    def count_failures(self, failures: Sequence[FailedDelivery]) -> int:
        with self.transaction() as transaction:
            return transaction.count_failures(failures)

    @override
    def count_failing(self, at_most: int) -> int:
        check_number(at_most, "at_most")
        return min(at_most, sum(message.failure_count > 0 for message in self._messages(None)))

    @override
    def count_parked(self, at_most: int) -> int:
        check_number(at_most, "at_most")
        waiting = self._waiting()
        with waiting.lock:
            return min(at_most, len(waiting.parked))

    @override
    def beat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            waiting.reports.beat(record, done, now)

    @override
    def retire(self, dispatcher_id: str) -> None:
        waiting = self._waiting()
        with waiting.lock:
            waiting.reports.retire(dispatcher_id)

    @override
    def dispatchers(self) -> Sequence[DispatcherRecord]:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return waiting.reports.dispatchers(now)

    @override
    def beat_of_ingress(self, record: IngressRecord) -> None:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            waiting.reports.beat_of_ingress(record, now)

    @override
    def retire_ingress(self, ingress_id: str) -> None:
        waiting = self._waiting()
        with waiting.lock:
            waiting.reports.retire_ingress(ingress_id)

    @override
    def ingresses(self) -> Sequence[IngressRecord]:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return waiting.reports.ingresses(now)

    @override
    def activity(self, since: datetime) -> Sequence[Activity]:
        since, waiting = utc(since, "since"), self._waiting()
        with waiting.lock:
            return waiting.reports.activity(since)

    @override
    def note_changes(self, entries: Sequence[AuditEntry]) -> None:
        waiting = self._waiting()
        with waiting.lock:
            waiting.reports.note(entries)

    @override
    def forget_before(self, time: datetime, at_most: int = STEP) -> int:
        time, waiting = utc(time, "time"), self._waiting()
        check_number(at_most, "at_most")
        with waiting.lock:
            return waiting.reports.forget(time, at_most) + Operations(waiting).forget(time, at_most)

    @override
    def changes(self, limit: int = 100, before: datetime | None = None) -> Sequence[AuditEntry]:
        check_number(limit, "limit")
        before, waiting = None if before is None else utc(before, "before"), self._waiting()
        with waiting.lock:
            return waiting.reports.changes(limit, before)

    def _messages(self, destination: str | None) -> Sequence[DelayedMessage]:
        waiting = self._waiting()
        with waiting.lock:
            messages = [entry.message for entry in waiting.entries.values()]
        return messages if destination is None else [one for one in messages if one.destination == destination]
