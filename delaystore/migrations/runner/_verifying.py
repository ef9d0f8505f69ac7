"""Checks before a migration and after it; messages in flight when a run died."""

import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from delaystore.calls import ProgressListener, unwatched
from delaystore.errors import MigrationError
from delaystore.migrations.abc import (
    BatchStatus,
    Checksum,
    MigrationBatch,
    MigrationRow,
    MigrationRun,
    MigrationSource,
    MigrationTarget,
    Problem,
    Recurring,
    Rejected,
    RejectedRows,
    RunCounts,
    WaitingCounts,
    clock_problems,
)
from delaystore.text import counted

_REASONS: Final = 20
"""Reasons that are counted apart; a reason may name the message."""
_OTHER_REASONS: Final = "other reasons"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheck:
    """The findings about one endpoint.

    Attributes:
        endpoint: The endpoint.
        waiting: Its messages; None: the source has no such table, or it cannot be read.
        problems: What blocks a run, and warnings.
        unfinished: A run that can be resumed; None: there is none.
        earlier: Rows that other runs of the endpoint have rejected and still keep.

    """

    endpoint: str
    waiting: WaitingCounts | None
    problems: Sequence[Problem]
    unfinished: MigrationRun | None = None
    earlier: Sequence[RejectedRows] = ()

    @property
    def blocking(self) -> Sequence[Problem]:
        """Why a run would be refused."""
        return [problem for problem in self.problems if problem.fatal]

    @property
    def immovable(self) -> int:
        """How many messages would be rejected, as far as is known; some may be counted twice."""
        return sum(problem.messages for problem in self.problems)

    def refuse(self, *, allow_rejects: bool) -> None:
        """Raise MigrationError where something blocks the run; `allow_rejects`: not for problems of single messages."""
        against = [problem for problem in self.blocking if not (allow_rejects and problem.messages)]
        if not against:
            return
        more = f" (and {len(against) - 1} more: delaystore migrate preview lists them)" if len(against) > 1 else ""
        advice = "; --allow-rejected leaves these behind" if all(problem.messages for problem in against) else ""
        raise MigrationError(f"{against[0].subject}: {against[0].text}{advice}{more}; nothing was moved")


def check(
    source: MigrationSource,
    target: MigrationTarget,
    endpoint: str,
    cutoff: datetime | None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    *,
    every_message: bool = False,
    listener: ProgressListener = unwatched,
) -> RunCheck:
    """Check the source and the target.

    Args:
        source: Where the messages wait.
        target: Where they are to be moved.
        endpoint: The endpoint whose messages they are.
        cutoff: The run's cut-off; None: it has none.
        now: This computer's clock.
        every_message: Read each message, and ask the target whether it would accept it, unless something blocks the
            whole run.
        listener: Called with how many were read.

    Raises:
        StoreError, TransportError: The source or the target fails meanwhile.

    """
    problems = list(source.check(endpoint))
    if any(problem.fatal and not problem.messages for problem in problems):
        return RunCheck(endpoint=endpoint, waiting=None, problems=problems)
    theirs = source.now()
    problems += clock_problems("the source's clock", theirs, now())
    waiting = source.waiting(endpoint, cutoff)
    problems += target.check(waiting.destinations)
    problems += _late(source, target, endpoint, cutoff, theirs)
    run = source.run(endpoint)
    unfinished = run if run is not None and run.status.unfinished else None
    if every_message and all(problem.messages for problem in problems if problem.fatal):
        problems += _refused(source, target, waiting, cutoff, listener)
    kept = earlier_rejected(source, endpoint, but=unfinished)
    problems += _of_earlier_runs(endpoint, kept)
    return RunCheck(endpoint=endpoint, waiting=waiting, problems=problems, unfinished=unfinished, earlier=kept)


def earlier_rejected(source: MigrationSource, endpoint: str, *, but: MigrationRun | None) -> Sequence[RejectedRows]:
    """Messages that the endpoint's runs, all `but` one, have rejected and still keep, the latest last."""
    others = [run for run in source.runs(endpoint) if but is None or run.run_id != but.run_id]
    return [RejectedRows(run, count) for run in others if (count := source.counts(run).rejected)]


def _refused(
    source: MigrationSource,
    target: MigrationTarget,
    waiting: WaitingCounts,
    cutoff: datetime | None,
    listener: ProgressListener,
) -> Iterator[Problem]:
    """Messages that cannot be decoded, or whose content the target would not accept; a problem for each reason."""
    reasons, staying = Counter[str](), Counter[str]()
    done = 0
    for page in source.would_move(waiting.endpoint, cutoff):
        staying.update(row.reason for row in page if isinstance(row, Recurring))
        rejected = [row for row in page if isinstance(row, Rejected) and not isinstance(row, Recurring)]
        rows = [row for row in page if isinstance(row, MigrationRow)]
        refusals = target.refusals([row.message for row in rows])
        rejected += (Rejected(row.row_id, why) for row, why in zip(rows, refusals, strict=True) if why is not None)
        for one in rejected:
            known = one.reason in reasons or len(reasons) < _REASONS
            reasons[one.reason if known else _OTHER_REASONS] += 1
        done += len(page)
        listener("checked", done, waiting.count)
    for reason, count in reasons.items():
        yield Problem(waiting.endpoint, reason, messages=count)
    for reason, count in staying.items():
        yield Problem(waiting.endpoint, f"{reason}; {counted(count, 'row')} left in the table", fatal=False)


def _of_earlier_runs(endpoint: str, kept: Sequence[RejectedRows]) -> Iterator[Problem]:
    for one in kept:
        begun = f"{one.run.started:%Y-%m-%d %H:%M} UTC"
        text = (
            f"an earlier run, begun {begun}, has rejected {one.count:,}, which no dispatcher sends; "
            "migrate status --list-rejected says why, migrate abort gives them back"
        )
        yield Problem(endpoint, text, fatal=False)


def _late(
    source: MigrationSource, target: MigrationTarget, endpoint: str, cutoff: datetime | None, now: datetime
) -> Sequence[Problem]:
    longest = target.maximum
    if longest is None:
        return []
    try:
        last = now + longest
    except OverflowError:
        return []
    # messages due before the cut-off do not move
    count = source.late(endpoint, last if cutoff is None else max(last, cutoff - timedelta(microseconds=1)))
    if not count:
        return []
    many = "1 message is" if count == 1 else f"{count:,} messages are"
    text = f"{many} not due yet; {target.label} takes only due messages"
    if longest:
        text = f"{many} due after {last:%Y-%m-%d %H:%M} UTC, beyond the longest delay of {target.label}, {longest}"
    return [Problem(endpoint, text, messages=count)]


def complete_received(source: MigrationSource, target: MigrationTarget | None, run: MigrationRun) -> int:
    """Complete the batches in flight whose messages the target can name: these must not go back to the source.

    The other rows of such a batch are rejected, to be given back. `target` None: of none of them. Returns how many rows
    the target has, which is none of a dry run's. Raises MigrationError where the run was about another target,
    StoreError.
    """
    if run.parameters.dry_run:
        return 0
    batches = [batch for batch in source.batches(run, BatchStatus.STAGED) if batch.count]
    if batches and target is not None and target.label != run.parameters.target:
        raise MigrationError(
            f"the run of {run.parameters.endpoint!r} moved to {run.parameters.target}, not to {target.label}; "
            "name the earlier target, which may have received the messages in flight"
        )
    total = 0
    for batch in batches:
        received = None if target is None else target.received(run, batch)
        if received is not None:
            source.complete(run, batch, _others(source, run, batch, received))
            total += len(received)
    return total


def received_in_flight(source: MigrationSource, target: MigrationTarget, run: MigrationRun) -> int:
    """How many rows of batches in flight the target has. Completes nothing. Raises StoreError."""
    return sum(len(target.received(run, batch) or ()) for batch in source.batches(run, BatchStatus.STAGED))


def _others(source: MigrationSource, run: MigrationRun, batch: MigrationBatch, received: Set[int]) -> list[Rejected]:
    """The rows of a batch in flight that the target has not received."""
    return [
        row if isinstance(row, Rejected) else Rejected(row.row_id, "not sent when the run was aborted")
        for position, row in enumerate(source.stage(run, batch))
        if position not in received
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerification:
    """The compared counts and checksums.

    Attributes:
        run: The run.
        counts: Its rows by their state.
        moved: The checksum of the moved messages, as the source has them.
        waiting: The checksum of the messages that wait at the target; None: it cannot be read, or none were moved.
        findings: Numbers that do not match, a sentence each.
        earlier: Rows that earlier runs have rejected and still keep.
        remarks: Useful facts that are no fault.

    """

    run: MigrationRun
    counts: RunCounts
    moved: Checksum
    waiting: Checksum | None
    findings: Sequence[str]
    earlier: Sequence[RejectedRows] = ()
    remarks: Sequence[str] = ()

    @property
    def good(self) -> bool:
        """Whether everything adds up, and no rejected row remains, of this run or an earlier one."""
        return not self.findings and not self.rejected_left

    @property
    def rejected_left(self) -> int:
        """How many rejected rows remain, of this run and of earlier ones."""
        return self.counts.rejected + sum(one.count for one in self.earlier)

    @property
    def no_longer_there(self) -> int:
        """How many messages the target no longer has. 0 where it cannot be read."""
        return 0 if self.waiting is None else max(0, self.moved.count - self.waiting.count)


def verify(source: MigrationSource, target: MigrationTarget, endpoint: str) -> RunVerification:
    """Count the latest run's rows, and compare checksums where the target can be read. Changes nothing.

    Args:
        source: Where the messages waited.
        target: The run's target.
        endpoint: The endpoint whose messages they are.

    Raises:
        MigrationError: There was no run, or it was about another target.
        StoreError: The source or the target fails.

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
    return RunVerification(
        run=run,
        counts=counts,
        moved=moved,
        waiting=waiting,
        findings=findings,
        earlier=earlier_rejected(source, endpoint, but=run),
        remarks=[*_received(received), *_remarks(target, moved, waiting)],
    )


def clean_up(
    source: MigrationSource, target: MigrationTarget, endpoint: str, *, force: bool = False
) -> RunVerification:
    """Drop the run's tables, and with them the record of moved messages, and the rejected rows.

    Args:
        source: Where the messages waited.
        target: The run's target.
        endpoint: The endpoint whose messages they are.
        force: Although `verify` does not pass, or rows were rejected. Pending rows are never deleted, since they are
            nowhere else.

    Raises:
        MigrationLockedError: Another process migrates the endpoint.
        MigrationError: It refuses, or there was no run.
        StoreError: The source or the target fails.

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
            raise MigrationError(f"nothing was cleaned up: {verified.findings[0]}; --force does it anyway")
        if not force and counts.rejected:
            raise MigrationError(
                f"nothing was cleaned up: only this run has {counted(counts.rejected, 'rejected message')} of "
                f"{endpoint!r}; abort returns them to the source, --force deletes them"
            )
        for run in source.runs(endpoint):
            ended = not run.status.unfinished or run.run_id == verified.run.run_id
            if ended and run.parameters.target == target.label:
                target.end(run)  # of earlier ones too: the source may forget them, and no process would end them then
        source.clean_up(verified.run)
        return verified


def _uncounted(run: MigrationRun, counts: RunCounts, moved: Checksum) -> list[str]:
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


def this_process() -> str:
    """Who has an endpoint's lock, for others to read: the process, its computer, and since when."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return f"process {os.getpid()} on {socket.gethostname()}, since {since}"
