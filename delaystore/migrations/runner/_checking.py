"""What a run would move, and what hinders it. Changes nothing."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from delaystore.amounts import counted
from delaystore.errors import MigrationError
from delaystore.migrations._clocks import clock_problems
from delaystore.migrations.abc import (
    MigrationSource,
    MigrationTarget,
    Problem,
    Recurring,
    Rejected,
    Row,
    Run,
    SetAside,
    Waiting,
)
from delaystore.progress import ProgressListener, unwatched

_REASONS: Final = 20
"""Reasons that are told apart; a reason may name the message."""
_OTHER_REASONS: Final = "other reasons"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheck:
    """What was found out about one endpoint.

    `waiting`: None where the source has no such table, or it cannot be read. `unfinished`: a run that can be resumed.
    `set_aside`: what other runs of the endpoint have rejected and still keep.
    """

    endpoint: str
    waiting: Waiting | None
    problems: Sequence[Problem]
    unfinished: Run | None = None
    set_aside: Sequence[SetAside] = ()

    @property
    def hindrances(self) -> Sequence[Problem]:
        """Why a run would be refused."""
        return [problem for problem in self.problems if problem.fatal]

    @property
    def immovable(self) -> int:
        """How many messages would be rejected, as far as is known; some may be counted twice."""
        return sum(problem.messages for problem in self.problems)

    def refuse(self, *, allow_rejects: bool) -> None:
        """Raise MigrationError where something hinders. With `allow_rejects`, problems of single messages do not."""
        against = [problem for problem in self.hindrances if not (allow_rejects and problem.messages)]
        if not against:
            return
        more = f" (and {len(against) - 1} more: delaystore migrate preview lists them)" if len(against) > 1 else ""
        advice = "; --allow-rejects leaves these behind" if all(problem.messages for problem in against) else ""
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
    """Check the source and the target. Raises StoreError, TransportError where one fails meanwhile.

    `every_message`: read each, and ask the target whether it would take it, unless something hinders the whole run;
    `listener` is told how many were read.
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
    kept = set_aside(source, endpoint, but=unfinished)
    problems += _of_earlier_runs(endpoint, kept)
    return RunCheck(endpoint=endpoint, waiting=waiting, problems=problems, unfinished=unfinished, set_aside=kept)


def set_aside(source: MigrationSource, endpoint: str, *, but: Run | None) -> Sequence[SetAside]:
    """What the endpoint's runs, all `but` one, have rejected and still keep, the latest last."""
    others = [run for run in source.runs(endpoint) if but is None or run.run_id != but.run_id]
    return [SetAside(run, count) for run in others if (count := source.counts(run).rejected)]


def _refused(
    source: MigrationSource,
    target: MigrationTarget,
    waiting: Waiting,
    cutoff: datetime | None,
    listener: ProgressListener,
) -> Iterator[Problem]:
    """What cannot be decoded, or the target would not take for what is in it; a problem for each reason."""
    reasons, staying = Counter[str](), Counter[str]()
    done = 0
    for page in source.would_move(waiting.endpoint, cutoff):
        staying.update(row.reason for row in page if isinstance(row, Recurring))
        rejected = [row for row in page if isinstance(row, Rejected) and not isinstance(row, Recurring)]
        rows = [row for row in page if isinstance(row, Row)]
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


def _of_earlier_runs(endpoint: str, kept: Sequence[SetAside]) -> Iterator[Problem]:
    for one in kept:
        begun = f"{one.run.started:%Y-%m-%d %H:%M} UTC"
        text = (
            f"an earlier run, begun {begun}, has rejected {one.count:,}, which nobody dispatches; "
            "migrate status --rejections says why, migrate abort gives them back"
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
    # what is due before the cut-off does not move
    count = source.late(endpoint, last if cutoff is None else max(last, cutoff - timedelta(microseconds=1)))
    if not count:
        return []
    many = "1 message is" if count == 1 else f"{count:,} messages are"
    text = f"{many} not due yet; {target.label} takes only what is due"
    if longest:
        text = f"{many} due after {last:%Y-%m-%d %H:%M} UTC, beyond the longest delay of {target.label}, {longest}"
    return [Problem(endpoint, text, messages=count)]
