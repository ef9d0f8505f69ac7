"""Moving batches, several at a time, so that source and target do not wait for each other."""

import threading
from collections.abc import Callable
from typing import Final

from delaystore.clock import CarriedClock
from delaystore.errors import StoreUnavailableError
from delaystore.migrations.abc import Batch, BatchStatus, MigrationSource, Rejected, Row, Run
from delaystore.migrations.runner._sending import GivenUpError, Sender
from delaystore.migrations.runner._supply import Supply
from delaystore.migrations.runner._tally import Tally
from delaystore.transports.abc import OutcomeKind

BATCHES_IN_FLIGHT: Final = 3
"""One is hidden and read, one is sent, one is completed. Of these the target may have some when a run is killed."""
_SIGNALS_HEEDED: Final = 0.1
"""Seconds to wait for a thread before Python can handle a signal."""


class Mover:
    """Moves the batches of one run.

    `stopping`: whether somebody has asked to stop; then batches in flight are finished, and no other is begun.
    `completing`: False for a dry run.
    """

    def __init__(
        self,
        source: MigrationSource,
        run: Run,
        sender: Sender,
        clock: CarriedClock,
        tally: Tally,
        *,
        stopping: Callable[[], bool],
        completing: bool,
    ) -> None:
        self._source = source
        self._run = run
        self._sender = sender
        self._clock = clock
        self._tally = tally
        self._stopping = stopping
        self._completing = completing
        self._at_source = threading.Lock()
        """Locked while the source is used, which only one thread may do at a time."""
        self.supply = Supply(source, run, self._at_source)
        self._failing = threading.Lock()
        self._failure: BaseException | None = None

    def move(self, at_once: int = BATCHES_IN_FLIGHT) -> None:
        """Move all batches, unless somebody asks to stop. Raises what went wrong first, once all have ended."""
        threads = [
            # daemons: a second interrupt ends the process at once, and the next run goes on
            threading.Thread(target=self._work, name=f"delaystore-migration-{number}", daemon=True)
            for number in range(at_once)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_SIGNALS_HEEDED)
        if isinstance(self._failure, StoreUnavailableError):
            raise StoreUnavailableError(
                f"stopped: {self._failure}; nothing is lost: run it again to go on, once the source answers"
            ) from self._failure
        if self._failure is not None and not isinstance(self._failure, GivenUpError):
            raise self._failure

    def _work(self) -> None:
        try:
            while not self._ending():
                batch = self.supply.next()
                with self._at_source:
                    left = self._source.left(self._run)
                self._tally.leave(left)
                if batch is None:
                    return
                self._move(batch)
        except BaseException as error:
            with self._failing:
                self._failure = self._failure or error

    def _ending(self) -> bool:
        with self._failing:
            return self._failure is not None or self._stopping()

    def _move(self, batch: Batch) -> None:
        with self._at_source:
            self._clock.now()  # asked here, where the source may be used; the sender goes by the answer
            staged = self._source.stage(self._run, batch)
        received = self._sender.received(batch) if batch.status is BatchStatus.STAGED else frozenset()
        left = {position: row for position, row in enumerate(staged) if position not in (received or ())}
        messages = {position: row.message for position, row in left.items() if isinstance(row, Row)}
        outcomes, repeated = self._sender.send(batch, messages)
        rejected = [row for row in left.values() if isinstance(row, Rejected)]
        rejected += (
            Rejected(left[position].row_id, outcome.reason)
            for position, outcome in outcomes.items()
            if outcome.kind is not OutcomeKind.DELIVERED
        )
        if self._completing:
            with self._at_source:
                self._source.complete(self._run, batch, rejected)
        again = batch.count if received is None else 0
        self._tally.count(batch, len(messages), repeated, rejected, again=again)
