"""One run of a migration, as its settings say: checked, moved batch by batch, reported."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delaystore.calls import ProgressListener, unwatched
from delaystore.clock import ExtrapolatedClock, RateLimit
from delaystore.errors import ConfigurationError, MigrationError
from delaystore.migrations.abc import (
    BatchStatus,
    MigrationRun,
    MigrationSource,
    MigrationTarget,
    Recurring,
    Report,
    RunCounts,
    RunParameters,
    RunStatus,
)
from delaystore.migrations.runner._moving import (
    BATCHES_IN_FLIGHT,
    REJECTIONS_SHOWN,
    BatchSender,
    MigrationCounts,
    Mover,
    Supply,
)
from delaystore.migrations.runner._verifying import RunCheck, check, complete_received, earlier_rejected, this_process

DEFAULT_BATCH_SIZE: Final = 1000
_LARGEST_BATCH: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a run is to go.

    Attributes:
        cutoff: Only messages due then or later move, an aware datetime; None: all of them.
        batch_size: Rows in a batch; None: 1000, or the resumed run's.
        max_rate: Messages a second; None: no limit.
        max_rejects: The run stops when more rows are rejected; None: as `allow_rejects` says.
        allow_rejects: Begin, and go on, although rows are rejected; without it the run stops at the first.
        target_timeout: How long the target may accept no message before the run ends.

    Raises:
        ConfigurationError: A value cannot be.

    """

    cutoff: datetime | None = None
    batch_size: int | None = None
    max_rate: float | None = None
    max_rejects: int | None = None
    allow_rejects: bool = False
    target_timeout: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        if self.cutoff is not None and self.cutoff.utcoffset() is None:
            raise ConfigurationError("the cut-off must be an aware datetime, such as datetime.now(UTC)")
        if self.batch_size is not None and not 1 <= self.batch_size <= _LARGEST_BATCH:
            raise ConfigurationError(f"the batch size must be from 1 to {_LARGEST_BATCH:,}, not {self.batch_size}")
        if self.max_rate is not None and not (math.isfinite(self.max_rate) and self.max_rate > 0):
            raise ConfigurationError(f"the maximum rate must be above 0 messages a second, not {self.max_rate}")
        if self.max_rejects is not None and self.max_rejects < 0:
            raise ConfigurationError(f"the most rejected rows must be 0 or more, not {self.max_rejects}")
        if self.target_timeout < timedelta(0):
            raise ConfigurationError(f"the target timeout must not be negative, as {self.target_timeout} is")

    @property
    def most_rejects(self) -> int | None:
        """How many rows the run may reject before it stops; None: any number."""
        if self.max_rejects is None and not self.allow_rejects:
            return 0
        return self.max_rejects

    def parameters(self, endpoint: str, target: MigrationTarget, of_unfinished: RunParameters | None) -> RunParameters:
        """The run's parameters. Raises MigrationError where the unfinished run has others."""
        before = None if of_unfinished is None else of_unfinished.batch_size
        wanted = RunParameters(
            endpoint=endpoint,
            target=target.label,
            cutoff=None if self.cutoff is None else self.cutoff.astimezone(UTC),
            batch_size=self.batch_size or before or DEFAULT_BATCH_SIZE,
        )
        if of_unfinished is not None:
            _check_unchanged(of_unfinished, wanted)
        return wanted


def _check_unchanged(begun: RunParameters, wanted: RunParameters) -> None:
    for name, was, is_now in (
        ("target", begun.target, wanted.target),
        ("cut-off", _text(begun.cutoff), _text(wanted.cutoff)),
        ("batch size", str(begun.batch_size), str(wanted.batch_size)),
    ):
        if was != is_now:
            raise MigrationError(
                f"the unfinished run of {begun.endpoint!r} has the {name} {was}, not {is_now}; run it again with the "
                "same value to continue, or abort it first"
            )


def _text(cutoff: datetime | None) -> str:
    return "none" if cutoff is None else cutoff.astimezone(UTC).isoformat()


_CLOCK_FRESH_FOR: Final = 30.0
"""Seconds."""
Confirm = Callable[[RunCheck], bool]


def run(
    source: MigrationSource,
    target: MigrationTarget,
    endpoint: str,
    settings: RunSettings,
    *,
    listener: ProgressListener = unwatched,
    stopping: Callable[[], bool] = lambda: False,
    confirm: Confirm = lambda _checked: True,
) -> Report:
    """Move waiting messages, or resume the run that stopped. The endpoint is locked meanwhile.

    Args:
        source: Where the messages wait.
        target: Where they are moved to.
        endpoint: The endpoint whose messages they are.
        settings: How the run is to go.
        listener: Called as it goes on.
        stopping: Whether to stop; batches in flight are finished then, and the run can be resumed.
        confirm: Asked after everything is checked and before anything changes; False: nothing is done.

    Returns:
        The report. Its run is None where there was nothing to move, or it was not confirmed. Its `extra`: `sent_again`,
        how many sends were repeated; `declined`, where it was not confirmed; of a dry run also `would_move`,
        `would_be_rejected` and `seconds_to_hide_and_read`.

    Raises:
        MigrationLockedError: Another process migrates the endpoint.
        MigrationError: Something blocks the run, the parameters are not those of the unfinished run, the target
            accepts no message, or too many rows are rejected. Run it again.
        StoreError, TransportError: The source or the target fails. Run it again.

    """
    with source.lock(endpoint, this_process()):
        return _RunInProgress(source, target, endpoint, settings, listener, stopping).run(confirm)


def abort(
    source: MigrationSource,
    endpoint: str,
    *,
    target: MigrationTarget | None = None,
    listener: ProgressListener = unwatched,
    stopping: Callable[[], bool] = lambda: False,
) -> Report:
    """Restore the messages that the latest run has not moved, and the ones that it and all earlier runs of the
    endpoint rejected.

    A row stays rejected if another row with its id waits by now.

    Args:
        source: Where the messages waited.
        endpoint: The endpoint whose messages they are.
        target: The run's target, which is asked for the received messages of the batches in flight: they count as
            moved. None: it is not asked, and all of them go back.
        listener: Called as it goes on.
        stopping: Whether to stop; abort again to go on.

    Returns:
        The report. Its `extra`: `given_back`, how many this call gave back; `received`, how many in flight this call
        found at the target, where they stay; `in_flight`, how many of the others were being sent when the run stopped,
        and may also be at the target: the same however often an abort is killed and repeated; `stopped`, whether it
        was asked to stop before the end.

    Raises:
        MigrationLockedError: Another process migrates the endpoint.
        MigrationError: There was no run.
        StoreError: The source or the target fails. Abort again to go on.

    """
    began = time.monotonic()
    with source.lock(endpoint, this_process()):
        run = source.run(endpoint)
        if run is None:
            raise MigrationError(f"there is no run of {endpoint!r} to abort")
        received = complete_received(source, target, run)
        before = source.counts(run)
        earlier = earlier_rejected(source, endpoint, but=run)
        total = before.pending + before.rejected + sum(one.count for one in earlier)
        given_back, stopped = _give_back(source, [*(one.run for one in earlier), run], total, listener, stopping)
        if run.status.unfinished and not stopped:
            run = source.set_status(run, RunStatus.ABORTED)
        if target is not None and target.label == run.parameters.target and not run.status.unfinished:
            target.end(run)
        in_flight = 0 if run.parameters.dry_run else source.in_flight(run)
        return Report(
            run=run,
            counts=source.counts(run),
            seconds=time.monotonic() - began,
            rejections=source.rejections(run, REJECTIONS_SHOWN),
            earlier=earlier_rejected(source, endpoint, but=run),
            extra={"given_back": given_back, "received": received, "in_flight": in_flight, "stopped": stopped},
        )


def _give_back(
    source: MigrationSource,
    runs: Sequence[MigrationRun],
    total: int,
    listener: ProgressListener,
    stopping: Callable[[], bool] = lambda: False,
) -> tuple[int, bool]:
    """Restore messages that have not moved or were rejected. Returns how many rows, and whether it stopped before
    the end.
    """
    given_back = 0
    listener("given back", given_back, total)
    for run in runs:
        for count in source.give_back(run, rejected=True):
            given_back += count
            listener("given back", given_back, total)
            if stopping():
                return given_back, True
    return given_back, False


@dataclass(slots=True)
class _RunInProgress:
    source: MigrationSource
    target: MigrationTarget
    endpoint: str
    settings: RunSettings
    listener: ProgressListener
    stopping: Callable[[], bool]
    began: float = field(default_factory=time.monotonic)

    def run(self, confirm: Confirm) -> Report:
        source, target = self.source, self.target
        checked = check(source, target, self.endpoint, self.settings.cutoff)
        unfinished = checked.unfinished
        parameters = self.settings.parameters(
            self.endpoint, target, None if unfinished is None else unfinished.parameters
        )
        checked.refuse(allow_rejects=self.settings.allow_rejects)
        assert checked.waiting is not None
        if unfinished is None and not checked.waiting.count:
            return Report(run=None, counts=RunCounts(), earlier=checked.earlier)
        if not confirm(checked):
            return Report(run=None, counts=RunCounts(), earlier=checked.earlier, extra={"declined": True})
        target.set_up(checked.waiting.destinations)
        self.began = time.monotonic()
        run = unfinished or source.begin(parameters)
        target.begin(run)
        return self._dry_run(run, checked) if target.dry_run else self._carry_out(run, checked)

    def _carry_out(self, run: MigrationRun, checked: RunCheck) -> Report:
        """Hide and move; complete the run if nothing is left."""
        tally, supply = self._move(run, checked)
        run = supply.run
        if run.status is RunStatus.RUNNING and not self.source.batches(run, BatchStatus.PENDING, BatchStatus.STAGED):
            run = self.source.set_status(run, RunStatus.COMPLETED)
        return self._report(run, checked, tally, {"sent_again": tally.repeated + tally.again})

    def _dry_run(self, run: MigrationRun, checked: RunCheck) -> Report:
        """As `_carry_out`, but everything goes back, even where something fails."""
        try:
            tally, _ = self._move(run, checked)
        except Exception:
            self._put_back(run)
            raise
        seconds = time.monotonic() - self.began
        run = self._put_back(run)
        findings = {
            "sent_again": tally.repeated,
            "would_move": tally.settled - tally.rejected,
            "would_be_rejected": tally.rejected + tally.left,
            "seconds_to_hide_and_read": round(seconds, 3),
        }
        return self._report(run, checked, tally, findings)

    def _put_back(self, run: MigrationRun) -> MigrationRun:
        """Give everything back, even if asked to stop."""
        before = self.source.counts(run)
        _give_back(self.source, [run], before.pending + before.rejected, self.listener)
        return self.source.set_status(run, RunStatus.ABORTED)

    def _move(self, run: MigrationRun, checked: RunCheck) -> tuple[MigrationCounts, Supply]:
        source, settings = self.source, self.settings
        assert checked.waiting is not None
        clock = ExtrapolatedClock(source.now, _CLOCK_FRESH_FOR)
        target_timeout = settings.target_timeout.total_seconds()
        sender = BatchSender(
            self.target, run, clock.now_unasked, RateLimit(settings.max_rate), target_timeout, self.stopping
        )
        before = source.counts(run)
        total = before.pending + (checked.waiting.count if run.status is RunStatus.PREPARING else 0)
        self.listener("moved", 0, total)
        tally = MigrationCounts(
            lambda done: self.listener("moved", done, total),
            rejected=before.rejected,
            max_rejects=settings.max_rejects if self.target.dry_run else settings.most_rejects,
        )
        completing = not self.target.dry_run
        mover = Mover(source, run, sender, clock, tally, stopping=self.stopping, completing=completing)
        mover.move(self._at_once(run))
        return tally, mover.supply

    def _at_once(self, run: MigrationRun) -> int:
        """How many batches may be in flight. One where the rate is low: a request to stop waits for all of them."""
        rate = self.settings.max_rate
        return 1 if rate is not None and rate < run.parameters.batch_size else BATCHES_IN_FLIGHT

    def _report(self, run: MigrationRun, checked: RunCheck, tally: MigrationCounts, extra: dict[str, Any]) -> Report:
        rejections, left = self.source.rejections(run, REJECTIONS_SHOWN), self.source.left(run)
        if self.target.dry_run:
            rejections = [*tally.rejections, *(row for row in left if not isinstance(row, Recurring))]
            left = [row for row in left if isinstance(row, Recurring)]
        elif self.source.leaves_rejected:
            left = [*left, *tally.rejections]
        return Report(
            run=run,
            counts=self.source.counts(run),
            seconds=time.monotonic() - self.began,
            sent=tally.sent,
            resumed=checked.unfinished is not None,
            rejections=rejections[:REJECTIONS_SHOWN],
            left=left,
            earlier=checked.earlier,
            extra=extra,
        )
