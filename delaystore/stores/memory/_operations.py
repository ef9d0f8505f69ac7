"""Operations on many messages, and how far they are."""

import heapq
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from delaystore.stores._checks import check_new, taken
from delaystore.stores.memory._waiting import WaitingMessages, rescheduled
from delaystore.stores.operable import HELD_KEPT, Change, Operation, OperationKind, OperationState


class Operations:
    """Of what waits at one endpoint. Callers have taken its lock."""

    def __init__(self, waiting: WaitingMessages) -> None:
        self._waiting = waiting
        self._begun = waiting.operations

    def begin(self, operation: Operation, change: Change | None) -> None:
        """Raises ConfigurationError for one that is not new."""
        if operation.operation_id in self._begun:
            raise taken(operation)
        check_new(operation)
        self._begun[operation.operation_id] = operation
        self._note(operation, change)

    def get(self, operation_id: str) -> Operation | None:
        """None: there is none."""
        return self._begun.get(operation_id)

    def last(self, limit: int) -> Sequence[Operation]:
        """The newest first."""
        return list(reversed(self._begun.values()))[:limit]

    def end(self, operation_id: str, now: datetime, change: Change | None) -> Operation | None:
        """None: there is none."""
        operation = self._begun.get(operation_id)
        if operation is not None and operation.state is OperationState.RUNNING:
            operation = self._put(replace(operation, state=OperationState.ABANDONED, ended=now))
            self._note(operation, change)
        return operation

    def forget(self, before: datetime, at_most: int) -> int:
        """Delete those that ended before that time; returns how many."""
        old = [each.operation_id for each in self._begun.values() if each.ended is not None and each.ended < before]
        for operation_id in old[:at_most]:
            del self._begun[operation_id]
        return len(old[:at_most])

    def _note(self, operation: Operation, change: Change | None) -> None:
        if change is not None:
            at = operation.ended or operation.began
            self._waiting.reports.note([change.of_operation(at, operation)])

    def advance(self, operation_id: str, examine: int, now: datetime, change: Change | None) -> Operation | None:
        """One step; None: there is none."""
        waiting = self._waiting
        operation = self._begun.get(operation_id)
        if operation is None or operation.state is not OperationState.RUNNING:
            return operation
        after = operation.after
        looked_at = heapq.nsmallest(examine, (each for each in waiting.entries if after is None or each > after))
        matching = [each for each in looked_at if operation.wanted.matches(waiting.entries[each].message)]
        held = [each for each in matching if waiting.entries[each].is_claimed(now)]
        for message_id in set(matching).difference(held):
            _change(operation, message_id, waiting)
        advanced = replace(
            operation,
            after=looked_at[-1] if looked_at else after,
            examined=operation.examined + len(looked_at),
            changed=operation.changed + len(matching) - len(held),
            held=operation.held + len(held),
            held_ids=(*operation.held_ids, *held)[:HELD_KEPT],
        )
        if len(looked_at) < examine:
            advanced = replace(advanced, state=OperationState.DONE, ended=now)
            self._note(advanced, change)
        return self._put(advanced)

    def _put(self, operation: Operation) -> Operation:
        self._begun[operation.operation_id] = operation
        return operation


def _change(operation: Operation, message_id: str, waiting: WaitingMessages) -> None:
    if operation.kind is OperationKind.CANCEL:
        waiting.drop(message_id)
        return
    assert operation.due_time is not None
    waiting.change(message_id, rescheduled(waiting.entries[message_id].message, operation.due_time))
