"""Memory of `delaystore serve` with a million that wait, and an ingress queue that is full when it starts."""

from benchmarks.arena import Arena
from benchmarks.ingress import await_stored, entrance
from benchmarks.programs import running
from benchmarks.questions.memory import MEGABYTE, Peak
from benchmarks.results import Measurement, Question

_QUICK: tuple[int, int] = 100_000, 3_000
_FULL: tuple[int, int] = 1_000_000, 100_000


def measure(arena: Arena, quick: bool) -> Measurement:
    waiting, arriving = _QUICK if quick else _FULL
    with arena.filled_bench(waiting) as bench, entrance(bench) as made:
        made.publish(arriving)
        with running(made.service.program, bench) as process:
            peak = Peak(process)
            await_stored(made, made.service, waiting + arriving, process, meanwhile=peak.look)
            after = peak.look()
    most = peak.bytes / MEGABYTE
    return Measurement(
        figure=most,
        ours=f"{most:.0f} MB at the most",
        peer="none",
        numbers={"peak": [most], "after": [after]},
        notes=[
            f"resident: dispatcher, ingress, web page and metrics in one process, {waiting:,} waiting, {arriving:,} in "
            f"the ingress queue when it starts; {after:.0f} MB once they are stored"
        ],
    )


QUESTION = Question(
    name="serve-memory",
    title="resident memory of delaystore serve, 1,000,000 waiting, 100,000 in the ingress queue",
    limit=200,
    measure=measure,
    at_most=True,
    unit="MB",
    decimals=0,
)
