"""A run: from the first look to the last batch, or on from where it stopped."""

import time
from collections.abc import Callable
from typing import Any

from delaystore.migrations.abc import (
    BatchStatus,
    MigrationSource,
    MigrationTarget,
    Report,
    Run,
    RunCounts,
    RunStatus,
)
from delaystore.migrations.runner.clocks import SourceClock
from delaystore.migrations.runner.holder import this_process
from delaystore.migrations.runner.moving import BATCHES_IN_FLIGHT, REJECTIONS_SHOWN, Mover
from delaystore.migrations.runner.previewing import Examination, examine
from delaystore.migrations.runner.progress import Listener, Quiet
from delaystore.migrations.runner.rates import Rate
from delaystore.migrations.runner.sending import Sender
from delaystore.migrations.runner.settings import RunSettings

Confirm = Callable[[Examination], bool]


def run(
    source: MigrationSource,
    target: MigrationTarget,
    endpoint: str,
    settings: RunSettings,
    *,
    listener: Listener | None = None,
    stopping: Callable[[], bool] = lambda: False,
    confirm: Confirm = lambda _examination: True,
) -> Report:
    """Move what is eligible, or go on with the run that stopped; the endpoint is locked meanwhile.

    `stopping`: whether somebody has asked to stop; batches in flight are finished then, and the run can be resumed.
    `confirm`: asked once everything is checked and before anything changes; False: nothing is done.
    The report's run is None where there was nothing to do, or it was not confirmed.

    Raises MigrationLockedError; MigrationError where something hinders, the parameters are not those of the
    unfinished run, the target takes nothing, or too much is rejected; StoreError, TransportError. Run it again.
    """
    with source.lock(endpoint, this_process()):
        return _Running(source, target, endpoint, settings, listener or Quiet(), stopping).run(confirm)


class _Running:
    def __init__(
        self,
        source: MigrationSource,
        target: MigrationTarget,
        endpoint: str,
        settings: RunSettings,
        listener: Listener,
        stopping: Callable[[], bool],
    ) -> None:
        self._source = source
        self._target = target
        self._endpoint = endpoint
        self._settings = settings
        self._listener = listener
        self._stopping = stopping
        self._began = time.monotonic()

    def run(self, confirm: Confirm) -> Report:
        source, target = self._source, self._target
        found = examine(source, target, self._endpoint, self._settings.cutoff)
        unfinished = found.unfinished
        parameters = self._settings.parameters(
            self._endpoint, target, None if unfinished is None else unfinished.parameters
        )
        found.refuse(allow_rejects=self._settings.allow_rejects)
        assert found.preview is not None
        if unfinished is None and not found.preview.count:
            return Report(run=None, counts=RunCounts())
        if not confirm(found):
            return Report(run=None, counts=RunCounts(), extra={"declined": True})
        target.set_up(found.preview.destinations)
        self._began = time.monotonic()
        run = unfinished or source.begin(parameters)
        if target.rehearsal:
            return self._rehearse(run, found)
        return self._carry_out(run, found)

    def _carry_out(self, run: Run, found: Examination) -> Report:
        """Prepare and move; a run that has nothing left is completed."""
        mover = self._move(run, found)
        run = mover.supply.run
        if run.status is RunStatus.RUNNING and not self._source.batches(run, BatchStatus.PENDING, BatchStatus.STAGED):
            run = self._source.set_status(run, RunStatus.COMPLETED)
        return self._report(run, found, mover, {})

    def _rehearse(self, run: Run, found: Examination) -> Report:
        """The same, but everything goes back, also where something fails."""
        try:
            mover = self._move(run, found)
        except Exception:
            self._put_back(run)
            raise
        seconds = time.monotonic() - self._began
        run = self._put_back(run)
        findings = {
            "would_move": mover.settled - mover.rejected,
            "would_be_rejected": mover.rejected,
            "seconds_to_hide_and_read": round(seconds, 3),
        }
        return self._report(run, found, mover, findings)

    def _put_back(self, run: Run) -> Run:
        self._listener.phase("given back", self._source.counts(run).pending)
        for count in self._source.give_back(run, rejected=True):
            self._listener.advance(count)
        return self._source.set_status(run, RunStatus.ABORTED)

    def _move(self, run: Run, found: Examination) -> Mover:
        source, settings = self._source, self._settings
        assert found.preview is not None
        clock = SourceClock(source)
        patience = settings.patience.total_seconds()
        sender = Sender(self._target, clock.now, Rate(settings.max_rate), patience, self._stopping)
        before = source.counts(run)
        mover = Mover(
            source,
            run,
            sender,
            clock,
            self._listener,
            stopping=self._stopping,
            max_rejects=settings.max_rejects,
            rejected=before.rejected,
            completing=not self._target.rehearsal,
        )
        preparing = run.status is RunStatus.PREPARING
        self._listener.phase("moved", before.pending + (found.preview.count if preparing else 0))
        mover.move(self._at_once(run))
        return mover

    def _at_once(self, run: Run) -> int:
        """One batch at a time where the rate makes each of them last: who asks to stop waits for all in flight."""
        rate = self._settings.max_rate
        return 1 if rate is not None and rate < run.parameters.batch_size else BATCHES_IN_FLIGHT

    def _report(self, run: Run, found: Examination, mover: Mover, extra: dict[str, Any]) -> Report:
        rejections = mover.rejections if self._target.rehearsal else self._source.rejections(run, REJECTIONS_SHOWN)
        return Report(
            run=run,
            counts=self._source.counts(run),
            seconds=time.monotonic() - self._began,
            sent=mover.sent,
            resumed=found.unfinished is not None,
            rejections=rejections,
            extra={"sent_again": mover.repeated, **extra},
        )
