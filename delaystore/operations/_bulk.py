"""Operations on many messages: begun, run in steps, resumed, abandoned."""

from collections.abc import Callable
from datetime import datetime
from secrets import token_hex
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.filters import MessageFilter
from delaystore.message import waiting_until
from delaystore.operations._access import Access
from delaystore.stores.operable import Operation, OperationKind, OperationState
from delaystore.times import time_text

OperationListener = Callable[[Operation], object]
"""Called after each step with the operation as it is. What it raises ends the run, which can be resumed."""


_ID_BYTES: Final = 5
"""Few, so that people can type the id. The store refuses one that is taken."""


def begin(access: Access, kind: OperationKind, wanted: MessageFilter, due_time: datetime | None = None) -> Operation:
    """A new operation, kept in the store and noted; it has changed nothing yet."""
    store = access.operable()
    if due_time is not None:
        due_time = waiting_until(due_time, "the new due time")
    with access.call("beginning an operation"):
        operation = Operation(
            operation_id=token_hex(_ID_BYTES),
            kind=kind,
            wanted=wanted,
            by=access.by,
            began=store.now(),
            due_time=due_time,
        )
        store.begin_operation(operation)
    access.note(kind.value, f"{_about(operation)}: begun", 0)
    return operation


def operation(access: Access, operation_id: str) -> Operation | None:
    """The operation of that id; None: there is none."""
    store = access.operable()
    with access.call("looking up an operation"):
        return store.operation(operation_id)


def run(access: Access, operation_id: str, listener: OperationListener | None = None) -> Operation:
    """Take steps until the operation has ended; raises ConfigurationError where there is none of that id."""
    store, found = access.operable(), operation(access, operation_id)
    began_running = found is not None and found.state is OperationState.RUNNING
    while found is not None and found.state is OperationState.RUNNING:
        with access.call("changing many messages"):
            found = store.advance_operation(operation_id)
        if found is not None and listener is not None:
            listener(found)
    if found is None:
        raise ConfigurationError(f"there is no operation {operation_id!r}; `delaystore operations` lists them")
    if found.kind is OperationKind.RESCHEDULE and found.changed:
        access.wake_up(found.due_time)
    if began_running and found.state is OperationState.DONE:
        access.note(found.kind.value, _about(found), found.changed)
    return found


def abandon(access: Access, operation_id: str) -> Operation | None:
    """End an operation that runs; what it changed stays changed. None: there is none of that id."""
    store, before = access.operable(), operation(access, operation_id)
    if before is None:
        return None
    with access.call("abandoning an operation"):
        ended = store.end_operation(operation_id)
    if ended is not None and before.state is OperationState.RUNNING:
        access.note("abandon", _about(ended), ended.changed)
    return ended


def _about(operation: Operation) -> str:
    when = "" if operation.due_time is None else f" to {time_text(operation.due_time)}"
    return f"{operation.wanted}{when} (operation {operation.operation_id})"
