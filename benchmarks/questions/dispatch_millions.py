"""Dispatch with millions waiting, against dispatch with none."""

from benchmarks.arena import Arena
from benchmarks.dispatching import compare_dispatch
from benchmarks.millions import millions
from benchmarks.results import Measurement, Question


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (3_000, 1) if quick else (200_000, 3)
    return compare_dispatch(arena, millions(quick), count, rounds_wanted)


QUESTION = Question(
    name="dispatch-millions",
    title="dispatch of 200,000 with 10,000,000 waiting, against with none",
    limit=0.9,
    measure=measure,
)
