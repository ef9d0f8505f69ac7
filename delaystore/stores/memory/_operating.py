"""What operators and dispatchers do with the in-memory store, besides storing and settling."""

import heapq
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from typing_extensions import override

from delaystore.clock import Clock
from delaystore.filters import MessageFilter
from delaystore.message import PARKED, DelayedMessage, Position, check_destination, position_of, unmarked, utc
from delaystore.stores.abc import Page
from delaystore.stores.history import (
    FORGOTTEN_AT_ONCE,
    HistoryEntry,
    HistoryFilter,
    HistoryPage,
    HistoryStatus,
    StoreWithHistory,
)
from delaystore.stores.memory._waiting import WaitingMessages, copied, counted, parked, rescheduled, shown
from delaystore.stores.operable import EXAMINED, STEP
from delaystore.stores.records import (
    ACTIVITY_KEPT,
    ALIVE,
    HELD_KEPT,
    Activity,
    Allowance,
    AuditEntry,
    Change,
    Destination,
    DispatcherRecord,
    Ending,
    IngressRecord,
    Operation,
    OperationKind,
    OperationState,
)
from delaystore.stores.schedules import StoreWithSchedules
from delaystore.stores.shared import check_max_rate, check_new, check_number, count_of_begun, ingresses_to_show, taken


class OperableInMemoryStore(StoreWithSchedules, StoreWithHistory):
    """All of it happens at once, under the lock of the waiting messages. Searches and counts read everything."""

    _clock: Clock

    @abstractmethod
    def _waiting(self) -> WaitingMessages: ...

    @override
    def now(self) -> datetime:
        return self._clock.now()

    @property
    @override
    def is_operable(self) -> bool:
        return True

    @property
    @override
    def has_schedules(self) -> bool:
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
        behind = (message for message in self._messages() if after is None or position_of(message) > after)
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
        times = (message.next_attempt for message in self._messages())
        return counted((instant for instant in times if since <= instant < until), bucket)

    @override
    def count_by_destination(self, most: int = 1_000) -> Mapping[str, int]:
        check_number(most, "most")
        counts = Counter(message.destination for message in self._messages())
        return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:most])

    @override
    def begin_operation(self, operation: Operation, *, change: Change | None = None) -> None:
        waiting = self._waiting()
        with waiting.lock:
            if operation.operation_id in waiting.operations:
                raise taken(operation)
            check_new(operation)
            waiting.operations[operation.operation_id] = operation
            _note(waiting, operation, change)

    @override
    def advance_operation(
        self, operation_id: str, examine: int = STEP, *, change: Change | None = None
    ) -> Operation | None:
        check_number(examine, "examine")
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            operation = waiting.operations.get(operation_id)
            if operation is None or operation.state is not OperationState.RUNNING:
                return operation
            after, prefix = operation.after, operation.wanted.id_prefix or ""
            ids = (each for each in waiting.entries if each.startswith(prefix) and (after is None or each > after))
            looked_at = [] if operation.wanted.load is not None else heapq.nsmallest(examine, ids)
            matching = [each for each in looked_at if operation.wanted.matches(waiting.entries[each].message)]
            held = [each for each in matching if waiting.entries[each].is_claimed(now)]
            free = sorted(set(matching).difference(held))
            held += [each for each in free if not _change(operation, each, waiting, now)]
            is_done = len(looked_at) < examine
            advanced = waiting.operations[operation_id] = replace(
                operation,
                after=looked_at[-1] if looked_at else after,
                examined=operation.examined + len(looked_at),
                changed=operation.changed + len(matching) - len(held),
                held=operation.held + len(held),
                held_ids=(*operation.held_ids, *held)[:HELD_KEPT],
                state=OperationState.DONE if is_done else OperationState.RUNNING,
                ended=now if is_done else None,
            )
            _note_progress(waiting, advanced, change)
            return advanced

    @override
    def end_operation(self, operation_id: str, *, change: Change | None = None) -> Operation | None:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            operation = waiting.operations.get(operation_id)
            if operation is not None and operation.state is OperationState.RUNNING:
                operation = replace(operation, state=OperationState.ABANDONED, ended=now)
                waiting.operations[operation_id] = operation
                _note_progress(waiting, operation, change)
            return operation

    @override
    def operation(self, operation_id: str) -> Operation | None:
        waiting = self._waiting()
        with waiting.lock:
            return waiting.operations.get(operation_id)

    @override
    def operations(self, limit: int = 20) -> Sequence[Operation]:
        check_number(limit, "limit")
        waiting = self._waiting()
        with waiting.lock:
            return list(reversed(waiting.operations.values()))[:limit]

    @override
    def destinations(self) -> Sequence[Destination]:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return waiting.destinations.all(now)

    @override
    def pause(self, destination: str, *, by: str, until: datetime | None = None, change: Change | None = None) -> None:
        check_destination(destination)
        until = None if until is None else utc(until, "until")
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            waiting.destinations.pause(destination, by, until, now)
            if change is not None:
                waiting.changes.append(change.of_destination(now, destination, until=until))

    @override
    def resume(self, destination: str, *, by: str, change: Change | None = None) -> bool:
        check_destination(destination)
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            was_paused = waiting.destinations.resume(destination, by, now)
            if was_paused and change is not None:
                waiting.changes.append(change.of_destination(now, destination))
            return was_paused

    @override
    def limit_rate(self, destination: str, max_rate: float | None, *, by: str, change: Change | None = None) -> None:
        check_destination(destination)
        max_rate = check_max_rate(max_rate)
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            waiting.destinations.limit(destination, max_rate, by, now)
            if change is not None:
                waiting.changes.append(change.of_destination(now, destination, max_rate=max_rate))

    @override
    def park(self, until: datetime, at_most: int = STEP) -> int:
        until = utc(until, "until")
        check_number(at_most, "at_most")
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            due = [
                entry.message
                for entry in waiting.entries.values()
                if entry.message.next_attempt <= until
                and entry.message.next_attempt < PARKED
                and waiting.destinations.is_paused(entry.message.destination, now)
                and not entry.is_claimed(now)
            ]
            chosen = heapq.nsmallest(at_most, due, key=position_of)
            for message in chosen:
                waiting.change(message.message_id, parked(message))
            return len(chosen)

    @override
    def unpark(self, at_most: int = STEP, ahead: timedelta | None = None) -> int:
        check_number(at_most, "at_most")
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            destinations = waiting.destinations
            destinations.end_pauses(now)
            free = [entry.message for entry in waiting.entries.values() if not entry.is_claimed(now)]
            hidden = [each for each in free if each.is_parked and not destinations.is_paused(each.destination, now)]
            if not hidden and ahead is not None and any(each.resuming for each in destinations.all(now)):
                hidden = [each for each in free if destinations.is_to_be_shown(each, ahead, now)]
            chosen = heapq.nsmallest(at_most, hidden, key=lambda each: (each.due_time, each.message_id))
            for message in chosen:
                waiting.change(message.message_id, shown(message))
            if not chosen:
                destinations.end_resuming(postponed=ahead is not None)
            return len(chosen)

    @override
    def allowance(self, destination: str, wanted: int) -> Allowance:
        waiting = self._waiting()
        with waiting.lock:
            return waiting.destinations.allowance(destination, wanted, self._clock.now())

    @override
    def count_failing(self, at_most: int) -> int:
        check_number(at_most, "at_most")
        return min(at_most, sum(message.failure_count > 0 for message in self._messages()))

    @override
    def count_parked(self, at_most: int) -> int:
        check_number(at_most, "at_most")
        waiting = self._waiting()
        with waiting.lock:
            return min(at_most, len(waiting.parked))

    @override
    def heartbeat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            waiting.dispatchers = {each.dispatcher_id: each for each in _alive(waiting, now)}
            waiting.dispatchers[record.dispatcher_id] = replace(record, heartbeat=now)
            for activity in done:
                known = waiting.activity.get(activity.minute, Activity(minute=activity.minute))
                waiting.activity[activity.minute] = known + activity
            oldest = now - ACTIVITY_KEPT
            waiting.activity = {minute: each for minute, each in waiting.activity.items() if minute >= oldest}

    @override
    def retire(self, dispatcher_id: str) -> None:
        waiting = self._waiting()
        with waiting.lock:
            waiting.dispatchers.pop(dispatcher_id, None)

    @override
    def dispatchers(self) -> Sequence[DispatcherRecord]:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return sorted(_alive(waiting, now), key=lambda each: (each.name, each.dispatcher_id))

    @override
    def heartbeat_of_ingress(self, record: IngressRecord) -> None:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            waiting.ingresses[record.ingress_id] = replace(record, heartbeat=now)
            _delete_offline(waiting, record.queue, now)

    @override
    def retire_ingress(self, ingress_id: str) -> None:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            ended = waiting.ingresses.pop(ingress_id, None)
            if ended is not None:
                _delete_offline(waiting, ended.queue, now)

    @override
    def ingresses(self) -> Sequence[IngressRecord]:
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            return ingresses_to_show(waiting.ingresses.values(), now)

    @override
    def activity(self, since: datetime) -> Sequence[Activity]:
        since, waiting = utc(since, "since"), self._waiting()
        with waiting.lock:
            return [waiting.activity[minute] for minute in sorted(waiting.activity) if minute >= since]

    @override
    def forget_before(self, time: datetime, at_most: int = STEP) -> int:
        time, waiting = utc(time, "time"), self._waiting()
        check_number(at_most, "at_most")
        with waiting.lock:
            old = sorted((each.at, number) for number, each in enumerate(waiting.changes) if each.at < time)[:at_most]
            gone = {number for _, number in old}
            waiting.changes = [each for number, each in enumerate(waiting.changes) if number not in gone]
            ended = [each for each in waiting.operations.values() if each.ended is not None and each.ended < time]
            for operation in ended[:at_most]:
                del waiting.operations[operation.operation_id]
            return len(gone) + len(ended[:at_most])

    @override
    def changes(self, limit: int = 100, before: datetime | None = None) -> Sequence[AuditEntry]:
        check_number(limit, "limit")
        before, waiting = None if before is None else utc(before, "before"), self._waiting()
        with waiting.lock:
            found = [entry for entry in reversed(waiting.changes) if before is None or entry.at < before]
            return sorted(found, key=lambda entry: entry.at, reverse=True)[:limit]

    @override
    def keep_history(self, kept: timedelta | None) -> None:
        waiting = self._waiting()
        with waiting.lock:
            waiting.history.keep(kept, self._clock.now())

    @override
    def history_status(self) -> HistoryStatus:
        waiting = self._waiting()
        with waiting.lock:
            kept, since, entries = waiting.history.kept, waiting.history.since, len(waiting.history.entries)
        if kept is None or since is None:
            return HistoryStatus(entries=entries)
        return HistoryStatus(kept=kept, since=max(since, self._clock.now() - kept), entries=entries)

    @override
    def history(self, wanted: HistoryFilter, *, after: Position | None = None, limit: int = 100) -> HistoryPage:
        check_number(limit, "limit")
        waiting = self._waiting()
        with waiting.lock:
            found = [each for each in waiting.history.entries if wanted.matches(each)]
        behind = [each for each in found if after is None or _place(each) < after]
        page = heapq.nlargest(limit + 1, behind, key=_place)
        return HistoryPage(page[:limit], _place(page[limit - 1]) if len(page) > limit else None)

    @override
    def forget_history(self, at_most: int = FORGOTTEN_AT_ONCE) -> int:
        check_number(at_most, "at_most")
        waiting, now = self._waiting(), self._clock.now()
        with waiting.lock:
            history = waiting.history
            old = [] if history.kept is None else [each for each in history.entries if each.ended < now - history.kept]
            forgotten = heapq.nsmallest(at_most, old, key=_place)
            history.entries = [each for each in history.entries if each not in forgotten]
        return len(forgotten)

    def _messages(self, destination: str | None = None) -> Sequence[DelayedMessage]:
        waiting = self._waiting()
        with waiting.lock:
            messages = [entry.message for entry in waiting.entries.values()]
        return messages if destination is None else [one for one in messages if one.destination == destination]


def _place(entry: HistoryEntry) -> Position:
    return Position(entry.ended, entry.message_id)


def _alive(waiting: WaitingMessages, now: datetime) -> Sequence[DispatcherRecord]:
    return [each for each in waiting.dispatchers.values() if now - each.heartbeat <= ALIVE]


def _delete_offline(waiting: WaitingMessages, queue: str, now: datetime) -> None:
    """Delete the records that are not shown any more, and all of ingresses of `queue` that have died."""
    shown = ingresses_to_show(waiting.ingresses.values(), now)
    waiting.ingresses = {each.ingress_id: each for each in shown if each.queue != queue or not each.is_offline(now)}


def _note(waiting: WaitingMessages, operation: Operation, change: Change | None) -> None:
    if change is not None:
        waiting.changes.append(change.of_operation(operation.ended or operation.began, operation))


def _note_progress(waiting: WaitingMessages, operation: Operation, change: Change | None) -> None:
    """Have the operation's entries say how many messages it has changed by now."""
    count = count_of_begun(operation, change)
    entry = operation.began, operation.operation_id
    waiting.changes = [
        replace(each, count=count) if (each.at, each.operation_id) == entry else each for each in waiting.changes
    ]
    if operation.ended is not None:
        _note(waiting, operation, change)


def _change(operation: Operation, message_id: str, waiting: WaitingMessages, now: datetime) -> bool:
    """False: the new due time would be out of range."""
    if operation.kind is OperationKind.CANCEL:
        message, history = waiting.entries[message_id].message, waiting.history
        history.entries += history.made_of(message, Ending.CANCELLED, now, operation.by)
        waiting.drop(message_id)
        return True
    message = waiting.entries[message_id].message
    due_time = operation.due_time if operation.shift is None else operation.shift.moved(unmarked(message))
    if due_time is not None:
        waiting.change(message_id, rescheduled(message, due_time))
    return due_time is not None
