"""Dispatch, PostgreSQL to a RabbitMQ quorum queue, against a bare loop."""

from benchmarks.arena import Arena
from benchmarks.programs import BARE_LOOP, OURS, dispatch_rate
from benchmarks.results import Measurement, Question, Rounds, per_second


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (3_000, 1) if quick else (100_000, 5)
    rounds = Rounds()
    with arena.bench() as bench:
        for _ in range(rounds_wanted):
            for program in (BARE_LOOP, OURS):
                rounds.add(program.name, dispatch_rate(program, bench, count))
                bench.clear()
    return Measurement(
        figure=rounds.ratio(OURS.name, BARE_LOOP.name),
        ours=per_second(rounds.median(OURS.name)),
        peer=per_second(rounds.median(BARE_LOOP.name)),
        numbers=rounds.numbers,
        notes=[f"{count:,} messages"],
    )


QUESTION = Question(
    name="dispatch-bare",
    title="dispatch to a quorum queue, against a bare loop",
    limit=0.7,
    measure=measure,
)
