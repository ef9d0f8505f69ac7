"""Lateness under steady traffic with a history, against without."""

from typing import Final

from benchmarks.arena import Arena
from benchmarks.history import WITH, WITHOUT, with_and_without
from benchmarks.lateness import steady_lateness
from benchmarks.lateness_rounds import note, shown
from benchmarks.programs import OURS
from benchmarks.results import Measurement, Question, Rounds

PER_SECOND: Final = 1_000


def measure(arena: Arena, quick: bool) -> Measurement:
    seconds, rounds_wanted = (3, 1) if quick else (70, 5)
    rounds = Rounds()
    with with_and_without(arena) as benches:
        for number in range(rounds_wanted):
            for name, bench in list(benches.items())[:: 1 if number % 2 else -1]:
                lateness, ahead = steady_lateness(OURS, bench, PER_SECOND, seconds)
                note(rounds, name, lateness)
                rounds.add(f"{name} ahead", ahead)
                bench.clear_queue()
                bench.settle()
    return Measurement(
        figure=rounds.ratio(f"{WITH} p99", f"{WITHOUT} p99"),
        ours=shown(rounds, WITH),
        peer=shown(rounds, WITHOUT),
        numbers=rounds.numbers,
        notes=[
            f"{PER_SECOND:,} a second for {seconds} s, {rounds_wanted} rounds each",
            *(f"{name}: stored at least {min(rounds.numbers[f'{name} ahead']):.2f} s ahead" for name in benches),
        ],
    )


QUESTION = Question(
    name="history-lateness",
    title="p99 lateness at 1,000 a second with a history, against without",
    limit=1.2,
    measure=measure,
    at_most=True,
)
