"""When a task is due, as Celery reads its countdown or eta."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import Any, Self

from celery.utils.time import maybe_iso8601, maybe_make_aware


@dataclass(frozen=True, slots=True)
class Due:
    """`at`: the time, aware, by this process's clock. `delay`: a countdown in seconds; None: an eta was given."""

    at: datetime
    delay: float | None = None

    @classmethod
    def of(cls, app: Any, countdown: Any, eta: Any) -> Self | None:
        """What Celery makes of both: a countdown other than 0 wins. None: at once, or nothing Celery could read."""
        if countdown:
            if not isinstance(countdown, Real):
                return None
            try:
                seconds = float(countdown)
                return cls(datetime.now(UTC) + timedelta(seconds=seconds), seconds)
            except (OverflowError, ValueError):
                return None
        at = None if not eta else read_time(app, eta)
        return None if at is None else cls(at)

    @property
    def seconds_left(self) -> float:
        """From now until then."""
        return seconds_until(self.at) if self.delay is None else self.delay


def read_time(app: Any, text: Any) -> datetime | None:
    """`text`, an ISO 8601 time or a datetime, as a worker of `app` reads it, in UTC; None: it is neither."""
    try:
        found = maybe_iso8601(text)
        return maybe_make_aware(found, app.timezone).astimezone(UTC) if isinstance(found, datetime) else None
    except (AttributeError, OverflowError, TypeError, ValueError):
        return None


def seconds_until(at: datetime) -> float:
    """From now; negative for the past."""
    return (at - datetime.now(UTC)).total_seconds()
