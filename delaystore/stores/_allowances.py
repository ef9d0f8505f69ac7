"""How many messages may go to a limited destination now: what every store reckons alike."""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Self

from delaystore.errors import ConfigurationError
from delaystore.stores.operable import FURTHEST, Allowance, postponed_until

SLOWEST: Final = 0.001
FASTEST: Final = 1_000_000.0
"""Bounds of a limit, in messages a second."""
_ROUNDING: Final = 1e-9
"""Of a message: what binary fractions lack."""
_UNEVEN: Final = timedelta(seconds=5)
"""How far two readings of a store's clock may be apart although it has not stepped."""


def check_max_rate(max_rate: float | None) -> float | None:
    """`max_rate` as a float; raises ConfigurationError for what is no limit of messages a second."""
    if max_rate is None:
        return None
    if isinstance(max_rate, bool) or not isinstance(max_rate, int | float) or not SLOWEST <= max_rate <= FASTEST:
        raise ConfigurationError(
            f"max_rate must be a number of messages a second from {SLOWEST} (3.6 an hour) to {FASTEST:.0f}, "
            f"not {max_rate!r}"
        )
    return float(max_rate)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket, as two times: it needs to be kept, and nothing else does."""

    full_at: datetime
    """When it is full again, if nothing goes until then."""
    promised: datetime
    """The last time that was given to a message that may not go now."""

    @classmethod
    def full(cls, now: datetime) -> Self:
        """One from which nothing was taken, as where a limit is new."""
        return cls(now, now)

    def forgiven(self, now: datetime) -> Self:
        """Without promises, as after a resume: who had them asks again at once."""
        return replace(self, promised=now)

    def has_promised(self, now: datetime) -> bool:
        """Whether a message may be postponed until after `now`."""
        return self.promised > now - FURTHEST

    def is_of_another_clock(self, now: datetime) -> bool:
        """Whether the clock has evidently stepped back since a time was promised."""
        return self.promised > now + FURTHEST + _UNEVEN


def shown_by(promised: datetime | None, ahead: timedelta, now: datetime) -> datetime:
    """The latest next attempt that a message postponed under the present limit has, if it is fetched `ahead` of it.

    `promised`: the last time that was given; None: the destination has no limit.
    """
    return now if promised is None else postponed_until(max(promised, now) + ahead)


def allowed(bucket: Bucket, max_rate: float, now: datetime, wanted: int) -> tuple[Allowance, Bucket]:
    """How many of `wanted` messages may go, when the others are to ask again, and the bucket after that."""
    most = max(1.0, max_rate)
    latest = now + FURTHEST
    full_at = min(max(bucket.full_at, now), now + _lasting(most / max_rate))  # the clock may have stepped back
    granted = max(0, min(wanted, math.floor(most - (full_at - now).total_seconds() * max_rate + _ROUNDING)))
    after = full_at + _lasting(granted / max_rate)
    first = after + _lasting((1 - most) / max_rate)
    if not _is_idle(bucket, now, most / max_rate):
        first = max(first, bucket.promised + _lasting(1 / max_rate))
    later = [min(first + _lasting(number / max_rate), latest) for number in range(wanted - granted)]
    return Allowance(granted=granted, later=later), Bucket(after, later[-1] if later else min(bucket.promised, latest))


def _is_idle(bucket: Bucket, now: datetime, seconds: float) -> bool:
    """Whether those who were promised times evidently do not come: they have gone, or somewhere else."""
    return (now - bucket.full_at).total_seconds() > 2 * seconds


def _lasting(seconds: float) -> timedelta:
    """Up to the next microsecond: nobody goes too soon, and at a promised time there is a message's room."""
    return timedelta(microseconds=math.ceil(seconds * 1e6))
