"""`get`, a page of `list`, `reschedule` and `cancel` with millions waiting, in milliseconds."""

from benchmarks.arena import Arena
from benchmarks.lookups import asked_look_ups
from benchmarks.millions import MANY
from benchmarks.results import Measurement, Question


def measure(arena: Arena, quick: bool) -> Measurement:
    found = asked_look_ups(arena, quick)
    return Measurement(
        figure=found.worst(MANY),
        ours=f"{found.worst(MANY):.2f} ms",
        peer="none",
        numbers=found.rounds.numbers,
        notes=found.notes(),
    )


QUESTION = Question(
    name="lookup-millions-time",
    title="p99 of look-ups with 10,000,000 waiting: worst of four",
    limit=5,
    measure=measure,
    at_most=True,
    unit="ms",
)
