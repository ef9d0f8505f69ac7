"""Dispatch into a store that keeps a history, against dispatch without."""

from benchmarks.arena import Arena
from benchmarks.history import WITH, WITHOUT, check_entries, with_and_without
from benchmarks.programs import OURS, dispatch_rate
from benchmarks.results import Measurement, Question, Rounds, per_second

WARM = 2_000


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (3_000, 1) if quick else (200_000, 5)
    rounds = Rounds()
    with with_and_without(arena) as benches:
        for number in range(rounds_wanted):
            for name, bench in list(benches.items())[:: 1 if number % 2 else -1]:
                rounds.add(name, dispatch_rate(OURS, bench, count, WARM))
                bench.clear()
        check_entries(benches[WITH], rounds_wanted * (count + WARM))
        check_entries(benches[WITHOUT], 0)
    return Measurement(
        figure=rounds.ratio(WITH, WITHOUT),
        ours=per_second(rounds.median(WITH)),
        peer=per_second(rounds.median(WITHOUT)),
        numbers=rounds.numbers,
        notes=[f"{count:,} messages a round, {rounds_wanted} rounds each; the entries of all rounds stay"],
    )


QUESTION = Question(
    name="history-dispatch",
    title="dispatch of 200,000 with a history, against without",
    limit=0.85,
    measure=measure,
)
