"""Dispatch beside many schedules that are not due, against dispatch without."""

from benchmarks.arena import Arena
from benchmarks.programs import OURS, dispatch_rate
from benchmarks.results import Measurement, Question, Rounds, per_second
from benchmarks.schedules import WITH, WITHOUT, with_and_without

WARM = 2_000


def measure(arena: Arena, quick: bool) -> Measurement:
    schedules, count, rounds_wanted = (1_000, 3_000, 1) if quick else (100_000, 200_000, 7)
    rounds = Rounds()
    with with_and_without(arena, schedules, "nowhere", cron="0 0 29 2 *") as benches:
        for number in range(rounds_wanted):
            for name, bench in list(benches.items())[:: 1 if number % 2 else -1]:
                rounds.add(name, dispatch_rate(OURS, bench, count, WARM))
                bench.clear()
    return Measurement(
        figure=rounds.ratio(WITH, WITHOUT),
        ours=per_second(rounds.median(WITH)),
        peer=per_second(rounds.median(WITHOUT)),
        numbers=rounds.numbers,
        notes=[f"{schedules:,} schedules that are not due; {count:,} messages a round, {rounds_wanted} rounds each"],
    )


QUESTION = Question(
    name="schedules-idle",
    title="dispatch beside 100,000 idle schedules, against without",
    limit=0.98,
    measure=measure,
)
