"""Lateness with a large backlog waiting and a steady trickle due, against a bare loop."""

from datetime import timedelta

from benchmarks.arena import Arena
from benchmarks.lateness_rounds import compare_lateness
from benchmarks.results import Measurement, Question

PER_SECOND = 200


def measure(arena: Arena, quick: bool) -> Measurement:
    waiting, seconds, rounds = (10_000, 2, 1) if quick else (1_000_000, 20, 5)
    with arena.bench() as bench:
        bench.load_waiting(waiting)
        return compare_lateness(bench, PER_SECOND * seconds, timedelta(seconds=seconds), rounds)


QUESTION = Question(
    name="lateness-waiting",
    title="p99 lateness, 1,000,000 waiting, 200 due a second, against the bare loop's",
    limit=2,
    measure=measure,
    at_most=True,
)
