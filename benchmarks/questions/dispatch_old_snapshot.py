"""Dispatch while another transaction holds an old snapshot, against dispatch without it.

PostgreSQL may not forget deleted rows that an old snapshot could still see, so a search for due messages from the
beginning walks over all that was deleted. For scale, the same without a broker: the store alone, and plain SKIP LOCKED
fetch-and-delete.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext

import psycopg

from benchmarks.arena import Arena
from benchmarks.bench import Bench
from benchmarks.programs import OURS, dispatch_rate
from benchmarks.results import Measurement, Question, Rounds, per_second

BATCH = 500


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (3_000, 1) if quick else (200_000, 3)
    rounds = Rounds()
    candidates: dict[str, Callable[[Bench], float]] = {
        OURS.name: lambda bench: dispatch_rate(OURS, bench, count),
        "store alone": lambda bench: _drain(bench, count, _drain_store),
        "plain SKIP LOCKED": lambda bench: _drain(bench, count, _drain_plainly),
    }
    with arena.bench() as bench:
        for _ in range(rounds_wanted):
            for name, measured in candidates.items():
                for held in (False, True):
                    with bench.old_snapshot() if held else nullcontext():
                        rounds.add(f"{name}, snapshot {'held' if held else 'not held'}", measured(bench))
                    bench.clear()
    with_it, without = (f"{OURS.name}, snapshot {how}" for how in ("held", "not held"))
    return Measurement(
        figure=rounds.ratio(with_it, without),
        ours=per_second(rounds.median(with_it)),
        peer=per_second(rounds.median(without)),
        numbers=rounds.numbers,
        notes=[f"{count:,} messages", *(_scale(rounds, name) for name in list(candidates)[1:])],
    )


def _drain(bench: Bench, count: int, drain: Callable[[Bench], int]) -> float:
    """The rate at which `drain` fetches and deletes `count` messages in one thread, batches of 500, no broker."""
    bench.store.store_many(bench.messages(count, bench.store.now()))
    began = time.perf_counter()
    drained = drain(bench)
    seconds = time.perf_counter() - began
    if drained != count:
        raise RuntimeError(f"{drained} of {count} messages were fetched")
    return count / seconds


def _drain_store(bench: Bench) -> int:
    drained = 0
    while True:
        with bench.store.transaction() as transaction:
            batch = transaction.fetch_due(bench.store.now(), BATCH)
            if not batch:
                return drained
            drained += transaction.remove_many(batch)


def _drain_plainly(bench: Bench) -> int:
    due = (
        f"SELECT message_id, destination, body FROM {bench.table} WHERE next_attempt <= now() "
        f"ORDER BY next_attempt LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
    ).encode()
    delete = f"DELETE FROM {bench.table} WHERE message_id = ANY(%s)".encode()
    drained = 0
    with psycopg.connect(bench.dsn) as connection:
        cursor = connection.cursor(binary=True)
        while rows := cursor.execute(due, prepare=True).fetchall():
            drained += cursor.execute(delete, ([row[0] for row in rows],), prepare=True).rowcount
            connection.commit()
    return drained


def _scale(rounds: Rounds, name: str) -> str:
    held, free = (rounds.median(f"{name}, snapshot {how}") for how in ("held", "not held"))
    return f"{name}, without a broker: {per_second(held)} held, {per_second(free)} not held ({held / free:.2f} x)"


QUESTION = Question(
    name="dispatch-old-snapshot",
    title="dispatch of 200,000 while an old snapshot is held, against without",
    limit=0.7,
    measure=measure,
)
