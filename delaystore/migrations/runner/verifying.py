"""Whether all that a run took is somewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from delaystore.errors import MigrationError
from delaystore.migrations.abc import MigrationSource, MigrationTarget, Run, RunCounts
from delaystore.migrations.checksum import Checksum
from delaystore.migrations.runner.previewing import UNFINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was compared. `moved`: what the source says was moved; `held`: what the target has of it, None: it cannot
    be read, or there is nothing to look for.

    `findings`: what does not add up, a sentence each. `remarks`: what is worth knowing, and no fault.
    """

    run: Run
    counts: RunCounts
    moved: Checksum
    held: Checksum | None
    findings: Sequence[str]
    remarks: Sequence[str] = ()

    @property
    def good(self) -> bool:
        """Whether everything adds up."""
        return not self.findings

    @property
    def gone(self) -> int:
        """How many the target does not have any more; 0 where it cannot be read."""
        return 0 if self.held is None else max(0, self.moved.count - self.held.count)


def verify(source: MigrationSource, target: MigrationTarget, endpoint: str) -> Verdict:
    """Count what became of the latest run's rows, and compare checksums where the target can be read. Changes nothing.

    Raises MigrationError where there was no run, or it was about another target; StoreError.
    """
    run = source.run(endpoint)
    if run is None:
        raise MigrationError(f"there is no run of {endpoint!r} to verify")
    if run.parameters.target != target.label:
        raise MigrationError(f"the run of {endpoint!r} moved to {run.parameters.target}, not to {target.label}")
    counts, moved = source.counts(run), source.moved_checksum(run)
    held = None if target.rehearsal or not moved.count else target.checksum(source.moved_ids(run))
    findings = [*_uncounted(run, counts, moved), *_different(moved, held)]
    return Verdict(
        run=run, counts=counts, moved=moved, held=held, findings=findings, remarks=_remarks(target, moved, held)
    )


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
    elif run.status in UNFINISHED:
        findings.append("the run has not ended, and what it took so far is accounted for; run it again, or abort it")
    if moved.count != counts.moved:
        findings.append(f"{counts.moved:,} are counted as moved, and {moved.count:,} are kept as such")
    return findings


def _different(moved: Checksum, held: Checksum | None) -> list[str]:
    if held is None or held.count < moved.count or held == moved:
        return []
    if held.count > moved.count:
        return [f"the target holds {held.count:,} of the {moved.count:,} that were moved"]
    return ["some have another destination or due time at the target: the checksums differ"]


def _remarks(target: MigrationTarget, moved: Checksum, held: Checksum | None) -> list[str]:
    if target.rehearsal or not moved.count:
        return []
    if held is None:
        return [f"{target.label} cannot be read; each message counted as moved was confirmed by it"]
    gone = moved.count - held.count
    if gone <= 0:
        return []
    return [
        f"{gone:,} no longer there: dispatched meanwhile or removed; the checksums of the others cannot be compared"
    ]
