"""Resident memory of the dispatcher's process, by the number of messages that are waiting."""

from typing import Final

from benchmarks.arena import Arena
from benchmarks.figures.series import Series
from benchmarks.questions.memory import measure_memory

AMOUNTS: Final = (0, 100_000, 1_000_000, 3_000_000, 10_000_000)
ROUNDS: Final = 3


def measure(arena: Arena, quick: bool) -> Series:
    """Megabytes, idle and at the most while it dispatches 100,000 messages."""
    amounts, count, rounds = ((0, 10_000), 1_000, 1) if quick else (AMOUNTS, 100_000, ROUNDS)
    idle, peak = [], []
    for waiting in amounts:
        found = [measure_memory(arena, waiting, count) for _ in range(rounds)]
        arena.drop_filled()
        idle.append({"waiting": waiting, "rounds": [round(each.idle, 1) for each in found]})
        peak.append({"waiting": waiting, "rounds": [round(each.peak, 1) for each in found]})
    return [{"name": "idle", "points": idle}, {"name": "while it dispatches 100,000", "points": peak}]
