"""What stores do alike about keys, and about ids and keys that a dispatcher has claimed."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from delaystore.bridge import pause
from delaystore.errors import (
    DuplicateKeyError,
    DuplicateMessageError,
    InvalidMessageError,
    KeyInUseError,
    MessageBeingDispatchedError,
)
from delaystore.keys import KeyRule, OnKey, time_left, waiting_at_most
from delaystore.message import LATEST_DUE_TIME, MARKS, DelayedMessage, marked

LONGEST_PAUSE: Final = 0.1
"""Seconds between two looks at a message that somebody has."""
_Answer = TypeVar("_Answer")


def key_of(message: DelayedMessage) -> str:
    """The key of a message that must have one."""
    if message.key is None:
        raise InvalidMessageError(f"the message {message.message_id!r} has no key; on_key and max_wait go with one")
    return message.key


def without_keys(messages: Iterable[DelayedMessage], keyed: list[DelayedMessage]) -> Iterator[DelayedMessage]:
    """Those of `messages` that have no key; the others are added to `keyed`."""
    for message in messages:
        if message.key is None:
            yield message
        else:
            keyed.append(message)


def in_order_of_keys(keyed: list[DelayedMessage]) -> list[DelayedMessage]:
    """Those of one key in their order; two batches with keys in common then never wait for one another."""
    return sorted(keyed, key=key_of)


def bounded(message: DelayedMessage, first_sent: datetime, rule: KeyRule) -> DelayedMessage:
    """`message`, due no later than the rule allows."""
    latest = latest_due_time(first_sent, rule)
    if latest is None or message.due_time <= latest:
        return message
    return replace(message, due_time=latest, next_attempt=latest)


def unlike(message: DelayedMessage, message_id: str, due_time: datetime) -> DelayedMessage:
    """`message`, to be put in the place of the one that has this id and due time.

    If it has this id, and the same due time without its marks, it gets those marks and one more: a dispatcher may
    remember the message as it was before any of them.
    """
    if message.message_id != message_id or not timedelta(0) <= message.due_time - due_time < MARKS:
        return message
    return replace(message, due_time=marked(due_time))


def latest_due_time(first_sent: datetime, rule: KeyRule) -> datetime | None:
    """None: the rule has no bound, or one that no due time reaches."""
    if rule.max_wait is None:
        return None
    try:
        latest = first_sent + rule.max_wait
    except OverflowError:
        return None
    return latest if latest <= LATEST_DUE_TIME else None


def refuse_duplicate(message: DelayedMessage, waiting: str, rule: KeyRule) -> None:
    """Raise, where the rule is to reject, what says that the message `waiting` has the key.

    Whoever sends a message again to be sure of it hears that this very message waits.
    """
    if rule.on_key is OnKey.REJECT:
        if waiting == message.message_id:
            raise DuplicateMessageError([waiting])
        raise DuplicateKeyError(key_of(message), waiting)


def patiently(attempt: Callable[[], _Answer], patience: float) -> _Answer:
    """What `attempt` returns, made again for `patience` seconds while a dispatcher has the message of its id or key.

    With 0 it is made once, and its statements wait for locks as long as they do by themselves.
    """
    wait = LONGEST_PAUSE / 16
    with waiting_at_most(patience) if patience else nullcontext():
        while True:
            try:
                return attempt()
            except (KeyInUseError, MessageBeingDispatchedError):
                if not patience or time_left() < wait:
                    raise
            pause(wait)
            wait = min(2 * wait, LONGEST_PAUSE)
