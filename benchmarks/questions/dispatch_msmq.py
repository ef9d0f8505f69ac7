"""Dispatch, PostgreSQL to a RabbitMQ quorum queue, against the MSMQ transport's algorithm in the same language."""

from benchmarks.arena import Arena
from benchmarks.programs import MSMQ, OURS, dispatch_rate
from benchmarks.results import Measurement, Question, Rounds, per_second


def measure(arena: Arena, quick: bool) -> Measurement:
    ours, theirs, warm, rounds_wanted = (3_000, 200, 50, 1) if quick else (100_000, 6_000, 500, 5)
    rounds = Rounds()
    with arena.bench() as bench:
        for _ in range(rounds_wanted):
            for program, count in ((MSMQ, theirs), (OURS, ours)):
                rounds.add(program.name, dispatch_rate(program, bench, count, warm=warm))
                bench.clear()
    return Measurement(
        figure=rounds.ratio(OURS.name, MSMQ.name),
        ours=per_second(rounds.median(OURS.name)),
        peer=per_second(rounds.median(MSMQ.name)),
        numbers=rounds.numbers,
        notes=[f"{ours:,} messages for ours, {theirs:,} for the peer"],
    )


QUESTION = Question(
    name="dispatch-msmq",
    title="dispatch to a quorum queue, against the MSMQ algorithm",
    limit=12,
    measure=measure,
    decimals=1,
)
