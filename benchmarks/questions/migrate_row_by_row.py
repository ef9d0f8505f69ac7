"""A store's messages into NServiceBus' cascade, against one row at a time."""

import time
from collections.abc import Callable

from benchmarks.arena import Arena
from benchmarks.migrations import OURS, Removal, removal
from benchmarks.peers.row_by_row import migrate_row_by_row
from benchmarks.results import Measurement, Question, Rounds, per_second

PEER = "row by row"


def measure(arena: Arena, quick: bool) -> Measurement:
    count, fewer, rounds_wanted = (2_000, 300, 1) if quick else (100_000, 3_000, 3)
    rounds = Rounds()
    for _ in range(rounds_wanted):
        rounds.add(PEER, _rate(arena, fewer, _one_at_a_time))
        rounds.add(OURS, _rate(arena, count, Removal.run))
    return Measurement(
        figure=rounds.ratio(OURS, PEER),
        ours=per_second(rounds.median(OURS)),
        peer=per_second(rounds.median(PEER)),
        numbers=rounds.numbers,
        notes=[f"{count:,} messages in PostgreSQL, the peer {fewer:,}; ours with all its checks, from lock to report"],
    )


def _rate(arena: Arena, count: int, migrate: Callable[[Removal], int]) -> float:
    with removal(arena) as made:
        made.fill(count)
        began = time.perf_counter()
        moved = migrate(made)
        seconds = time.perf_counter() - began
        if moved != count:
            raise RuntimeError(f"{moved} of {count} messages were moved")
        made.cascade.check(count)
    return count / seconds


def _one_at_a_time(made: Removal) -> int:
    return migrate_row_by_row(made.bench.dsn, made.bench.table, made.cascade.url, made.cascade.topology)


QUESTION = Question(
    name="migrate-row-by-row",
    title="migrate run into NServiceBus' cascade, against one row at a time",
    limit=8,
    measure=measure,
)
