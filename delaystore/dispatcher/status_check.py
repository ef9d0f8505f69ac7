"""Asking the store how it is, without waiting for as long as it may take."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Final

from delaystore.calls import Repeated
from delaystore.stores.abc import Count, DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.operable import DispatcherRecord, OperableDelayedMessageStore

MOST_COUNTED: Final = 10_000
"""As many failing and parked messages are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCounts:
    """What a store has, as in `Health`; None: it cannot tell, or did not in time."""

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
    """Ask `store` for what it can tell, also of the error queue of that name; raises its errors."""
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
        error_queue_depth=depth_told(dispatchers, error_queue)[0],
    )


def depth_told(dispatchers: Sequence[DispatcherRecord], error_queue: str) -> tuple[int | None, datetime | None]:
    """How many messages are in `error_queue`, as those dispatchers tell that use it, and when the broker said so.

    None: none of them knows.
    """
    told = [
        (each.error_queue_depth, each.error_queue_seen)
        for each in dispatchers
        if each.error_queue == error_queue and each.error_queue_depth is not None
    ]
    return max(told, key=lambda each: each[0], default=(None, None))


class StatusCheck:
    """Asks one store, for a bounded time; `error_queue`: whose depth dispatchers have told it."""

    def __init__(self, store: DelayedMessageStore, error_queue: str) -> None:
        self._status = Repeated("asking for the status", lambda: store.status())
        self._counts = Repeated("counting what waits", lambda: counts_of(store, error_queue))

    def health(self, timeout: timedelta | float) -> StoreHealth:
        """How the store is, asked for `timeout` (or seconds) at most; raises nothing.

        What it cannot count in that time is unknown, and no problem.
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
