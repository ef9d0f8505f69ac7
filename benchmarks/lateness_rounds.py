"""Lateness of ours and of the bare loop, in turn."""

from datetime import timedelta

from benchmarks.bench import Bench
from benchmarks.lateness import Lateness, measure_lateness
from benchmarks.programs import BARE_LOOP, OURS
from benchmarks.results import Measurement, Rounds


def compare_lateness(bench: Bench, count: int, span: timedelta, rounds_wanted: int) -> Measurement:
    """Rounds of `count` messages due over `span`, judged by the p99."""
    rounds = Rounds()
    for _ in range(rounds_wanted):
        for program in (BARE_LOOP, OURS):
            note(rounds, program.name, measure_lateness(program, bench, count, span))
            bench.clear_queue()
            bench.settle()
    return Measurement(
        figure=rounds.ratio(f"{OURS.name} p99", f"{BARE_LOOP.name} p99"),
        ours=shown(rounds, OURS.name),
        peer=shown(rounds, BARE_LOOP.name),
        numbers=rounds.numbers,
        notes=[
            f"earliest arrival: {min(rounds.numbers[f'{program.name} earliest']):.1f} ms after the due time "
            f"({program.name})"
            for program in (OURS, BARE_LOOP)
        ],
    )


def note(rounds: Rounds, who: str, lateness: Lateness) -> None:
    """Add a round of `who`."""
    rounds.add(f"{who} p50", lateness.p50)
    rounds.add(f"{who} p99", lateness.p99)
    rounds.add(f"{who} worst", lateness.worst)
    rounds.add(f"{who} earliest", lateness.earliest)


def shown(rounds: Rounds, who: str) -> str:
    """The medians of `who`, for people."""
    p99, p50, worst = (rounds.median(f"{who} {what}") for what in ("p99", "p50", "worst"))
    return f"{p99:.1f} ms (p50 {p50:.1f}, max {worst:.0f})"
