"""Looking up ids in a large history, in milliseconds."""

import shutil
from statistics import quantiles
from typing import Final

from benchmarks.arena import Arena
from benchmarks.history import FilledHistory
from benchmarks.results import Measurement, Question, Rounds

MOST: Final = 100_000_000
DISK: Final = 400
"""Bytes of the disk that an entry may take while the history is filled."""
KINDS: Final = {"existing ids": True, "missing ids": False}


def measure(arena: Arena, quick: bool) -> Measurement:
    room = shutil.disk_usage(arena.postgresql.directory).free // DISK
    count, looked_up, rounds_wanted = (100_000, 100, 1) if quick else (min(MOST, room), 1_000, 5)
    rounds = Rounds()
    with arena.bench() as bench:
        filled = FilledHistory(bench, count)
        for _ in range(rounds_wanted):
            for kind, existing in KINDS.items():
                cuts = quantiles(filled.look_up(looked_up, existing=existing), n=100, method="inclusive")
                rounds.add(f"{kind} p50", cuts[49] * 1000)
                rounds.add(f"{kind} p99", cuts[98] * 1000)
        row, indexes = filled.bytes_of_an_entry()
    worst = max(rounds.median(f"{kind} p99") for kind in KINDS)
    return Measurement(
        figure=worst,
        ours=f"{worst:.2f} ms",
        peer="none",
        numbers=rounds.numbers,
        notes=[
            f"{filled.count:,} entries; {row:.0f} bytes each in the table, {indexes:.0f} in its indexes",
            *(
                f"{kind}: p50 {rounds.median(f'{kind} p50'):.2f}, p99 {rounds.median(f'{kind} p99'):.2f} ms, "
                f"{rounds_wanted} rounds of {looked_up:,}; p99 of the first {rounds.numbers[f'{kind} p99'][0]:.2f} ms"
                for kind in KINDS
            ),
        ],
    )


QUESTION = Question(
    name="history-lookup",
    title="`history ID` with 100,000,000 entries of 30 days: worst p99",
    limit=5,
    measure=measure,
    at_most=True,
    unit="ms",
)
