"""How near two dispatchers, together, come to the limit of a destination."""

import time
from contextlib import ExitStack
from itertools import pairwise
from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import Bench
from benchmarks.programs import OURS, Running, running
from benchmarks.results import Measurement, Question, Rounds, per_second

LIMIT: Final = 200.0
DISPATCHERS: Final = 2
_ALL: Final = "rate"
_MOST: Final = "most in a second"
_LEAST: Final = "least in a second"


def measure(arena: Arena, quick: bool) -> Measurement:
    seconds, wanted = (3, 1) if quick else (10, 5)
    rounds = Rounds()
    for _ in range(wanted):
        with arena.bench() as bench:
            _measure_round(bench, seconds, rounds)
    rate = rounds.median(_ALL)
    return Measurement(
        figure=min(rate / LIMIT, LIMIT / rate),
        ours=per_second(rate),
        peer=per_second(LIMIT),
        numbers=rounds.numbers,
        notes=[
            f"{DISPATCHERS} dispatchers, over {seconds} s, once the messages of the first second had gone at once",
            f"in single seconds from {min(rounds.numbers[_LEAST]):.0f} to {max(rounds.numbers[_MOST]):.0f}",
        ],
    )


def _measure_round(bench: Bench, seconds: int, rounds: Rounds) -> None:
    bench.store.limit_rate(bench.queue, LIMIT, by="benchmark")
    with ExitStack() as stack:
        processes = [stack.enter_context(running(OURS, bench)) for _ in range(DISPATCHERS)]
        _await_both(bench, processes)
        bench.store.store_many(bench.messages(round(LIMIT) * (seconds + 10), bench.store.now()))
        while bench.depth() < LIMIT:  # what may go at once
            processes[0].check()
            time.sleep(0.01)
        time.sleep(1)
        depths, began = [bench.depth()], time.perf_counter()
        for second in range(1, seconds + 1):
            time.sleep(max(0.0, began + second - time.perf_counter()))
            depths.append(bench.depth())
        took = time.perf_counter() - began
    each = [later - earlier for earlier, later in pairwise(depths)]
    rounds.add(_ALL, (depths[-1] - depths[0]) / took)
    rounds.add(_MOST, max(each))
    rounds.add(_LEAST, min(each))


def _await_both(bench: Bench, processes: list[Running]) -> None:
    while len(bench.store.dispatchers()) < len(processes):
        for process in processes:
            process.check()
        time.sleep(0.05)


QUESTION = Question(
    name="rate-limit",
    title="two dispatchers, a destination limited to 200 messages a second",
    limit=0.9,
    measure=measure,
)
