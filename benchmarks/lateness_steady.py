"""Lateness of what is sent while the dispatcher runs, with a large backlog waiting, against with none."""

from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES
from benchmarks.lateness import steady_lateness
from benchmarks.lateness_rounds import note, shown
from benchmarks.millions import MANY, NONE, none_and_many
from benchmarks.programs import OURS
from benchmarks.results import Measurement, Rounds
from benchmarks.sender import BATCHES_PER_SECOND

PER_SECOND: Final = 1000


def compare_steady_lateness(
    arena: Arena, waiting: int, seconds: int, rounds_wanted: int, body_bytes: int = BODY_BYTES
) -> Measurement:
    """PER_SECOND in and out for so many seconds, judged by the p99."""
    rounds = Rounds()
    with none_and_many(arena, waiting, body_bytes) as benches:
        for _ in range(rounds_wanted):
            for name, bench in benches.items():
                lateness, ahead = steady_lateness(OURS, bench, PER_SECOND, seconds)
                note(rounds, name, lateness)
                rounds.add(f"{name} ahead", ahead)
                bench.clear_queue()
                bench.settle()
    return Measurement(
        figure=rounds.ratio(f"{MANY} p99", f"{NONE} p99"),
        ours=shown(rounds, MANY),
        peer=shown(rounds, NONE),
        numbers=rounds.numbers,
        notes=[
            f"{PER_SECOND:,} a second for {seconds} s, {waiting:,} waiting; stored one to two seconds ahead by another "
            f"process, in {BATCHES_PER_SECOND} store_many a second",
            *(f"{name}: stored at least {min(rounds.numbers[f'{name} ahead']):.2f} s ahead" for name in (MANY, NONE)),
        ],
    )
