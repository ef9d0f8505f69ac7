"""What a run would do, and what hinders it. Changes nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from delaystore.errors import MigrationError
from delaystore.migrations.abc import EndpointPreview, MigrationSource, MigrationTarget, Problem, Run, RunStatus
from delaystore.migrations.runner.clocks import clock_problems

UNFINISHED = (RunStatus.PREPARING, RunStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found out about one endpoint.

    `preview`: None where the source has no such table, or it cannot be read. `unfinished`: a run that stopped.
    """

    endpoint: str
    preview: EndpointPreview | None
    problems: Sequence[Problem]
    unfinished: Run | None = None

    @property
    def hindrances(self) -> Sequence[Problem]:
        """Why a run would be refused."""
        return [problem for problem in self.problems if problem.fatal]

    @property
    def immovable(self) -> int:
        """How many messages would be rejected, as far as that is known; some may be counted twice."""
        return sum(problem.messages for problem in self.problems)

    def refuse(self, *, allow_rejects: bool) -> None:
        """Raise MigrationError where something hinders; with `allow_rejects`, single messages do not."""
        against = [problem for problem in self.hindrances if not (allow_rejects and problem.messages)]
        if not against:
            return
        more = f" (and {len(against) - 1} more: delaystore migrate preview lists them)" if len(against) > 1 else ""
        advice = "; --allow-rejects leaves these behind" if all(problem.messages for problem in against) else ""
        raise MigrationError(f"{against[0].subject}: {against[0].text}{advice}{more}; nothing was moved")


def examine(
    source: MigrationSource,
    target: MigrationTarget,
    endpoint: str,
    cutoff: datetime | None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Examination:
    """Look at both ends. Raises StoreError where the source fails while it is looked at."""
    problems = list(source.check(endpoint))
    if any(problem.fatal for problem in problems):
        return Examination(endpoint=endpoint, preview=None, problems=problems)
    theirs = source.now()
    problems += clock_problems("the source's clock", theirs, now())
    preview = source.preview(endpoint, cutoff)
    problems += target.check(preview.destinations)
    problems += _late(source, target, endpoint, cutoff, theirs)
    run = source.run(endpoint)
    unfinished = run if run is not None and run.status in UNFINISHED else None
    return Examination(endpoint=endpoint, preview=preview, problems=problems, unfinished=unfinished)


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
    # of what is due before the cut-off, nothing moves
    count = source.late(endpoint, last if cutoff is None else max(last, cutoff - timedelta(microseconds=1)))
    if not count:
        return []
    many = "1 message is" if count == 1 else f"{count:,} messages are"
    text = f"{many} not due yet; {target.label} takes only what is due"
    if longest:
        text = f"{many} due after {last:%Y-%m-%d %H:%M} UTC, beyond the longest delay of {target.label}, {longest}"
    return [Problem(endpoint, text, messages=count)]
