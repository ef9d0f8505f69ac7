"""Nothing is claimed while nothing can be sent."""

import time
from collections.abc import Callable
from typing import Final

from delaystore.dispatcher.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.dispatcher.wakeup import WakeUp
from delaystore.errors import TransportUnavailableError
from delaystore.transports.abc import Transport

CONNECTING_GRACE: Final = 3.0
"""Seconds at the start in which not being connected yet is no failure."""
CONNECTING_POLL: Final = 0.02
"""Seconds between two questions meanwhile."""


class TransportGate:
    """Asks the transport before each pass; waits, outside any transaction, while it cannot send."""

    def __init__(
        self,
        transport: Transport,
        breaker: RepeatedFailuresOverTimeCircuitBreaker,
        wake: WakeUp,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._breaker = breaker
        self._wake = wake
        self._monotonic = monotonic
        self._grace_ends = monotonic() + CONNECTING_GRACE
        self._outage = False

    def is_open(self) -> bool:
        """Whether a pass may begin. False: not yet; it has waited a while, and counted a failure."""
        reason = self._transport.unavailable()
        if reason is None:
            self._grace_ends = 0.0
            return True
        grace = self._grace_ends - self._monotonic()
        if grace > 0:
            self._wake.pause(grace, self._available, CONNECTING_POLL)
        else:
            self._outage = True
            self._wake.pause(self._breaker.failure(TransportUnavailableError(reason)), self._available)
        return False

    def nothing_due(self) -> None:
        """A pass found nothing to send: an outage that the transport itself reported as over is over."""
        if self._outage:
            self._outage = False
            self._breaker.success()

    def _available(self) -> bool:
        return self._transport.unavailable() is None
