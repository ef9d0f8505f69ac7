"""The rule about a message_id that is taken, where a retry is sent under the id of what failed.

Somebody has stored this retry already (its worker died before it acknowledged the message), or the earlier attempt has
arrived and is just being removed. In the second case this one needs an id of its own, or it would be removed with the
other.

Celery's adapter has another rule: results are read, and tasks revoked, by the id, so a retry keeps it, and waits.
"""

from collections.abc import Callable

from delaystore.message import DelayedMessage


def waits_already(
    found: DelayedMessage | None, body: bytes, retries: int, retries_of: Callable[[DelayedMessage], int]
) -> bool:
    """Whether `found`, which has the id, is the message with this body, or that retry of it or a later one."""
    return found is not None and (found.body == body or retries_of(found) >= retries > 0)
