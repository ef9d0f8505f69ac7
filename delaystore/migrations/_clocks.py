"""Whether the clocks of a migration agree. The source's clock decides what is due."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from delaystore.migrations.abc import Problem

_TOLERATED: Final = timedelta(minutes=1)
"""A smaller difference between two clocks is not mentioned."""
_ZONE_STEP: Final = timedelta(minutes=30)
"""Nearly all time zones differ by multiples of it."""


def clock_problems(whose: str, theirs: datetime, ours: datetime) -> Sequence[Problem]:
    """What is wrong with a clock: fatal where it differs from this computer's as if by a time zone.

    `whose`: names the clock, for people. `theirs`, `ours`: what the two clocks say now, aware.
    """
    difference = theirs - ours
    size = abs(difference)
    if size <= _TOLERATED:
        return []
    way = "ahead of" if difference > timedelta(0) else "behind"
    from_step = min(size % _ZONE_STEP, _ZONE_STEP - size % _ZONE_STEP)
    if size >= _ZONE_STEP - _TOLERATED and from_step <= _TOLERATED:
        hours = round(size / _ZONE_STEP) / 2
        return [
            Problem(
                whose,
                f"is {hours:g} h {way} this computer's, as if one were in another time zone: every message would be "
                "early or late by that; put the clock or its time zone right",
            )
        ]
    return [
        Problem(
            whose,
            f"is {timedelta(seconds=round(size.total_seconds()))} {way} this computer's; "
            "what is due goes by the source's",
            fatal=False,
        )
    ]
