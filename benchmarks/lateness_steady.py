"""Lateness of messages that are sent while the dispatcher runs, in two stores in turn."""

from collections.abc import Mapping
from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, Bench
from benchmarks.lateness import steady_lateness
from benchmarks.lateness_rounds import note, shown
from benchmarks.millions import MANY, NONE, none_and_many
from benchmarks.programs import OURS
from benchmarks.results import Measurement, Rounds
from benchmarks.sender import BATCHES_PER_SECOND

PER_SECOND: Final = 1000


def compare_waiting(
    arena: Arena, waiting: int, seconds: int, rounds_wanted: int, body_bytes: int = BODY_BYTES
) -> Measurement:
    """Compare a store in which `waiting` messages wait with one in which none do."""
    with none_and_many(arena, waiting, body_bytes) as benches:
        return compare_steady(benches, MANY, NONE, seconds, rounds_wanted, f"{waiting:,} waiting")


def compare_steady(
    benches: Mapping[str, Bench], ours: str, peer: str, seconds: int, rounds_wanted: int, what: str
) -> Measurement:
    """Compare the p99 of two stores that take and deliver PER_SECOND messages a second for `seconds` in each round.

    Each second round measures the stores in the other order. `what`: for the notes, what the stores differ in.
    """
    rounds = Rounds()
    for number in range(rounds_wanted):
        for name, bench in list(benches.items())[:: -1 if number % 2 else 1]:
            lateness, ahead = steady_lateness(OURS, bench, PER_SECOND, seconds)
            note(rounds, name, lateness)
            rounds.add(f"{name} ahead", ahead)
            bench.clear_queue()
            bench.settle()
    return Measurement(
        figure=rounds.ratio(f"{ours} p99", f"{peer} p99"),
        ours=shown(rounds, ours),
        peer=shown(rounds, peer),
        numbers=rounds.numbers,
        notes=[
            f"{PER_SECOND:,} a second for {seconds} s, {rounds_wanted} rounds each, {what}; stored one to two seconds "
            f"ahead by another process, in {BATCHES_PER_SECOND} store_many a second",
            *(f"{name}: stored at least {min(rounds.numbers[f'{name} ahead']):.2f} s ahead" for name in (ours, peer)),
        ],
    )
