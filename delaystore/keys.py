"""Keys: what a new message does when one with its key already waits."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Self

from delaystore.errors import InvalidMessageError

KEY_PATIENCE: Final = 5.0
"""Seconds for which a send waits for whoever has the message of its key: a dispatcher, or somebody's transaction."""
_deadline: Final = ContextVar("deadline", default=math.inf)
"""By time.monotonic."""


@contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Let what the block stores wait no longer for dispatchers and transactions that have its ids or keys.

    One statement may wait for a second more, the shortest wait of some databases.
    """
    token = _deadline.set(min(_deadline.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def time_left() -> float:
    """Seconds that are left of `waiting_at_most`; infinite outside of it."""
    return _deadline.get() - time.monotonic()


class OnKey(StrEnum):
    """What becomes of a new message where one with its key waits."""

    REJECT = "reject"
    """DuplicateKeyError."""
    KEEP = "keep"
    """The one that waits stays as it is; the new one is not stored."""
    REPLACE = "replace"
    """The new one takes its place: message_id, content and due time."""
    DEBOUNCE = "debounce"
    """As `replace`, but due no later than `max_wait` after the first of those that have replaced one another."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """An OnKey with its bound. `max_wait` None: there is none."""

    on_key: OnKey = OnKey.REJECT
    max_wait: timedelta | None = None

    @classmethod
    def of(cls, on_key: OnKey | str | None, max_wait: timedelta | float | None) -> Self:
        """The rule of these arguments; None: the default. Raises InvalidMessageError for what makes no sense."""
        try:
            chosen = OnKey.REJECT if on_key is None else OnKey(on_key)
        except ValueError:
            raise InvalidMessageError(f"on_key must be one of {', '.join(OnKey)}, not {on_key!r}") from None
        if max_wait is None:
            return cls(chosen)
        if chosen is not OnKey.DEBOUNCE:
            raise InvalidMessageError(f"max_wait goes with on_key='debounce', not with {str(chosen)!r}; leave it out")
        return cls(chosen, _span(max_wait))


def _span(max_wait: timedelta | float) -> timedelta:
    try:
        if isinstance(max_wait, bool):
            raise TypeError
        span = max_wait if isinstance(max_wait, timedelta) else timedelta(seconds=max_wait)
    except (TypeError, ValueError, OverflowError):
        raise InvalidMessageError(f"max_wait must be a timedelta or a number of seconds, not {max_wait!r}") from None
    if span <= timedelta(0):
        raise InvalidMessageError(f"max_wait is {max_wait}; it must be more than 0")
    return span
