"""The dispatcher's subscription to wake-ups for what other processes store."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from delaystore.stores.abc import DelayedMessageStore, WakeUpCallback, WakeUpSubscription

logger = logging.getLogger("delaystore.dispatcher")

SUBSCRIBE_AGAIN: Final = 30.0
"""Seconds between attempts to subscribe."""
LONGEST_CLOSE: Final = 5.0
"""Seconds that closing waits for a store, whose database may hang."""


class Subscription:
    """Subscribes to the store's wake-ups if it has them, and tries again if that fails."""

    def __init__(
        self,
        store: DelayedMessageStore,
        on_wake_up: WakeUpCallback,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._on_wake_up = on_wake_up
        self._monotonic = monotonic
        self._settled = False
        self._not_before = 0.0
        self._subscription: WakeUpSubscription | None = None

    def ensure(self) -> None:
        """Subscribe, unless that was done, or tried a moment ago. Never raises."""
        if self._settled or self._monotonic() < self._not_before:
            return
        self._not_before = self._monotonic() + SUBSCRIBE_AGAIN
        try:
            self._subscription = self._store.subscribe(self._on_wake_up)
            self._settled = True
        except Exception as error:
            logger.warning("cannot subscribe to the store's wake-ups; polling: %s", error)

    @property
    def alive(self) -> bool:
        """Whether wake-ups arrive; False: poll."""
        subscription = self._subscription
        return subscription is not None and subscription.alive

    def close(self) -> None:
        """Stop listening, within seconds: a store that takes longer is left to a thread of its own. Never raises."""
        subscription = self._subscription
        if subscription is None:
            return
        closer = threading.Thread(target=_close, args=(subscription,), name="delaystore-unsubscribe", daemon=True)
        try:
            closer.start()
        except RuntimeError:
            _close(subscription)  # no thread can be started
            return
        closer.join(LONGEST_CLOSE)
        if closer.is_alive():
            logger.warning("closing the subscription takes longer than %g s; going on without", LONGEST_CLOSE)


def _close(subscription: WakeUpSubscription) -> None:
    try:
        subscription.close()
    except Exception as error:
        logger.warning("closing the subscription failed: %s", error)
