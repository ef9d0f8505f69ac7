"""Whether the store can be operated: paused, limited, reported to."""

import logging
import time
from collections.abc import Callable
from typing import Final

from delaystore.dispatcher.store_calls import StoreCalls
from delaystore.errors import StorePermissionError
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import OperableDelayedMessageStore

logger = logging.getLogger("delaystore.dispatcher")

ASK_EVERY: Final = 5.0
"""Seconds after which a store is asked again whose tables are of an earlier release, or whose rights are missing."""


class Operability:
    """Finds out whether a store is operable, and asks again while it is not. Threads may share it."""

    def __init__(
        self, store: DelayedMessageStore, store_calls: StoreCalls, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._store_calls = store_calls
        self._monotonic = monotonic
        self._not_before = 0.0
        self._told = False
        self.found: OperableDelayedMessageStore | None = None
        """The store, as far as is known: it is operable; None: it is not, or was not asked yet."""

    def ask(self) -> OperableDelayedMessageStore | None:
        """The store, if it is operable; asks it unless that is known, or was asked a moment ago. Raises its errors."""
        store = self._store
        if self.found is None and isinstance(store, OperableDelayedMessageStore):
            now = self._monotonic()
            if now >= self._not_before:
                self.found = store if self._may_be_operated(store) else None
                self._not_before = now + ASK_EVERY
        return self.found

    def _may_be_operated(self, store: OperableDelayedMessageStore) -> bool:
        """False also where the rights to its tables are missing, as after an upgrade: messages go all the same."""
        try:
            with self._store_calls.call("asking whether destinations can be paused"):
                if not store.is_operable:
                    return False
                store.destinations()
        except StorePermissionError as error:
            if not self._told:
                logger.warning("pauses and limits are not obeyed, and nothing is reported to the store: %s", error)
            self._told = True
            return False
        return True
