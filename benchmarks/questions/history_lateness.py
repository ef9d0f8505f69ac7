"""Lateness under steady traffic with a history, against without."""

from benchmarks.arena import Arena
from benchmarks.history import DAYS, WITH, WITHOUT, with_and_without
from benchmarks.lateness_steady import compare_steady
from benchmarks.results import Measurement, Question


def measure(arena: Arena, quick: bool) -> Measurement:
    seconds, rounds_wanted = (3, 1) if quick else (70, 5)
    with with_and_without(arena) as benches:
        return compare_steady(benches, WITH, WITHOUT, seconds, rounds_wanted, f"a history of {DAYS} days")


QUESTION = Question(
    name="history-lateness",
    title="p99 lateness at 1,000 a second with a history, against without",
    limit=1.2,
    measure=measure,
    at_most=True,
)
