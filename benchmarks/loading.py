"""What the questions about bulk loads share."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.sql import DataFrame

from benchmarks.arena import Arena
from benchmarks.results import Measurement, Rounds, per_second
from benchmarks.spark import (
    PARTITIONS,
    Row,
    copied,
    count_rows,
    load,
    random_rows,
    session,
    write_files,
)

OURS: Final = "delaystore"
_WARM_UP: Final = 2_000

Loader = Callable[[DataFrame, Sequence[Row], str], None]
"""Loads the rows, as a DataFrame or as they are, into the database of that URL."""


def measure_loads(
    arena: Arena, waiting: int, count: int, rounds_wanted: int, peer_name: str, peer: Loader
) -> Measurement:
    """Ours and the peer in turn, `count` rows each time, into a fresh copy of the same database with `waiting`."""
    rounds = Rounds()
    rows = list(random_rows(count, seed=2))
    with TemporaryDirectory() as folder, session() as spark:
        frame = spark.read.parquet(write_files(Path(folder), rows))
        contestants: dict[str, Loader] = {OURS: lambda given, _, url: load(given, url, "benchmark"), peer_name: peer}
        for contestant in contestants.values():  # Spark's first jobs are slow, and workers are started
            with arena.bench() as bench:
                contestant(frame.limit(_WARM_UP), rows[:_WARM_UP], bench.store_url)
        origin = arena.filled(waiting)
        for _ in range(rounds_wanted):
            for name, contestant in contestants.items():
                with copied(arena, origin) as url:
                    before = count_rows(url)
                    began = time.perf_counter()
                    contestant(frame, rows, url)
                    rounds.add(name, count / (time.perf_counter() - began))
                    if count_rows(url) != before + count:
                        raise RuntimeError(f"{name} did not load {count} rows")
    return Measurement(
        figure=rounds.ratio(OURS, peer_name),
        ours=per_second(rounds.median(OURS)),
        peer=per_second(rounds.median(peer_name)),
        numbers=rounds.numbers,
        notes=[
            f"{count:,} rows of random ids and due times, {PARTITIONS} Parquet files, local[2], into {waiting:,}, "
            "indexes in place"
        ],
    )
