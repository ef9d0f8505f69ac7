"""Waiting for the end of an outage: nothing is claimed while nothing can be sent."""

import time
from collections.abc import Callable
from typing import Final

from delaystore.dispatcher._wakeup import WakeUp
from delaystore.dispatcher.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.errors import TransportUnavailableError
from delaystore.transports.abc import Transport

CONNECTING_GRACE: Final = 3.0
"""Seconds after the start in which a missing connection is no failure."""
CONNECTING_POLL: Final = 0.02
"""Seconds between two checks of the connection in that time."""


class AvailabilityCheck:
    """Waits, outside any transaction, for the end of an outage that a pass has found."""

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

    def wait(self, outage: str, delay: float) -> None:
        """Wait until the transport can send, but not longer than `delay` seconds.

        `delay` 0: the breaker has not been told of `outage` yet; it is told, and says how long to wait.
        """
        grace = self._grace_ends - self._monotonic()
        if grace > 0 and not delay:
            self._wake.pause(grace, self.can_send, CONNECTING_POLL)
        else:
            self._outage = True
            delay = delay or self._breaker.failure(TransportUnavailableError(outage))
            self._wake.pause(delay, self.can_send)

    def confirm(self, *, idle: bool) -> None:
        """Note that a pass could claim. `idle`: it found nothing due; an outage counted by `wait` is then over."""
        self._grace_ends = 0.0
        if idle and self._outage:
            self._outage = False
            self._breaker.success()

    def can_send(self) -> bool:
        """Whether the transport can send now; True also if it does not know."""
        return self._transport.unavailable() is None
