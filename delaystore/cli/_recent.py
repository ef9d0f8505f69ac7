"""What dispatchers did in the last minutes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import Any, Final, Self

from delaystore.documents import percentiles
from delaystore.lateness import LatenessHistogram
from delaystore.stores.operable import Activity
from delaystore.times import duration_text

WINDOWS: Final = (1, 5, 60)
"""Minutes."""


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

    def document(self) -> dict[str, Any]:
        """The same for JSON; lateness in seconds."""
        return {
            "minutes": self.minutes,
            "delivered": self.done.delivered,
            "failed": self.done.failed,
            "moved_to_error_queue": self.done.moved_to_error_queue,
            "rate": round(self.rate, 3),
            "lateness": percentiles(self.done.lateness),
        }

    def row(self) -> tuple[str, ...]:
        """The same for people."""
        done = self.done
        counts = (done.delivered, done.failed, done.moved_to_error_queue)
        late = (_lateness(done.lateness, percent) for percent in (50, 90, 99))
        return (f"{self.minutes} min", *(f"{count:,}" for count in counts), rate_text(self.rate), *late)


COLUMNS: Final = ("last", "delivered", "failed", "to error queue", "rate", "late p50", "p90", "p99")
"""Those of `Recent.row`."""


def rate_text(rate: float) -> str:
    """Messages a second for people, or a minute or an hour where it is less than one in ten."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if rate * seconds >= 0.1:
            each = rate * seconds
            return f"{each:,.0f}/{unit}" if each >= 10 else f"{each:.2g}/{unit}"
    return "0/s"


def _lateness(lateness: LatenessHistogram, percent: int) -> str:
    seconds = lateness.percentile(percent)
    return "-" if seconds is None else duration_text(timedelta(seconds=seconds))
