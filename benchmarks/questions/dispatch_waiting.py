"""Dispatch with a large backlog waiting, against dispatch with none."""

from contextlib import ExitStack

from benchmarks.arena import Arena
from benchmarks.programs import OURS, dispatch_rate
from benchmarks.results import Measurement, Question, Rounds, per_second


def measure(arena: Arena, quick: bool) -> Measurement:
    waiting, count, rounds_wanted = (10_000, 3_000, 1) if quick else (1_000_000, 100_000, 5)
    rounds = Rounds()
    with ExitStack() as stack:
        benches = {"none waiting": stack.enter_context(arena.bench()), "waiting": stack.enter_context(arena.bench())}
        benches["waiting"].load_waiting(waiting)
        for _ in range(rounds_wanted):
            for name, bench in benches.items():
                rounds.add(name, dispatch_rate(OURS, bench, count))
                bench.clear_queue()
                bench.settle()
    return Measurement(
        figure=rounds.ratio("waiting", "none waiting"),
        ours=per_second(rounds.median("waiting")),
        peer=per_second(rounds.median("none waiting")),
        numbers=rounds.numbers,
        notes=[f"{count:,} messages dispatched, {waiting:,} waiting"],
    )


QUESTION = Question(
    name="dispatch-waiting",
    title="dispatch with 1,000,000 waiting, against with none",
    limit=0.9,
    measure=measure,
)
