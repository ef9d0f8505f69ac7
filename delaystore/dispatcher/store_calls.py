"""Calls to the store in progress: logged when they are slow, a failure when they go on for too long."""

import logging
from datetime import timedelta
from typing import Final

from delaystore.calls import SLOW, Call, calls_of, in_background
from delaystore.dispatcher.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.errors import StoreUnavailableError

logger: Final = logging.getLogger("delaystore.dispatcher")


class StoreCalls:
    """The store calls that one breaker is about; threads may share it. `limit`: how long a call may take."""

    def __init__(self, breaker: RepeatedFailuresOverTimeCircuitBreaker, limit: timedelta) -> None:
        self._breaker = breaker
        self._limit = limit.total_seconds()
        self._told: Call | None = None

    def call(self, purpose: str) -> Call:
        """A call for `purpose`, as in "storing a message"; raises StoreUnavailableError when it took too long."""
        return Call(purpose, self._limit, self)

    def longest(self) -> timedelta | None:
        """For how long the slowest call in progress has been going on; None: none is slow."""
        seconds = max((call.seconds for call in calls_of(self)), default=0.0)
        return timedelta(seconds=seconds) if seconds >= SLOW else None

    def in_progress(self, call: Call) -> None:
        """Log a slow call, one at a time; a call that lasts as long as failures may counts as one."""
        seconds = call.seconds
        if seconds >= SLOW and (self._told is None or self._told.ended):
            self._told = call
            logger.warning(
                "the store has not answered for %.0f s: %s; it may be frozen or out of reach, or wait for a lock, "
                "or for a synchronous standby that is gone",
                seconds,
                call.purpose,
            )
        if self._breaker.would_trigger(seconds):
            error = StoreUnavailableError(f"no answer for {seconds:.0f} s: {call.purpose}")
            # its action is the user's, and may take long
            in_background("delaystore-breaker", lambda: self._breaker.failure(error, lasted=seconds))
