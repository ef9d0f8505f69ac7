"""Lateness of the occurrences of many schedules of one minute, against that of other messages at the same time."""

from benchmarks.arena import Arena
from benchmarks.consumer import OCCURRENCES
from benchmarks.lateness import steady_lateness
from benchmarks.lateness_rounds import note, shown
from benchmarks.lateness_steady import PER_SECOND
from benchmarks.programs import OURS
from benchmarks.results import Measurement, Question, Rounds
from benchmarks.schedules import MINUTE, WITH, WITHOUT, Occurrences, begin_again, with_and_without


def measure(arena: Arena, quick: bool) -> Measurement:
    schedules, seconds, rounds_wanted = (1_000, 5, 1) if quick else (100_000, 70, 3)
    rounds = Rounds()
    with (
        Occurrences(arena.rabbitmq.url) as occurrences,
        with_and_without(arena, schedules, occurrences.queue, every=MINUTE) as benches,
    ):
        for number in range(rounds_wanted):
            for name, bench in list(benches.items())[:: -1 if number % 2 else 1]:
                if name == WITH:
                    begin_again(bench)
                with occurrences.taking() as taken:
                    lateness, _ = steady_lateness(OURS, bench, PER_SECOND, seconds)
                    note(rounds, name, lateness)
                    if name == WITH:
                        note(rounds, OCCURRENCES, taken())
                bench.clear_queue()
                bench.settle()
    without = rounds.ratio(f"{WITH} p99", f"{WITHOUT} p99")
    return Measurement(
        figure=rounds.ratio(f"{OCCURRENCES} p99", f"{WITH} p99"),
        ours=shown(rounds, OCCURRENCES),
        peer=shown(rounds, WITH),
        numbers=rounds.numbers,
        notes=[
            f"{schedules:,} schedules of one minute make {schedules // MINUTE:,} occurrences a second, beside "
            f"{PER_SECOND:,} other messages a second for {seconds} s, {rounds_wanted} rounds",
            f"other messages without schedules: {shown(rounds, WITHOUT)}; with them {without:.2f} x",
            f"earliest occurrence: {min(rounds.numbers[f'{OCCURRENCES} earliest']):.1f} ms after its nominal time",
        ],
    )


QUESTION = Question(
    name="schedules-lateness",
    title="p99 lateness of 100,000 schedules of one minute, against other messages",
    limit=1.5,
    measure=measure,
    at_most=True,
)
