"""Dispatch beside many schedules that are not due, against dispatch without."""

from benchmarks.arena import Arena
from benchmarks.dispatching import compare_stores
from benchmarks.results import Measurement, Question
from benchmarks.schedules import WITH, WITHOUT, with_and_without


def measure(arena: Arena, quick: bool) -> Measurement:
    schedules, count, rounds_wanted = (1_000, 3_000, 1) if quick else (100_000, 200_000, 7)
    with with_and_without(arena, schedules, "nowhere", cron="0 0 29 2 *") as benches:
        return compare_stores(benches, WITH, WITHOUT, count, rounds_wanted, f"{schedules:,} schedules that are not due")


QUESTION = Question(
    name="schedules-idle",
    title="dispatch beside 100,000 idle schedules, against without",
    limit=0.98,
    measure=measure,
)
