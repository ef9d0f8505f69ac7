"""What dispatchers did in the last minutes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import Any, Self

from delaystore.documents import percentiles
from delaystore.stores.operable import Activity


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """What was done in the last `minutes`, and in the minute that has begun; `seconds`: in so long."""

    minutes: int
    seconds: float
    done: Activity

    @classmethod
    def of(cls, activity: Sequence[Activity], now: datetime, minutes: int) -> Self:
        """What `activity` tells of them."""
        begun = now.replace(second=0, microsecond=0)
        since = begun - timedelta(minutes=minutes)
        done = reduce(add, (each for each in activity if each.minute >= since), Activity(minute=since))
        return cls(minutes=minutes, seconds=(now - since).total_seconds(), done=done)

    @property
    def rate(self) -> float:
        """Messages delivered a second."""
        return self.done.delivered / self.seconds

    @property
    def rates(self) -> Mapping[str, float]:
        """The same by destination."""
        return {name: count / self.seconds for name, count in self.done.by_destination.items()}

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON; lateness in seconds."""
        return {
            "minutes": self.minutes,
            "delivered": self.done.delivered,
            "failed": self.done.failed,
            "moved_to_error_queue": self.done.moved_to_error_queue,
            "rate": round(self.rate, 3),
            "lateness": percentiles(self.done.lateness),
        }
