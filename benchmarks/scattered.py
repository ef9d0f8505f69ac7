"""Dispatch of what has waited among others: its rows lie between theirs, in the order of arrival."""

import time

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES
from benchmarks.filling import Due, fill
from benchmarks.programs import OURS, dispatched, running


def scattered_rate(arena: Arena, waiting: int, count: int, body_bytes: int = BODY_BYTES) -> float:
    """Messages a second when about `count` of so many have become due together, from the arrival of a hundredth on."""
    with arena.bench() as bench:
        each = waiting // count
        fill(bench.database, bench.table, waiting, body_bytes, Due(bench.queue, each))
        bench.settle()
        with running(OURS, bench) as process:
            first = dispatched(bench, process, count // 100)
            began = time.perf_counter()
            bench.await_dispatched(waiting // each, meanwhile=process.check)
            return (waiting // each - first) / (time.perf_counter() - began)
