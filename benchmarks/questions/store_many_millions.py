"""`store_many`, due over a year, with millions waiting, against with none."""

from benchmarks.arena import Arena
from benchmarks.millions import millions
from benchmarks.results import Measurement, Question
from benchmarks.sending import compare_store_many


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (5_000, 1) if quick else (100_000, 7)
    return compare_store_many(arena, millions(quick), count, rounds_wanted)


QUESTION = Question(
    name="store-many-millions",
    title="store_many of 100,000 with 10,000,000 waiting, against with none",
    limit=0.9,
    measure=measure,
)
