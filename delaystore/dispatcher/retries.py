"""When a failed message is tried again."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from delaystore.message import LATEST_DUE_TIME

FACTOR: Final = 4.0
"""Each gap is this many times the one before."""
JITTER: Final = 0.2
"""Gaps are lengthened at random by up to this share, so that retries of many messages spread out."""
SHORTEST_GAP: Final = 1.0
"""Seconds; not kept where the whole span is too short for it."""
LONGEST_PARKED_GAP: Final = 60.0
"""Seconds between attempts of a message that the error queue, too, did not take."""


def back_off(failure_count: int, number_of_retries: int, span: timedelta, random: Callable[[], float]) -> timedelta:
    """How long a message waits after its `failure_count`-th failure (from 1).

    The gaps before the `number_of_retries` retries grow fourfold each and add up to at least `span`. Past them the
    message is parked: it waits as long as the longest gap, but at most a minute. `random` gives numbers from 0 to 1.
    """
    total = span.total_seconds()
    if failure_count > number_of_retries:
        gap = min(_gap(number_of_retries, number_of_retries, total), LONGEST_PARKED_GAP)
    else:
        gap = _gap(failure_count, number_of_retries, total)
    return timedelta(seconds=gap * (1 + JITTER * random()))


def next_attempt(now: datetime, gap: timedelta) -> datetime:
    """`now` + `gap`, or the latest time a message can have."""
    try:
        return min(now + gap, LATEST_DUE_TIME)
    except OverflowError:
        return LATEST_DUE_TIME


def _gap(failure_count: int, number_of_retries: int, total: float) -> float:
    """Without jitter. Weights are counted from the last gap back, so that many retries overflow nothing."""
    if number_of_retries == 0:
        return total
    sum_of_weights = (1 - FACTOR**-number_of_retries) / (1 - 1 / FACTOR)
    gap = total * FACTOR ** (failure_count - number_of_retries) / sum_of_weights
    return max(gap, min(SHORTEST_GAP, total / number_of_retries))
