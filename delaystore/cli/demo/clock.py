"""The store's clock, told by ours."""

import time
from datetime import datetime, timedelta

from delaystore.stores.abc import DelayedMessageStore


class StoreClock:
    """Compares two clocks once, so that arrivals can be timed on the store's clock without asking it.

    Never behind it, and ahead by the duration of one question at most: so no arrival is called early by mistake.
    """

    def __init__(self, store: DelayedMessageStore) -> None:
        self._started = time.monotonic()
        self._then = store.now()

    def now(self) -> datetime:
        """The present instant on the store's clock."""
        return self._then + timedelta(seconds=time.monotonic() - self._started)
