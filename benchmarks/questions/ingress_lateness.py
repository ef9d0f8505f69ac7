"""Lateness from a publish with x-delay to the arrival at a consumer, by `delaystore serve`."""

from benchmarks.arena import Arena
from benchmarks.ingress import WARM_UP, Entrance, entrance
from benchmarks.lateness import Lateness, lateness_of
from benchmarks.lateness_rounds import note, shown
from benchmarks.programs import OURS
from benchmarks.publisher import DELAY
from benchmarks.results import Measurement, Question, Rounds

PER_SECOND = 2_000


def measure(arena: Arena, quick: bool) -> Measurement:
    seconds, rounds_wanted = (3, 1) if quick else (60, 3)
    rounds = Rounds()
    with arena.bench() as bench:
        for _ in range(rounds_wanted):
            with entrance(bench) as made:
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
        made.publish(WARM_UP)  # due in hours
        made.await_taken()
        made.publish(count, PER_SECOND)

    return lateness_of(made.service.program, made.bench, count, publish)


QUESTION = Question(
    name="ingress-lateness",
    title="p99 lateness through an ingress, 2,000 a second for a minute",
    limit=50,
    measure=measure,
    at_most=True,
    unit="ms",
    decimals=1,
)
