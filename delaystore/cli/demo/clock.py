"""The store's clock, told by ours."""

import time
from datetime import datetime, timedelta

from delaystore.stores.abc import DelayedMessageStore


class StoreClock:
    """Compares two clocks once, so that arrivals can be timed on the store's clock without asking it.

    Never behind the store's clock by more than the store's own reading; ahead of it by one round trip at most.
    """

    def __init__(self, store: DelayedMessageStore) -> None:
        self._started = time.monotonic()
        self._then = store.now()

    def now(self) -> datetime:
        """The present instant on the store's clock."""
        return self._then + timedelta(seconds=time.monotonic() - self._started)
