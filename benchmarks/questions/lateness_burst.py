"""Lateness of a burst, against a bare loop."""

from datetime import timedelta

from benchmarks.arena import Arena
from benchmarks.lateness_rounds import compare_lateness
from benchmarks.results import Measurement, Question


def measure(arena: Arena, quick: bool) -> Measurement:
    count, seconds, rounds = (5_000, 1, 1) if quick else (50_000, 10, 7)
    with arena.bench() as bench:
        return compare_lateness(bench, count, timedelta(seconds=seconds), rounds)


QUESTION = Question(
    name="lateness-burst",
    title="p99 lateness, 50,000 due within 10 s, against the bare loop's",
    limit=2,
    measure=measure,
    at_most=True,
)
