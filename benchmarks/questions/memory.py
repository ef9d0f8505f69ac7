"""Memory of the dispatcher's process with a large backlog, idle and while dispatching."""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Memory:
    """Megabytes of the dispatcher's process: idle, at the most, and after dispatching."""

    idle: float
    peak: float
    after: float


def measure_memory(arena: Arena, waiting: int, count: int) -> Memory:
    """Dispatch `count` messages while `waiting` others wait."""
    with arena.filled_bench(waiting) as bench, running(OURS, bench) as process:
        warm_up(bench, process, 1)
        peak = Peak(process)
        idle = peak.look()
        bench.store.store_many(bench.messages(count, bench.store.now()))
        bench.await_dispatched(count, meanwhile=peak.look)
        after = peak.look()
    return Memory(idle, peak.bytes / MEGABYTE, after)


def measure(arena: Arena, quick: bool) -> Measurement:
    waiting, count = millions(quick), 3_000 if quick else 100_000
    found = measure_memory(arena, waiting, count)
    return Measurement(
        figure=found.peak,
        ours=f"{found.peak:.0f} MB at the most",
        peer="none",
        numbers={"idle": [found.idle], "peak": [found.peak], "after": [found.after]},
        notes=[
            f"resident: {found.idle:.0f} MB idle with {waiting:,} waiting, {found.after:.0f} MB after dispatching "
            f"{count:,}"
        ],
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
