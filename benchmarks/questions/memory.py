"""Memory of the dispatcher's process with a large backlog, idle and while dispatching."""

import psutil

from benchmarks.arena import Arena
from benchmarks.millions import millions
from benchmarks.programs import OURS, Running, running, warm_up
from benchmarks.results import Measurement, Question

MEGABYTE = 1_000_000


class Peak:
    """The most memory a process was seen to occupy."""

    def __init__(self, program: Running) -> None:
        self._program = program
        self._process = psutil.Process(program.pid)
        self.bytes = 0

    def look(self) -> float:
        """Look once; megabytes (10^6 bytes) now. ChildProcessError if the program has ended."""
        self._program.check()
        now: int = self._process.memory_info().rss
        self.bytes = max(self.bytes, now)
        return now / MEGABYTE


def measure(arena: Arena, quick: bool) -> Measurement:
    waiting, count = millions(quick), 3_000 if quick else 100_000
    with arena.filled_bench(waiting) as bench, running(OURS, bench) as process:
        warm_up(bench, process, 1)
        peak = Peak(process)
        idle = peak.look()
        bench.store.store_many(bench.messages(count, bench.store.now()))
        bench.await_dispatched(count, meanwhile=peak.look)
        after = peak.look()
    most = peak.bytes / MEGABYTE
    return Measurement(
        figure=most,
        ours=f"{most:.0f} MB at the most",
        peer="none",
        numbers={"idle": [idle], "peak": [most], "after": [after]},
        notes=[f"resident: {idle:.0f} MB idle with {waiting:,} waiting, {after:.0f} MB after dispatching {count:,}"],
    )


QUESTION = Question(
    name="memory",
    title="resident memory of the dispatcher's process, 10,000,000 waiting",
    limit=150,
    measure=measure,
    at_most=True,
    unit="MB",
    decimals=0,
)
