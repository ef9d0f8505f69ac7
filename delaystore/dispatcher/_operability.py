"""Whether the store can be operated: paused, limited, reported to."""

import time
from collections.abc import Callable
from typing import Final

from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import OperableDelayedMessageStore

ASK_EVERY: Final = 5.0
"""Seconds after which a store whose tables are of an earlier release is asked again."""


class Operability:
    """Finds out whether a store is operable, and asks again while it is not. Threads may share it."""

    def __init__(self, store: DelayedMessageStore, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._not_before = 0.0
        self.found: OperableDelayedMessageStore | None = None
        """The store, as far as is known: it is operable; None: it is not, or was not asked yet."""

    def ask(self) -> OperableDelayedMessageStore | None:
        """The store, if it is operable; asks it unless that is known, or was asked a moment ago. Raises its errors."""
        store = self._store
        if self.found is None and isinstance(store, OperableDelayedMessageStore):
            now = self._monotonic()
            if now >= self._not_before:
                self.found = store if store.is_operable else None
                self._not_before = now + ASK_EVERY
        return self.found
