"""What an ingress has done so far."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from delaystore.ingress._entry import Entry, Fate


class Tally:
    """Counts by fate. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Fate] = Counter()
        self.last_success: datetime | None = None
        """When something was last acknowledged, by this computer's clock."""
        self.kept_back = 0
        """How many messages are kept back in the ingress queue."""
        self.trouble: str | None = None
        """Why; None: none are."""

    def add(self, settled: Sequence[Entry]) -> None:
        """Count entries that have a fate."""
        if not settled:
            return
        with self._lock:
            self._counts.update(entry.fate for entry in settled if entry.fate is not None)
            self.last_success = datetime.now(UTC)

    def left(self, count: int, trouble: str | None) -> None:
        """Note how many messages are kept back, and why."""
        with self._lock:
            self.kept_back = count
            self.trouble = trouble if count else None

    def counts(self) -> Mapping[str, int]:
        """How many messages had each fate."""
        with self._lock:
            return {fate.value: self._counts[fate] for fate in Fate}
