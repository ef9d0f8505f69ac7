"""Published, confirmed and stored: `delaystore ingress run` on PostgreSQL, against a bare loop."""

from benchmarks.arena import Arena
from benchmarks.ingress import drain_rate, entrance, intake_rate
from benchmarks.results import Measurement, Question, Rounds, per_second


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (3_000, 1) if quick else (100_000, 5)
    rounds = Rounds()
    with arena.bench() as bench:
        for _ in range(rounds_wanted):
            for measured, rate in (("", intake_rate), (" draining", drain_rate)):
                for which in ("bare_loop", "ours"):
                    with entrance(bench) as made:
                        taker = getattr(made, which)
                        rounds.add(f"{taker.program.name}{measured}", rate(made, taker, count))
                        taker.clear(bench)
    return Measurement(
        figure=rounds.ratio("delaystore", "bare loop"),
        ours=per_second(rounds.median("delaystore")),
        peer=per_second(rounds.median("bare loop")),
        numbers=rounds.numbers,
        notes=[
            f"{count:,} messages, from the first publish to the last commit",
            f"draining a queue that is full: {per_second(rounds.median('delaystore draining'))}, "
            f"the bare loop {per_second(rounds.median('bare loop draining'))} "
            f"({rounds.ratio('delaystore draining', 'bare loop draining'):.2f} x)",
        ],
    )


QUESTION = Question(
    name="ingress-bare",
    title="published, confirmed and stored through an ingress, against a bare loop",
    limit=0.8,
    measure=measure,
)
