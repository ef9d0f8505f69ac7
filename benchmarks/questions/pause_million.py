"""Lateness under steady traffic with a million due messages of a paused destination, against with none."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, Bench
from benchmarks.filling import Due, fill
from benchmarks.lateness import steady_lateness
from benchmarks.lateness_rounds import note, shown
from benchmarks.programs import OURS
from benchmarks.results import Measurement, Question, Rounds
from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher.health import Health

NONE: Final = "nothing paused"
PAUSED: Final = "paused"
CLOSED: Final = "closed"
PER_SECOND: Final = 1000


def measure(arena: Arena, quick: bool) -> Measurement:
    waiting, seconds, wanted = (20_000, 3, 1) if quick else (1_000_000, 70, 3)
    rounds = Rounds()
    with _benches(arena, waiting) as (benches, parking):
        for _ in range(wanted):
            for name, bench in benches.items():
                lateness, _ahead = steady_lateness(OURS, bench, PER_SECOND, seconds)
                note(rounds, name, lateness)
                bench.clear_queue()
                bench.settle()
        health = _health(benches[PAUSED])
    return Measurement(
        figure=rounds.ratio(f"{PAUSED} p99", f"{NONE} p99"),
        ours=shown(rounds, PAUSED),
        peer=shown(rounds, NONE),
        numbers=rounds.numbers,
        notes=[
            f"{PER_SECOND:,} a second for {seconds} s, {waiting:,} overdue messages of a paused destination",
            f"`pause` parked them in {parking:.1f} s ({waiting / parking:,.0f}/s)",
            f"health: {health.backlog:,} waiting, oldest overdue {health.oldest_overdue}",
        ],
    )


@contextmanager
def _benches(arena: Arena, waiting: int) -> Iterator[tuple[Mapping[str, Bench], float]]:
    """An empty store, and one whose paused destination has `waiting` due messages; the seconds that parking took."""
    with ExitStack() as stack:
        paused, none = (stack.enter_context(arena.bench()) for _ in range(2))
        fill(paused.database, paused.table, waiting, BODY_BYTES, Due(CLOSED, 1))
        paused.settle()
        began = time.perf_counter()
        paused.store.pause(CLOSED, by="benchmark")
        while paused.store.park(paused.store.now() + timedelta(minutes=1)):
            pass
        parking = time.perf_counter() - began
        paused.settle()
        yield {NONE: none, PAUSED: paused}, parking


def _health(bench: Bench) -> Health:
    return DelayedDelivery("bench", bench.store).health()


QUESTION = Question(
    name="pause-million",
    title="p99 lateness beside 1,000,000 due messages of a paused destination",
    limit=2,
    measure=measure,
    at_most=True,
)
