"""The rule about a message_id that is taken, where a retry is sent under the id of the failed attempt.

If this retry is stored already, because its worker died before it acknowledged the message, it waits once. If a
dispatcher has the earlier attempt, the store waits until the dispatcher has removed that. If it has not within a few
seconds, the retry gets an id of its own.

Celery's adapter has another rule: results are read, and tasks revoked, by the id, so a retry keeps it, and waits.
"""

from collections.abc import Callable

from delaystore.message import DelayedMessage


def waits_already(
    found: DelayedMessage | None, body: bytes, retries: int, retries_of: Callable[[DelayedMessage], int]
) -> bool:
    """Whether `found`, which has the id, is the message with this body, or that retry of it or a later one."""
    return found is not None and (found.body == body or retries_of(found) >= retries > 0)
