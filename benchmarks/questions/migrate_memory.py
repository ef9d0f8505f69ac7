"""Memory of `migrate run`, with a large store to move."""

import json
import os
import subprocess
import time
from datetime import timedelta
from typing import Final

import psutil

from benchmarks.arena import Arena
from benchmarks.migrations import Removal, removal
from benchmarks.results import Measurement, Question, per_second

MEGABYTE: Final = 1_000_000
LOOK_EVERY: Final = 0.05


def measure(arena: Arena, quick: bool) -> Measurement:
    count = 5_000 if quick else 1_000_000
    with removal(arena) as made:
        made.fill(count, later=timedelta(days=1))
        began = time.perf_counter()
        looks = _watched(made, count)
        seconds = time.perf_counter() - began
    most = max(looks)
    return Measurement(
        figure=most,
        ours=f"{most:.0f} MB at the most",
        peer="none",
        numbers={"peak": [most], "last": looks[-1:]},
        notes=[f"resident; {count:,} messages moved, {per_second(count / seconds)} with the start of the process"],
    )


def _watched(made: Removal, count: int) -> list[float]:
    """Megabytes (10^6 bytes) of the process, looked at again and again. ChildProcessError if it does not move all."""
    looks = []
    with subprocess.Popen(
        made.command, env=os.environ | made.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            if resident := watched.memory_info().rss:  # none: it is just ending
                looks.append(resident / MEGABYTE)
            time.sleep(LOOK_EVERY)
        out, err = process.communicate()
    if process.returncode:
        raise ChildProcessError(f"migrate run ended with {process.returncode}: {err.decode(errors='replace')}")
    moved = json.loads(out)["endpoints"][0]["counts"]["moved"]
    if moved != count:
        raise ChildProcessError(f"{moved} of {count} messages were moved")
    return looks


QUESTION = Question(
    name="migrate-memory",
    title="resident memory of migrate run, 1,000,000 to move",
    limit=200,
    measure=measure,
    at_most=True,
    unit="MB",
    decimals=0,
)
