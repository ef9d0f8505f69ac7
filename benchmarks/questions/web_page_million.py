"""The first byte of the web page's screens with a million messages waiting, in milliseconds."""

from benchmarks.arena import Arena
from benchmarks.results import Measurement, Question
from benchmarks.web import first_bytes


def measure(arena: Arena, quick: bool) -> Measurement:
    rounds, waiting = first_bytes(arena, quick)
    names = dict.fromkeys(name.rpartition(" ")[0] for name in rounds.numbers)
    worst = max(rounds.median(f"{name} p99") for name in names)
    return Measurement(
        figure=worst,
        ours=f"{worst:.0f} ms",
        peer="none",
        numbers=rounds.numbers,
        notes=[
            f"{waiting:,} waiting",
            *(
                f"{name}: p50 {rounds.median(f'{name} p50'):.0f}, p99 {rounds.median(f'{name} p99'):.0f} ms"
                for name in names
            ),
        ],
    )


QUESTION = Question(
    name="web-page-million",
    title="first byte of the web page, 1,000,000 waiting: worst p99",
    limit=300,
    measure=measure,
    at_most=True,
    unit="ms",
    decimals=0,
)
