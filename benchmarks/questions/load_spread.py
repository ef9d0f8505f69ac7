"""What a spread costs a load of a million rows, and how long a preview of these rows takes."""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.arena import Arena
from benchmarks.bench import Bench
from benchmarks.programs import ROOT
from benchmarks.results import Measurement, Question, Rounds
from benchmarks.spark import count_rows, random_rows, write_files

PLAIN = "load"
WAYS = {
    PLAIN: (),
    "spread": ("--spread", "4h"),
    "spread, ramp, window": ("--spread", "4h", "--ramp", "1h", "--window", "08:00-20:00", "--time-zone", "UTC"),
    "preview": ("--preview",),
    "preview of a spread": ("--preview", "--spread", "4h"),
}
"""Options of `send --file`."""


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (5_000, 1) if quick else (1_000_000, 5)
    rounds = Rounds()
    with TemporaryDirectory() as folder:
        path = f"{write_files(Path(folder), list(random_rows(count, seed=4)), 1)}/part-0.parquet"
        for _ in range(rounds_wanted):
            for name, options in WAYS.items():
                with arena.bench() as bench:
                    bench.settle()
                    began = time.perf_counter()
                    _send_file(bench, path, options)
                    rounds.add(name, time.perf_counter() - began)
                    if count_rows(bench.store_url) != (0 if "--preview" in options else count):
                        raise RuntimeError(f"{name} stored another number of rows than {count}")
    return Measurement(
        figure=rounds.ratio("spread", PLAIN),
        ours=f"{rounds.median('spread'):.2f} s",
        peer=f"{rounds.median(PLAIN):.2f} s",
        numbers=rounds.numbers,
        notes=[
            f"{count:,} rows in a Parquet file, `send --file` into an empty store, median of {rounds_wanted}",
            *(f"{name}: {rounds.median(name):.2f} s, {rounds.ratio(name, PLAIN):.3f} x" for name in WAYS),
        ],
    )


def _send_file(bench: Bench, path: str, options: tuple[str, ...]) -> None:
    command = (sys.executable, "-m", "delaystore", "send", "--file", path, "--load-id", "benchmark", *options)
    subprocess.run(command, cwd=ROOT, env=os.environ | bench.environment, stdout=subprocess.DEVNULL, check=True)


QUESTION = Question(
    name="load-spread",
    title="load of 1,000,000 rows with --spread, against without: seconds",
    limit=1.1,
    measure=measure,
    at_most=True,
)
