"""Aborting a run: what has not moved goes back, exactly as it was."""

import time
from collections.abc import Callable

from delaystore.errors import MigrationError
from delaystore.migrations.abc import BatchStatus, MigrationSource, Report, RunStatus
from delaystore.migrations.runner.holder import this_process
from delaystore.migrations.runner.moving import REJECTIONS_SHOWN
from delaystore.migrations.runner.previewing import UNFINISHED
from delaystore.migrations.runner.progress import Listener, Quiet


def abort(
    source: MigrationSource,
    endpoint: str,
    *,
    listener: Listener | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Report:
    """Give back what the latest run has not moved, what was rejected included; of a completed run that is all.

    The report's `extra`: `given_back`, how many by this call; `in_flight`, how many of these were being sent when the
    run stopped, and may be at the target as well; `stopped`, whether it was asked to stop before the end.
    What cannot go back, since a row of its id waits there again, stays rejected.
    Raises MigrationLockedError, MigrationError where there was no run, StoreError. Abort again to go on.
    """
    listener = listener or Quiet()
    began = time.monotonic()
    with source.lock(endpoint, this_process()):
        run = source.run(endpoint)
        if run is None:
            raise MigrationError(f"there is no run of {endpoint!r} to abort")
        before = source.counts(run)
        in_flight = sum(batch.count for batch in source.batches(run, BatchStatus.STAGED))
        listener.phase("given back", before.pending + before.rejected)
        given_back, stopped = 0, False
        for count in source.give_back(run, rejected=True):
            given_back += count
            listener.advance(count)
            if stopped := stopping():
                break
        if run.status in UNFINISHED and not stopped:
            run = source.set_status(run, RunStatus.ABORTED)
        return Report(
            run=run,
            counts=source.counts(run),
            seconds=time.monotonic() - began,
            rejections=source.rejections(run, REJECTIONS_SHOWN),
            extra={"given_back": given_back, "in_flight": in_flight, "stopped": stopped},
        )
