"""Lateness of a burst: our store and direct dispatch, beside RabbitMQ's cascades."""

from datetime import timedelta

from benchmarks.arena import Arena
from benchmarks.lateness import measure_lateness
from benchmarks.lateness_native import CASCADES, lateness_in_cascade
from benchmarks.lateness_rounds import note, shown
from benchmarks.programs import OURS
from benchmarks.results import Measurement, Question, Rounds


def measure(arena: Arena, quick: bool) -> Measurement:
    count, seconds, rounds_wanted = (3_000, 2, 1) if quick else (50_000, 10, 3)
    span = timedelta(seconds=seconds)
    rounds = Rounds()
    for _ in range(rounds_wanted):
        with arena.bench() as bench:
            note(rounds, OURS.name, measure_lateness(OURS, bench, count, span))
        for name, topology in CASCADES.items():
            note(rounds, name, lateness_in_cascade(arena, topology, count, span))
    return Measurement(
        figure=rounds.ratio("v2 cascade p99", f"{OURS.name} p99"),
        ours=shown(rounds, OURS.name),
        peer=shown(rounds, "v2 cascade"),
        numbers=rounds.numbers,
        notes=[
            f"skipping cascade: {shown(rounds, 'skipping cascade')}",
            "the cascades' whole seconds, rounded up, are up to 1 s of their lateness",
        ],
    )


QUESTION = Question(
    name="native-lateness",
    title="p99 lateness, 50,000 due within 10 s, against NServiceBus' cascade",
    limit=20,
    measure=measure,
)
