"""The batches to move, one after another."""

import threading
from collections.abc import Iterator, Sequence

from delaystore.migrations.abc import Batch, BatchStatus, MigrationSource, Run, RunStatus


class Supply:
    """The batches that a run has left; then, while it is PREPARING, new ones, each hidden when it is asked for.

    So rows are hidden shortly before they move, and neither their dispatcher nor the target waits for the whole table.
    `at_source`: locked while the source is used. May be shared by threads.
    """

    def __init__(self, source: MigrationSource, run: Run, at_source: threading.Lock) -> None:
        self._source = source
        self._at_source = at_source
        self._turn = threading.Lock()
        self.left: Sequence[Batch] = source.batches(run, BatchStatus.PENDING, BatchStatus.STAGED)
        """The batches that are hidden already. Of those that are STAGED, the target may have some."""
        self.staged_before = 0 if run.parameters.dry_run else source.in_flight(run)
        """How many messages were being sent when the run stopped. They are sent again, and may be at the target."""
        self._batches: Iterator[Batch] = self._all(run)
        self.run = run

    def next(self) -> Batch | None:
        """The next batch; None: none is left, and all rows are hidden. Raises StoreError."""
        with self._turn:
            return next(self._batches, None)

    def _all(self, run: Run) -> Iterator[Batch]:
        yield from self.left
        if run.status is not RunStatus.PREPARING:
            return
        preparing = self._source.prepare(run)
        while True:
            with self._at_source:
                batch = next(preparing, None)
                if batch is None:
                    self.run = self._source.set_status(run, RunStatus.RUNNING)
                    return
            yield batch
