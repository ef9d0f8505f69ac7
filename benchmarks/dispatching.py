"""Dispatch from two stores in turn: with and without a large backlog, or with another difference."""

from collections.abc import Mapping
from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, Bench
from benchmarks.millions import MANY, NONE, none_and_many
from benchmarks.programs import OURS, dispatch_rate
from benchmarks.results import Measurement, Rounds, per_second
from benchmarks.scattered import scattered_rate

SCATTERED = "scattered"
WARM: Final = 2_000
"""Messages that a program dispatches before each round."""


def compare_dispatch(
    arena: Arena, waiting: int, count: int, rounds_wanted: int, body_bytes: int = BODY_BYTES
) -> Measurement:
    """`count` that are stored and due at once; for scale, `count` that waited among the others."""
    rounds = Rounds()
    rounds.add(SCATTERED, scattered_rate(arena, waiting, count, body_bytes))  # first: its database needs the disk, too
    with none_and_many(arena, waiting, body_bytes) as benches:
        for _ in range(rounds_wanted):
            for name, bench in benches.items():
                rounds.add(name, dispatch_rate(OURS, bench, count))
                bench.clear_queue()
                bench.settle()
    return Measurement(
        figure=rounds.ratio(MANY, NONE),
        ours=per_second(rounds.median(MANY)),
        peer=per_second(rounds.median(NONE)),
        numbers=rounds.numbers,
        notes=[
            f"{count:,} messages dispatched, {waiting:,} waiting",
            f"{count:,} that waited among the others, their rows scattered between those, and became due together: "
            f"{per_second(rounds.median(SCATTERED))} ({rounds.ratio(SCATTERED, NONE):.2f} x)",
        ],
    )


def compare_stores(
    benches: Mapping[str, Bench], ours: str, peer: str, count: int, rounds_wanted: int, note: str
) -> Measurement:
    """Compare dispatch of `count` messages a round from two stores, alternately. `note`: the difference of both."""
    rounds = Rounds()
    for number in range(rounds_wanted):
        for name, bench in list(benches.items())[:: 1 if number % 2 else -1]:
            rounds.add(name, dispatch_rate(OURS, bench, count, WARM))
            bench.clear()
    return Measurement(
        figure=rounds.ratio(ours, peer),
        ours=per_second(rounds.median(ours)),
        peer=per_second(rounds.median(peer)),
        numbers=rounds.numbers,
        notes=[f"{count:,} messages a round, {rounds_wanted} rounds each; {note}"],
    )
