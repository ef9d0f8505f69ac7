"""Declaring the error queue before it is needed."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from delaystore.settings import DelayedDeliverySettings
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.dispatcher")

DECLARE_AGAIN: Final = 30.0
"""Seconds between attempts."""
GRACE: Final = 2.0
"""Seconds that dispatching waits for the first attempt: as a rule it is there before a message needs it."""


class ErrorQueueDeclaration:
    """Declares the error queue when `automatic_setup` allows it, each attempt in a thread of its own.

    So a broker that is down, forbids it or does not answer holds up nothing.
    """

    def __init__(
        self,
        transport: Transport,
        settings: DelayedDeliverySettings,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._name = settings.error_queue
        self._allowed = settings.automatic_setup
        self._monotonic = monotonic
        self._wanted = self._allowed
        self._not_before = 0.0
        self._lock = threading.Lock()
        self._attempt: threading.Thread | None = None
        self.problem: str | None = None
        """Why it is not declared; None: it is, or nobody has tried yet, or need not."""

    def ensure(self) -> None:
        """Begin to declare it, unless that was done, or tried a moment ago. Never raises.

        Waits a moment for the end, unless it is known to fail.
        """
        if not self._wanted or self._monotonic() < self._not_before:
            return
        attempt = threading.Thread(target=self._declare, name="delaystore-error-queue", daemon=True)
        with self._lock:
            if self._attempt is not None or self._monotonic() < self._not_before:
                return
            self._not_before = self._monotonic() + DECLARE_AGAIN
            self._attempt = attempt
            known = self.problem is not None
        try:
            attempt.start()
        except RuntimeError as error:  # no thread can be started
            self._end(str(error))
            return
        if not known:
            attempt.join(GRACE)
            with self._lock:
                if self._attempt is attempt:
                    self._failed(f"no answer within {GRACE:g} s; it is waited for, and dispatching goes on")

    def again(self) -> None:
        """Have it declared once more: it may have been deleted."""
        self._wanted = self._allowed

    def _declare(self) -> None:
        try:
            self._transport.declare_error_queue(self._name)
        except Exception as error:
            self._end(str(error) or type(error).__name__)
        else:
            self._end(None)

    def _end(self, problem: str | None) -> None:
        """Note how the attempt ended; None: well."""
        with self._lock:
            self._attempt = None
            if problem is not None:
                self._failed(problem)
                return
            if self.problem is not None:
                logger.info("the error queue is declared now")
            self._wanted, self.problem = False, None

    def _failed(self, problem: str) -> None:
        """Note why it is not declared; the log hears of the first reason only."""
        (logger.debug if self.problem else logger.warning)("cannot declare the error queue: %s", problem)
        self.problem = problem
