"""When a failed message is tried again, and which of its attempts count."""

import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from delaystore.dispatcher._youngest import keep_youngest
from delaystore.message import LATEST_DUE_TIME, DelayedMessage

FACTOR: Final = 4.0
"""Each gap is this many times the one before."""
JITTER: Final = 0.2
"""Gaps are lengthened at random by up to this share, so that retries of many messages spread out."""
SHORTEST_GAP: Final = 1.0
"""Seconds; gaps are shorter where the whole span is too short for this."""
LONGEST_GAP_PAST_RETRIES: Final = 60.0
"""The most seconds between attempts of a message that the error queue did not take either."""
LONGEST_DEFERRAL: Final = timedelta(seconds=45)
"""The longest that a message gives way. Its destination is tried each few seconds, so that the last message arrives
within a minute of the recovery."""
MOST_REMEMBERED: Final = 100_000
"""The most messages remembered, in some ten megabytes. Beyond that, the deferrals of the oldest count as failed
attempts."""


def back_off(failure_count: int, number_of_retries: int, span: timedelta, random: Callable[[], float]) -> timedelta:
    """How long a message waits after its `failure_count`-th failure (from 1).

    There are `number_of_retries` gaps, each four times the one before, and together at least `span`. A message that has
    used them up, and that the error queue did not take, waits as long as the longest gap, but about a minute at most.
    `random` gives numbers from 0 to 1.
    """
    total = span.total_seconds()
    if failure_count > number_of_retries:
        gap = min(_gap(number_of_retries, number_of_retries, total), LONGEST_GAP_PAST_RETRIES)
    else:
        gap = _gap(failure_count, number_of_retries, total)
    return timedelta(seconds=gap * (1 + JITTER * random()))


def deferral(gap: timedelta, random: Callable[[], float]) -> timedelta:
    """How long a message gives way that would wait for `gap` after a failure: at least half of that, at random.

    So messages that gave way together come back one by one, and some of them soon.
    """
    return min(gap, LONGEST_DEFERRAL) * (1 - random() / 2)


def next_attempt(now: datetime, gap: timedelta) -> datetime:
    """`now` + `gap`, or the latest time a message can have."""
    try:
        return min(now + gap, LATEST_DUE_TIME)
    except OverflowError:
        return LATEST_DUE_TIME


def _gap(failure_count: int, number_of_retries: int, total: float) -> float:
    """Seconds, without jitter. Weights count back from the last gap, so that many retries overflow nothing."""
    if number_of_retries == 0:
        return total
    sum_of_weights = (1 - FACTOR**-number_of_retries) / (1 - 1 / FACTOR)
    gap = total * FACTOR ** (failure_count - number_of_retries) / sum_of_weights
    return max(gap, min(SHORTEST_GAP, total / number_of_retries))


class Deferrals:
    """Counts how often each message gave way to others because it got no answer.

    The store can show a message later only by counting a failure. Deferrals must not use up retries, so they are
    subtracted while this process lives. Threads may share it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}
        """Numbers of deferrals. By a hash of message_id and due time (an id may be used again), which takes little."""

    def note(self, messages: Iterable[DelayedMessage]) -> None:
        """Count one more deferral of each of `messages`, whose failure counts the store has raised."""
        with self._lock:
            for message in messages:
                key = _key(message)
                self._counts[key] = self._counts.pop(key, 0) + 1
            keep_youngest(self._counts, MOST_REMEMBERED)

    def failures(self, message: DelayedMessage) -> int:
        """How often `message` has failed, without its deferrals."""
        with self._lock:
            return max(0, message.failure_count - self._counts.get(_key(message), 0))

    def forget(self, messages: Iterable[DelayedMessage]) -> None:
        """Forget `messages`, which have arrived."""
        with self._lock:
            if self._counts:
                for message in messages:
                    self._counts.pop(_key(message), None)


def _key(message: DelayedMessage) -> int:
    return hash((message.message_id, message.due_time))
