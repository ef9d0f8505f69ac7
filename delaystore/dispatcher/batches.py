"""How many messages to claim at once."""

from collections.abc import Sequence
from typing import Final

from delaystore.message import DelayedMessage

FIRST_LIMIT: Final = 64


class BatchSizer:
    """Starts small, doubles while batches come back full, and keeps the bodies of a batch near `most_bytes`.

    `largest_body` is the longest body expected, in bytes: before any batch was seen, every body may have it.
    """

    def __init__(self, most: int, most_bytes: int, largest_body: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._average = 0.0
        self.limit = max(1, min(FIRST_LIMIT, most, most_bytes // largest_body))
        """How many messages to ask for next."""

    def learn(self, batch: Sequence[DelayedMessage]) -> None:
        """Take a fetched batch into account; an empty one says nothing."""
        if not batch:
            return
        average = sum(len(message.body) for message in batch) / len(batch)
        # Growth is believed at once, shrinking slowly: memory matters more than speed.
        self._average = max(average, (self._average + average) / 2)
        wanted = self.limit * 2 if len(batch) >= self.limit else self.limit
        bearable = int(self._most_bytes // max(self._average, 1))
        self.limit = max(1, min(wanted, self._most, bearable))

    def slow_down(self) -> None:
        """The broker did not settle a batch in time: ask for half as many."""
        self.limit = max(1, self.limit // 2)
