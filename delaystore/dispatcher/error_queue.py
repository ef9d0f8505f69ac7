"""Seeing to it that the error queue is there before it is needed."""

import logging
import time
from collections.abc import Callable
from typing import Final

from delaystore.settings import DelayedDeliverySettings
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.dispatcher")

DECLARE_AGAIN: Final = 30.0
"""Seconds between attempts to declare it."""


class ErrorQueue:
    """Declares the error queue when `automatic_setup` allows; a broker that is down or forbids it stops nothing."""

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
        self._warned = False

    def ensure(self) -> None:
        """Declare it, unless that was done, or tried a moment ago. Never raises."""
        if not self._wanted or self._monotonic() < self._not_before:
            return
        self._not_before = self._monotonic() + DECLARE_AGAIN
        try:
            self._transport.declare(self._name)
        except Exception as error:
            (logger.debug if self._warned else logger.warning)("cannot declare the error queue: %s", error)
            self._warned = True
        else:
            self._wanted = self._warned = False

    def refused(self) -> None:
        """It did not take a message: perhaps somebody deleted it."""
        self._wanted = self._allowed
