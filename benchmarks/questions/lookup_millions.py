"""`get`, a page of `list`, `reschedule` and `cancel` with millions waiting, against the same with a thousand."""

from benchmarks.arena import Arena
from benchmarks.lookups import THOUSAND, asked_look_ups
from benchmarks.millions import MANY
from benchmarks.results import Measurement, Question


def measure(arena: Arena, quick: bool) -> Measurement:
    found = asked_look_ups(arena, quick)
    return Measurement(
        figure=found.worst_ratio(),
        ours=f"{found.worst(MANY):.2f} ms at the worst p99",
        peer=f"{found.worst(THOUSAND):.2f} ms",
        numbers=found.rounds.numbers,
        notes=found.notes(),
    )


QUESTION = Question(
    name="lookup-millions",
    title="look-ups with 10,000,000 waiting, against with 1,000: worst median or p99",
    limit=2,
    measure=measure,
    at_most=True,
)
