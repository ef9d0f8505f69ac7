"""What the dispatcher did, and how it is doing."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Final

from delaystore.dispatcher.breakers import BreakerState

STATUS_TIMEOUT: Final = timedelta(seconds=5)
"""How long the store may take to say how it is."""
SLOW_CALL_ALARM: Final = timedelta(seconds=15)
"""A store call that has gone on for longer makes the dispatcher unhealthy."""
OVERDUE_ALARM: Final = timedelta(minutes=5)
"""A message overdue for longer than this makes the dispatcher unhealthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchReport:
    """What one or more passes did, in messages; reports add up."""

    fetched: int = 0
    delivered: int = 0
    moved_to_error_queue: int = 0
    failed: int = 0
    """Failed attempts that were counted and will be made again."""
    gave_way: int = 0
    """Shown again later, at no retry's cost: their destination took nothing, or gave no answer in time."""
    unsettled: int = 0
    """No answer from the broker: left as they were."""
    unsuited: int = 0
    """Not due yet, and the transport cannot delay them natively: kept in the store until they are due."""
    parked: int = 0
    """Kept, as their destination is paused, until it is resumed."""
    postponed: int = 0
    """Shown again later, at no retry's cost: more than the limit of their destination."""
    claims_lost: int = 0
    """Forwarded, but no longer claimed when they were to be removed: another dispatcher may have forwarded them too."""

    @property
    def progress(self) -> bool:
        """Whether anything in the store changed."""
        shown_later = self.failed + self.gave_way + self.parked + self.postponed
        return self.delivered + self.moved_to_error_queue + shown_later > self.claims_lost

    def counts(self) -> dict[str, int]:
        """Each of the counts by its name."""
        return {field.name: getattr(self, field.name) for field in fields(DispatchReport)}

    def __add__(self, other: "DispatchReport") -> "DispatchReport":
        return DispatchReport(**{name: count + getattr(other, name) for name, count in self.counts().items()})


NOTHING_DONE: Final = DispatchReport()


class Tally:
    """What the passes of one dispatcher add up to; shared by its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.total = NOTHING_DONE
        """All reports so far."""
        self.last_success: datetime | None = None
        """When a message was last delivered, on the store's clock."""

    def add(self, report: DispatchReport, now: datetime) -> None:
        """Count a pass that began at `now`."""
        with self._lock:
            self.total += report
            if report.delivered:
                self.last_success = now


@dataclass(frozen=True, slots=True, kw_only=True)
class Health(DispatchReport):
    """How the dispatcher of this process is doing, and what it has done since it was made or forked."""

    running: bool
    """Whether its loop runs in this process."""
    breakers: Mapping[str, str] = field(default_factory=dict)
    """The state of each circuit breaker: disarmed, armed or triggered."""
    oldest_overdue: timedelta | None = None
    """How long ago the message that waits longest was due, though it may be shown again later; None: nothing is
    overdue, or the store does not answer. A SQL store looks at the first 1000 messages by next attempt."""
    last_success: datetime | None = None
    """When this process last delivered a message; None: not yet."""
    store: str | None = None
    """Why the store does not answer or cannot be written; None: it does and can."""
    slow_store_call: timedelta | None = None
    """For how long the slowest store call of this process has been in progress; None: none has for 5 s."""
    transport: str | None = None
    """Why nothing can be sent at present; None: it can, or that is unknown, as while the loop does not run."""
    error_queue: str | None = None
    """Why the error queue is not declared, so that messages for it may stay in the store; None: nothing is known."""
    subscription_alive: bool = False
    """Whether sends of other processes wake this dispatcher; False: it polls for them."""

    @property
    def healthy(self) -> bool:
        """Whether this process forwards messages as it should."""
        return (
            self.running
            and self.store is None
            and self.transport is None
            and self.error_queue is None
            and (self.slow_store_call is None or self.slow_store_call < SLOW_CALL_ALARM)
            and BreakerState.TRIGGERED not in self.breakers.values()
            and (self.oldest_overdue is None or self.oldest_overdue < OVERDUE_ALARM)
        )

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON: durations in seconds, times in ISO 8601."""
        own = {field.name: _as_json(getattr(self, field.name)) for field in fields(self)}
        return {"healthy": self.healthy, **own}


def _as_json(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else value
