"""Moving batches, several at a time, so that neither end waits for the other."""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from delaystore.errors import MigrationError, StoreUnavailableError
from delaystore.migrations.abc import Batch, BatchStatus, MigrationSource, Rejected, Row, Run
from delaystore.migrations.runner.clocks import SourceClock
from delaystore.migrations.runner.progress import Listener
from delaystore.migrations.runner.sending import GivenUpError, Sender
from delaystore.migrations.runner.supply import Supply
from delaystore.transports.abc import OutcomeKind

BATCHES_IN_FLIGHT: Final = 3
"""While one is hidden and read, and one is completed, one is being sent. A killed run sends at most these again."""
REJECTIONS_SHOWN: Final = 20
_LOOK: Final = 0.1
"""Seconds between two looks at whether the threads have ended; signals are heeded in between."""


class Mover:
    """Moves the batches of one run.

    `max_rejects`: how many rejected rows the run may have. `rejected`: how many it has. `completing`: False for a
    rehearsal. `stopping`: whether somebody has asked to stop: batches in flight are finished, no other is begun.
    """

    def __init__(
        self,
        source: MigrationSource,
        run: Run,
        sender: Sender,
        clock: SourceClock,
        listener: Listener,
        *,
        stopping: Callable[[], bool],
        max_rejects: int | None = None,
        rejected: int = 0,
        completing: bool = True,
    ) -> None:
        self._source = source
        self._run = run
        self._sender = sender
        self._clock = clock
        self._listener = listener
        self._stopping = stopping
        self._max_rejects = max_rejects
        self._completing = completing
        self._at_source = threading.Lock()
        """Held while the source is used, which is not for several threads at once."""
        self.supply = Supply(source, run, self._at_source)
        self._books = threading.Lock()
        self._failure: BaseException | None = None
        self.repeated = sum(batch.count for batch in self.supply.left if batch.status is BatchStatus.STAGED)
        """Sends of what may be at the target already."""
        self.settled = 0
        """Messages of which it is known what became of them."""
        self.sent = 0
        self.rejected = rejected
        self.rejections: list[Rejected] = []
        """The first of those that were rejected here."""

    def move(self, at_once: int = BATCHES_IN_FLIGHT) -> None:
        """Move all, unless somebody asks to stop. Raises what went wrong first, once all is quiet."""
        threads = [
            # daemons: who will not wait interrupts a second time, and the next run goes on
            threading.Thread(target=self._work, name=f"delaystore-migration-{number}", daemon=True)
            for number in range(at_once)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK)
        if isinstance(self._failure, StoreUnavailableError):
            raise StoreUnavailableError(
                f"stopped: {self._failure}; nothing is lost: run it again to go on, once the source answers"
            ) from self._failure
        if self._failure is not None and not isinstance(self._failure, GivenUpError):
            raise self._failure

    def _work(self) -> None:
        try:
            while not self._ending() and (batch := self.supply.next()) is not None:
                self._move(batch)
        except BaseException as error:
            with self._books:
                self._failure = self._failure or error

    def _ending(self) -> bool:
        with self._books:
            return self._failure is not None or self._stopping()

    def _move(self, batch: Batch) -> None:
        with self._at_source:
            self._clock.refresh()
            staged = self._source.stage(self._run, batch)
        rows = [row for row in staged if isinstance(row, Row)]
        rejected = [row for row in staged if isinstance(row, Rejected)]
        outcomes, repeated = self._sender.send([row.message for row in rows])
        rejected += (
            Rejected(row.row_id, outcome.reason)
            for row, outcome in zip(rows, outcomes, strict=True)
            if outcome.kind is not OutcomeKind.DELIVERED
        )
        if self._completing:
            with self._at_source:
                self._source.complete(self._run, batch, rejected)
        self._note(batch, len(rows), repeated, rejected)

    def _note(self, batch: Batch, sent: int, repeated: int, rejected: Sequence[Rejected]) -> None:
        with self._books:
            self.settled += batch.count
            self.sent += sent + repeated
            self.repeated += repeated
            self.rejected += len(rejected)
            self.rejections += rejected[: max(0, REJECTIONS_SHOWN - len(self.rejections))]
            self._listener.advance(batch.count)
            if rejected and self._max_rejects is not None and self.rejected > self._max_rejects:
                last = rejected[-1]
                raise MigrationError(
                    f"stopped: {self.rejected:,} rejected, and --max-rejects is {self._max_rejects:,}; the last, "
                    f"{last.row_id}: {last.reason}; run it again with a larger one, or abort it"
                )
