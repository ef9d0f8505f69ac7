"""Changes of one message, noted."""

from datetime import datetime

from delaystore.operations._access import Access
from delaystore.stores.abc import ManagementOutcome
from delaystore.times import time_text


def cancel(access: Access, message_id: str) -> ManagementOutcome:
    """Delete a waiting message, unless a dispatcher has claimed it."""
    store = access.operable()
    with access.call("cancelling a message"):
        outcome = store.cancel(message_id)
    return _noted(access, outcome, "cancel", message_id)


def reschedule(access: Access, message_id: str, due_time: datetime, action: str) -> ManagementOutcome:
    """Give a waiting message a new due time, unless a dispatcher has claimed it; it is noted as `action`."""
    store = access.operable()
    with access.call("rescheduling a message"):
        outcome = store.reschedule(message_id, due_time)
    if outcome is ManagementOutcome.DONE:
        access.wake_up(due_time)
    return _noted(access, outcome, action, f"{message_id} to {time_text(due_time)}")


def _noted(access: Access, outcome: ManagementOutcome, action: str, about: str) -> ManagementOutcome:
    if outcome is ManagementOutcome.DONE:
        access.note(action, f"message {about}", 1)
    return outcome
