"""Lateness from a publish with x-delay to the arrival at a consumer, by `delaystore ingest` and `dispatch`."""

from benchmarks.arena import Arena
from benchmarks.ingress import WARM_UP, Entrance, entrance, warm_up
from benchmarks.lateness import Lateness, lateness_of
from benchmarks.lateness_rounds import note, shown
from benchmarks.programs import OURS, running
from benchmarks.publisher import DELAY
from benchmarks.results import Measurement, Question, Rounds

PER_SECOND = 2_000


def measure(arena: Arena, quick: bool) -> Measurement:
    seconds, rounds_wanted = (3, 1) if quick else (60, 3)
    rounds = Rounds()
    with arena.bench() as bench:
        for _ in range(rounds_wanted):
            with entrance(bench) as made, running(made.ours.program, bench) as ingest:
                warm_up(made, made.ours, WARM_UP, ingest)
                note(rounds, OURS.name, _lateness(made, seconds))
            bench.clear()
    earliest = min(rounds.numbers[f"{OURS.name} earliest"])
    if earliest < 0:
        raise RuntimeError(f"a message arrived {-earliest:.1f} ms early")
    return Measurement(
        figure=rounds.median(f"{OURS.name} p99"),
        ours=shown(rounds, OURS.name),
        peer="none",
        numbers=rounds.numbers,
        notes=[
            f"{PER_SECOND:,} a second for {seconds} s, published with an x-delay of {DELAY:g} s, confirmed; earliest "
            f"arrival {earliest:.1f} ms after the due time"
        ],
    )


def _lateness(made: Entrance, seconds: int) -> Lateness:
    count = PER_SECOND * seconds

    def publish() -> None:
        made.bench.bind(made.out)
        made.publish(count, PER_SECOND)

    return lateness_of(OURS, made.bench, count, publish)


QUESTION = Question(
    name="ingress-lateness",
    title="p99 lateness from a publish with x-delay 2 s to the arrival, 2,000 a second for a minute",
    limit=50,
    measure=measure,
    at_most=True,
    unit="ms",
    decimals=1,
)
