"""Dispatch into a store that keeps a history, against dispatch without."""

from benchmarks.arena import Arena
from benchmarks.dispatching import WARM, compare_stores
from benchmarks.history import WITH, WITHOUT, check_entries, with_and_without
from benchmarks.results import Measurement, Question


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (3_000, 1) if quick else (200_000, 5)
    with with_and_without(arena) as benches:
        found = compare_stores(benches, WITH, WITHOUT, count, rounds_wanted, "the entries of all rounds stay")
        check_entries(benches[WITH], rounds_wanted * (count + WARM))
        check_entries(benches[WITHOUT], 0)
    return found


QUESTION = Question(
    name="history-dispatch",
    title="dispatch of 200,000 with a history, against without",
    limit=0.85,
    measure=measure,
)
