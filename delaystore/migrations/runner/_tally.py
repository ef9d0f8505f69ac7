"""What became of a run's messages, counted."""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from delaystore.errors import MigrationError
from delaystore.migrations.abc import Batch, Recurring, Rejected

REJECTIONS_SHOWN: Final = 20


class Tally:
    """Counts for one run; may be shared by threads.

    `settled`: told after each batch how many messages are settled. `rejected`: how many the run has rejected already.
    `max_rejects`: how many it may reject; None: any number.
    """

    def __init__(self, settled: Callable[[int], object], *, rejected: int = 0, max_rejects: int | None = None) -> None:
        self._tell_settled = settled
        self._max_rejects = max_rejects
        self._lock = threading.Lock()
        self.settled = 0
        """How many messages have moved or are rejected."""
        self.sent = 0
        """How many messages were sent, repeats included."""
        self.repeated = 0
        """How many sends were repeated because no answer came."""
        self.again = 0
        """How many messages were being sent when the run stopped, and were sent again, as the target cannot tell."""
        self.rejected = rejected
        self.left = 0
        """How many rows stay in their table, because they are no messages."""
        self._left_seen = 0
        self.rejections: list[Rejected] = []
        """The first rows that were rejected."""

    def count(self, batch: Batch, sent: int, repeated: int, rejected: Sequence[Rejected], *, again: int = 0) -> None:
        """Count a batch that is done. Raises MigrationError where too much is rejected."""
        with self._lock:
            self.settled += batch.count
            self.sent += sent + repeated
            self.repeated += repeated
            self.again += again
            self.rejected += len(rejected)
            self.rejections += rejected[: max(0, REJECTIONS_SHOWN - len(self.rejections))]
            self._tell_settled(self.settled)
            self._check(rejected)

    def leave(self, left: Sequence[Rejected]) -> None:
        """Count the rows that stay in their table: all that the source has met. Raises MigrationError, as `count`."""
        with self._lock:
            rows = [row for row in left[self._left_seen :] if not isinstance(row, Recurring)]
            self._left_seen = max(self._left_seen, len(left))
            self.left += len(rows)
            self._check(rows)

    def _check(self, rejected: Sequence[Rejected]) -> None:
        many = self.rejected + self.left
        if rejected and self._max_rejects is not None and many > self._max_rejects:
            last = rejected[-1]
            raise MigrationError(
                f"stopped: {many:,} rejected, and at most {self._max_rejects:,} may be; the last, "
                f"{last.row_id}: {last.reason}; run it again with --allow-rejects or a larger --max-rejects to go "
                "on, or abort it"
            )
