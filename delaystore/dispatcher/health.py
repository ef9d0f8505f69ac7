"""Reports of a dispatcher: its health, its counts, and the counts of its store."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from operator import add, attrgetter
from time import monotonic
from typing import Any, Final

from typing_extensions import override

from delaystore.breakers import triggered
from delaystore.calls import SingleFlight
from delaystore.stores import documents
from delaystore.stores.abc import Count, DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import DispatcherRecord
from delaystore.text import duration_text, overdue_text

MOST_COUNTED: Final = 10_000
"""As many failing and parked messages are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCounts:
    """Counts of a store, as in `Health`; None: it cannot count that, or did not in time."""

    backlog: Count | None = None
    failing: int | None = None
    paused: Sequence[str] | None = None
    parked_now: int | None = None
    dispatchers: int | None = None
    error_queue_depth: int | None = None


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """How a store is, as in `Health`."""

    oldest_overdue: timedelta | None = None
    problem: str | None = None
    counts: StoreCounts = field(default_factory=StoreCounts)


def counts_of(store: DelayedMessageStore, error_queue: str) -> StoreCounts:
    """Ask `store` for its counts, and for the reported depth of `error_queue`; raises its errors."""
    backlog = store.estimate_count() if isinstance(store, ManagedDelayedMessageStore) else None
    if not isinstance(store, OperableDelayedMessageStore) or not store.is_operable:
        return StoreCounts(backlog=backlog)
    dispatchers = store.dispatchers()
    return StoreCounts(
        backlog=backlog,
        failing=store.count_failing(MOST_COUNTED),
        paused=[each.name for each in store.destinations() if each.paused],
        parked_now=store.count_parked(MOST_COUNTED),
        dispatchers=len(dispatchers),
        error_queue_depth=reported_depth(dispatchers, error_queue)[0],
    )


def reported_depth(dispatchers: Sequence[DispatcherRecord], error_queue: str) -> tuple[int | None, datetime | None]:
    """Find the number of messages in an error queue, as reported by the dispatchers that use it.

    Args:
        dispatchers: The reports of running dispatchers.
        error_queue: The queue's name.

    Returns:
        The number, and when the broker said so. None, None: no dispatcher knows.

    """
    reported = [
        (each.error_queue_depth, each.error_queue_seen)
        for each in dispatchers
        if each.error_queue == error_queue and each.error_queue_depth is not None
    ]
    return max(reported, key=lambda each: each[0], default=(None, None))


class StatusCheck:
    """Asks one store, for a bounded time; `error_queue`: the queue whose depth dispatchers have reported to it."""

    def __init__(self, store: DelayedMessageStore, error_queue: str) -> None:
        self._status = SingleFlight("asking for the status", lambda: store.status())
        self._counts = SingleFlight("counting waiting messages", lambda: counts_of(store, error_queue))

    def health(self, timeout: timedelta | float) -> StoreHealth:
        """Ask the store how it is; raises nothing.

        Args:
            timeout: How long the store has to answer, as a timedelta or in seconds. Counts that it cannot make in
                that time are unknown, and no problem.

        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        ends = monotonic() + seconds
        try:
            status = self._status.question(seconds).answer()
        except Exception as error:
            return StoreHealth(problem=str(error) or type(error).__name__)
        try:
            counts = self._counts.question(max(0.0, ends - monotonic())).answer()
        except Exception:
            counts = StoreCounts()
        return StoreHealth(status.overdue, status.read_only, counts)


STATUS_TIMEOUT: Final = timedelta(seconds=5)
"""How long the store may take to say how it is."""

SLOW_CALL_ALARM: Final = timedelta(seconds=15)
"""A store call that has gone on for longer makes the dispatcher unhealthy."""

OVERDUE_ALARM: Final = timedelta(minutes=5)
"""A message overdue for longer than this makes the dispatcher unhealthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchReport:
    """The results of one or more passes, in messages. Reports can be added."""

    fetched: int = 0
    """Claimed."""
    delivered: int = 0
    """At their destination, and removed."""
    moved_to_error_queue: int = 0
    """Copied to the error queue, and removed; without expired messages."""
    expired: int = 0
    """Not delivered, because their latest delivery had passed: copied to the error queue or dropped, and removed."""
    failed: int = 0
    """Failed attempts that were counted and will be made again."""
    deferred: int = 0
    """Shown again later without using a retry: their destination was unavailable, or gave no answer in time."""
    unconfirmed: int = 0
    """No answer from the broker: left as they were."""
    not_delayable: int = 0
    """Not due yet, and the transport cannot delay them natively: kept in the store until they are due."""
    parked: int = 0
    """Kept, as their destination is paused, until it is resumed."""
    postponed: int = 0
    """Shown again later without using a retry: they exceeded the limit of their destination."""
    claims_lost: int = 0
    """Forwarded, but no longer claimed when they were to be removed: another dispatcher may have forwarded them too."""

    @property
    def progress(self) -> bool:
        """Whether anything in the store changed."""
        shown_later = self.failed + self.deferred + self.parked + self.postponed
        return self.delivered + self.moved_to_error_queue + self.expired + shown_later > self.claims_lost

    def counts(self) -> dict[str, int]:
        """Each of the counts by its name."""
        return dict(zip(_COUNT_NAMES, _counts(self), strict=True))

    def __add__(self, other: "DispatchReport") -> "DispatchReport":
        return DispatchReport(**dict(zip(_COUNT_NAMES, map(add, _counts(self), _counts(other)), strict=True)))


_COUNT_NAMES: Final = tuple(field.name for field in fields(DispatchReport))
_counts: Final[Callable[[DispatchReport], tuple[int, ...]]] = attrgetter(*_COUNT_NAMES)
NOTHING_DONE: Final = DispatchReport()


class DispatchCounts:
    """The sum of the reports of one dispatcher's passes. Its threads share it."""

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


@dataclass(frozen=True, slots=True)
class HealthReport(ABC):
    """The health of a component: its problems, and a form for JSON."""

    @property
    @abstractmethod
    def problems(self) -> Sequence[str]:
        """Why it is not healthy, a sentence each; none: it is."""

    @property
    def healthy(self) -> bool:
        """Whether it works as it should: there are no problems."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON, with `healthy` and `problems`: durations in seconds, times in ISO 8601."""
        own = {field.name: documents.field(getattr(self, field.name)) for field in fields(self)}
        return {"healthy": self.healthy, "problems": list(self.problems), **own}


@dataclass(frozen=True, slots=True, kw_only=True)
class Health(DispatchReport, HealthReport):
    """State of this process's dispatcher, and its counts since it was made or forked.

    Counts of the store are the same for all processes; None: it cannot count that, or did not in time.
    """

    running: bool
    """Whether its loop runs in this process."""
    dispatches: bool = True
    """Whether this process is to forward messages; False: it has no transport, and only sends."""
    breakers: Mapping[str, str] = field(default_factory=dict)
    """The state of each circuit breaker: disarmed, armed or triggered."""
    oldest_overdue: timedelta | None = None
    """How long ago the message that waits longest was due, though it may be shown again later; None: nothing is
    overdue, or the store does not answer. Parked messages do not count. A SQL store looks at the first 1000 messages
    by next attempt, and at as many messages that have failed before."""
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
    backlog: int | None = None
    """How many messages wait, parked ones too."""
    backlog_exact: bool | None = None
    """False: `backlog` is an estimate."""
    failing: int | None = None
    """Waiting messages that have failed before; counted up to 10,000."""
    paused: Sequence[str] | None = None
    """The destinations that are paused, by name."""
    parked_now: int | None = None
    """Messages that wait for their destination to be resumed; counted up to 10,000."""
    error_queue_depth: int | None = None
    """Messages in the error queue, as a running dispatcher has reported."""
    dispatchers: int | None = None
    """Running dispatchers, in all processes."""

    @property
    @override
    def problems(self) -> Sequence[str]:
        """Why it is not healthy, a sentence each; none: it is.

        That something is overdue is no problem of a process that only sends.
        """
        found = [f"the store: {self.store}"] if self.store is not None else []
        if self.slow_store_call is not None and self.slow_store_call >= SLOW_CALL_ALARM:
            found.append(f"the store has not answered a call for {duration_text(self.slow_store_call)}")
        found += triggered(self.breakers)
        return found + self._dispatching_problems() if self.dispatches else found

    def _dispatching_problems(self) -> list[str]:
        found = [] if self.running else ["the dispatcher of this process does not run"]
        if self.transport is not None:
            found.append(f"nothing can be sent: {self.transport}")
        if self.error_queue is not None:
            found.append(f"the error queue is not declared: {self.error_queue}")
        if self.oldest_overdue is not None and self.oldest_overdue >= OVERDUE_ALARM:
            found.append(overdue_text(self.oldest_overdue))
        return found


def with_counts(health: Health, counts: StoreCounts) -> Health:
    """`health` with the store's counts."""
    backlog = counts.backlog
    return replace(
        health,
        backlog=None if backlog is None else backlog.messages,
        backlog_exact=None if backlog is None else backlog.exact,
        failing=counts.failing,
        paused=counts.paused,
        parked_now=counts.parked_now,
        error_queue_depth=counts.error_queue_depth,
        dispatchers=counts.dispatchers,
    )
