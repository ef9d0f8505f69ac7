"""An hour of traffic into a history that is kept for ten minutes: the rate at the end, and the size of the history.

The variable DELAYSTORE_SOAK_MINUTES shortens the hour, and with it the ten minutes.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from statistics import mean
from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import Bench
from benchmarks.lateness import run_sender
from benchmarks.programs import OURS, running
from benchmarks.results import Measurement, Question, per_second
from tests.faults.patience import wait_until
from tests.soak.amounts import MINUTES
from tests.soak.traffic import Arrivals

PER_SECOND: Final = 2_000
KEPT: Final = 600.0
FULL: Final = 1.1
"""Times as long as entries are kept, after which the history is full: its clean-up comes once a minute."""
MEGABYTE: Final = 1_000_000


def measure(arena: Arena, quick: bool) -> Measurement:
    seconds = 12 if quick else round(60 * MINUTES)
    kept, window = min(KEPT, seconds / 6), min(60, seconds // 4)
    count = PER_SECOND * seconds
    with arena.bench() as bench, Arrivals(bench.transport_url, bench.queue) as arrivals:
        bench.store.keep_history(timedelta(seconds=kept))
        with running(OURS, bench), _sizes(bench) as sizes:
            run_sender(bench, count, PER_SECOND)
            wait_until(lambda: arrivals.count >= count, f"all {count:,} messages have arrived")
    first, last = arrivals.first_and_last(window)
    full = mean(size for at, size in sizes if FULL * kept <= at < FULL * kept + window)
    end = mean(size for at, size in sizes if at >= sizes[-1][0] - window)
    return Measurement(
        figure=min(last / first, full / end),
        ours=f"{per_second(last)}, {end / MEGABYTE:,.0f} MB",
        peer=f"{per_second(first)}, {full / MEGABYTE:,.0f} MB",
        numbers={"sizes": [size for _, size in sizes], "seconds of the sizes": [at for at, _ in sizes]},
        notes=[
            f"{PER_SECOND:,} a second for {seconds / 60:g} minutes, entries kept for {kept / 60:g}",
            f"rate of the last {window} s against the first: {last / first:.3f} x",
            f"mean size of the history, of {window} s from minute {FULL * kept / 60:g} on and of the last {window} s: "
            f"{full / MEGABYTE:,.1f} and {end / MEGABYTE:,.1f} MB, {end / full:.3f} x",
        ],
    )


@contextmanager
def _sizes(bench: Bench) -> Iterator[list[tuple[float, int]]]:
    """The bytes of the history at each second of the block, with the seconds since its beginning."""
    found: list[tuple[float, int]] = []
    ended, began = threading.Event(), time.monotonic()

    def look() -> None:
        while not ended.wait(1):
            found.append((time.monotonic() - began, bench.store.history_status().size or 0))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


QUESTION = Question(
    name="history-hour",
    title="an hour at 2,000/s, history of 10 minutes: last rate and first size, against first rate and last size",
    limit=0.97,
    measure=measure,
)
