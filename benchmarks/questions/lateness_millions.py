"""Lateness under steady traffic with millions waiting, against with none."""

from benchmarks.arena import Arena
from benchmarks.lateness_steady import compare_waiting
from benchmarks.millions import millions
from benchmarks.results import Measurement, Question


def measure(arena: Arena, quick: bool) -> Measurement:
    return compare_waiting(arena, millions(quick), seconds=3 if quick else 300, rounds_wanted=1)


QUESTION = Question(
    name="lateness-millions",
    title="p99 lateness, 1,000 a second in and out, 10,000,000 waiting",
    limit=1.5,
    measure=measure,
    at_most=True,
)
