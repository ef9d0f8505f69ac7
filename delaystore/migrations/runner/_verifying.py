"""Whether a run has lost nothing; only then may its tables be dropped."""

from collections.abc import Sequence
from dataclasses import dataclass

from delaystore.errors import MigrationError
from delaystore.migrations._checksum import Checksum
from delaystore.migrations.abc import MigrationSource, MigrationTarget, Run, RunCounts, SetAside
from delaystore.migrations.runner._checking import set_aside
from delaystore.migrations.runner._in_flight import received_in_flight
from delaystore.migrations.runner._running import this_process


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was compared. `moved`: what the source says was moved. `waiting`: what of it waits at the target; None: the
    target cannot be read, or nothing was moved.

    `findings`: what does not add up, a sentence each. `earlier`: what earlier runs have rejected and still keep.
    `remarks`: what is worth knowing, and not a fault.
    """

    run: Run
    counts: RunCounts
    moved: Checksum
    waiting: Checksum | None
    findings: Sequence[str]
    earlier: Sequence[SetAside] = ()
    remarks: Sequence[str] = ()

    @property
    def good(self) -> bool:
        """Whether everything adds up, and no rejected row remains, of this run or an earlier one."""
        return not self.findings and not self.set_aside

    @property
    def set_aside(self) -> int:
        """How many rejected rows remain, of this run and of earlier ones."""
        return self.counts.rejected + sum(one.count for one in self.earlier)

    @property
    def gone(self) -> int:
        """How many messages the target no longer has. 0 where it cannot be read."""
        return 0 if self.waiting is None else max(0, self.moved.count - self.waiting.count)


def verify(source: MigrationSource, target: MigrationTarget, endpoint: str) -> Verification:
    """Count what became of the latest run's rows, and compare checksums where the target can be read. Changes nothing.

    Raises MigrationError where there was no run, or it was about another target; StoreError.
    """
    run = source.run(endpoint)
    if run is None:
        raise MigrationError(f"there is no run of {endpoint!r} to verify")
    if run.parameters.target != target.label:
        raise MigrationError(f"the run of {endpoint!r} moved to {run.parameters.target}, not to {target.label}")
    counts, moved = source.counts(run), source.moved_checksum(run)
    waiting = None if target.dry_run or not moved.count else target.checksum(source.moved(run))
    findings = [*_uncounted(run, counts, moved), *_different(moved, waiting)]
    received = 0 if target.dry_run else received_in_flight(source, target, run)
    return Verification(
        run=run,
        counts=counts,
        moved=moved,
        waiting=waiting,
        findings=findings,
        earlier=set_aside(source, endpoint, but=run),
        remarks=[*_received(received), *_remarks(target, moved, waiting)],
    )


def clean_up(source: MigrationSource, target: MigrationTarget, endpoint: str, *, force: bool = False) -> Verification:
    """Drop the run's tables, and with them the record of what was moved, and the rejected rows.

    Refuses while rows are pending, since they are nowhere else; without `force` also where `verify` does not pass, or
    rows were rejected. Raises MigrationLockedError, MigrationError for a refusal or where there was no run, StoreError.
    """
    with source.lock(endpoint, this_process()):
        verified = verify(source, target, endpoint)
        counts = verified.counts
        if counts.pending:
            raise MigrationError(
                f"{counts.pending:,} of {endpoint!r} have neither moved nor gone back, and would be lost; run it "
                "again, or abort it first"
            )
        if not force and verified.findings:
            raise MigrationError(f"nothing was cleaned up: {verified.findings[0]}; --force does it all the same")
        if not force and counts.rejected:
            raise MigrationError(
                f"nothing was cleaned up: {counts.rejected:,} rejected of {endpoint!r} are nowhere else; abort gives "
                "them back, --force deletes them"
            )
        for run in source.runs(endpoint):
            ended = not run.status.unfinished or run.run_id == verified.run.run_id
            if ended and run.parameters.target == target.label:
                target.end(run)  # of earlier ones too: the source may forget them, and nobody would end them then
        source.clean_up(verified.run)
        return verified


def _uncounted(run: Run, counts: RunCounts, moved: Checksum) -> list[str]:
    findings = []
    found = counts.moved + counts.returned + counts.rejected + counts.pending
    if counts.prepared != found:
        findings.append(
            f"{counts.prepared:,} were prepared, and {found:,} found again: {counts.moved:,} moved, "
            f"{counts.returned:,} returned, {counts.rejected:,} rejected, {counts.pending:,} pending"
        )
    if counts.pending:
        findings.append(f"the run has not ended, {counts.pending:,} have not moved yet; run it again, or abort it")
    elif run.status.unfinished:
        findings.append("the run has not ended, and what it took so far is accounted for; run it again, or abort it")
    if moved.count != counts.moved:
        findings.append(f"{counts.moved:,} are counted as moved, and {moved.count:,} are kept as such")
    return findings


def _different(moved: Checksum, waiting: Checksum | None) -> list[str]:
    if waiting is None or waiting.count < moved.count or waiting == moved:
        return []
    if waiting.count > moved.count:
        return [f"the target has {waiting.count:,} of the {moved.count:,} that were moved"]
    return ["some have another destination or due time at the target: the checksums differ"]


def _received(count: int) -> list[str]:
    if not count:
        return []
    return [f"{count:,} that count as pending are at the target already, and are not sent again nor given back"]


def _remarks(target: MigrationTarget, moved: Checksum, waiting: Checksum | None) -> list[str]:
    if target.dry_run or not moved.count:
        return []
    if waiting is None:
        return [f"{target.label} cannot be read; each message counted as moved was confirmed by it"]
    gone = moved.count - waiting.count
    if gone <= 0:
        return []
    return [
        f"{gone:,} no longer there: dispatched meanwhile or removed; the checksums of the others cannot be compared"
    ]
