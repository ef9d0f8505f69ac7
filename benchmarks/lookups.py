"""Looking at and changing single messages of a large backlog, against the same in a store of a thousand."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import quantiles
from typing import Final

from psycopg import sql

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, Bench
from benchmarks.filling import insert_waiting
from benchmarks.millions import MANY, millions
from benchmarks.results import Rounds
from delaystore.message import Position
from delaystore.stores.abc import ManagedDelayedMessageStore, ManagementOutcome

FEW: Final = 1_000
"""How many wait in the store that the other is compared with: in an empty one there is nothing to look up."""
THOUSAND: Final = "1,000 waiting"
OPERATIONS: Final = ("get", "list", "reschedule", "cancel")
PAGE: Final = 100
_WARM_UP: Final = 5


@dataclass(frozen=True)
class LookUps:
    """Rounds of milliseconds: `STORE OPERATION p50` and `... p99`, where STORE is MANY or THOUSAND."""

    rounds: Rounds
    waiting: int

    def worst_ratio(self) -> float:
        """Many over a thousand, of the median and the p99 of each operation: the greatest."""
        return max(
            self.rounds.ratio(f"{MANY} {operation} {cut}", f"{THOUSAND} {operation} {cut}")
            for operation in OPERATIONS
            for cut in ("p50", "p99")
        )

    def worst(self, store: str) -> float:
        """The greatest p99 of the operations."""
        return max(self.rounds.median(f"{store} {operation} p99") for operation in OPERATIONS)

    def notes(self) -> list[str]:
        """Each operation, with many and with a thousand."""
        return [f"{self.waiting:,} waiting", *(self._note(operation) for operation in OPERATIONS)]

    def _note(self, operation: str) -> str:
        what = f"list, a page of {PAGE} deep inside" if operation == "list" else operation
        return f"{what}: {self._shown(MANY, operation)}; {THOUSAND}: {self._shown(THOUSAND, operation)}"

    def _shown(self, store: str, operation: str) -> str:
        p50, p99 = (self.rounds.median(f"{store} {operation} {cut}") for cut in ("p50", "p99"))
        return f"p50 {p50:.2f}, p99 {p99:.2f} ms"


def asked_look_ups(arena: Arena, quick: bool) -> LookUps:
    """What the questions about look-ups ask."""
    count, rounds_wanted = (100, 1) if quick else (200, 9)
    return measure_look_ups(arena, millions(quick), count, rounds_wanted)


def measure_look_ups(
    arena: Arena, waiting: int, count: int, rounds_wanted: int, body_bytes: int = BODY_BYTES
) -> LookUps:
    """Each operation `count` times a round, each time on another message."""
    rounds = Rounds()
    with ExitStack() as stack:
        benches = {
            MANY: stack.enter_context(arena.filled_bench(waiting, body_bytes)),
            THOUSAND: stack.enter_context(arena.filled_bench(FEW, body_bytes)),
        }
        for _ in range(rounds_wanted):
            for name, bench in benches.items():
                for operation, seconds in _measured(bench, count, body_bytes).items():
                    cuts = quantiles(seconds, n=100, method="inclusive")
                    rounds.add(f"{name} {operation} p50", cuts[49] * 1000)
                    rounds.add(f"{name} {operation} p99", cuts[98] * 1000)
    return LookUps(rounds, waiting)


def _measured(bench: Bench, count: int, body_bytes: int) -> Mapping[str, Sequence[float]]:
    """The seconds that each call took, by operation. As many wait afterwards as before."""
    share = count + _WARM_UP
    found = _some(bench, share * len(OPERATIONS))  # none of them twice: the first call would warm it up for the next
    times = {
        operation: _times(bench, operation, found[number * share : (number + 1) * share])
        for number, operation in enumerate(OPERATIONS)
    }
    insert_waiting(bench.database, bench.table, share, body_bytes)  # for those that were cancelled
    bench.settle()
    return times


def _times(bench: Bench, operation: str, found: Sequence[Position]) -> Sequence[float]:
    call = _calls(bench.store)[operation]
    seconds = []
    for number, position in enumerate(found):
        began = time.perf_counter()
        done = call(position, found[number - 1])
        seconds.append(time.perf_counter() - began)
        if not done:
            raise RuntimeError(f"{operation} did not find a message that waits")
    return seconds[_WARM_UP:]


def _calls(store: ManagedDelayedMessageStore) -> Mapping[str, Callable[[Position, Position], bool]]:
    """What to do with the message at a position, and whether it was there; `other` is where it is rescheduled to."""
    return {
        "get": lambda here, _: store.get(here.message_id) is not None,
        "list": lambda here, _: len(store.list(after=here._replace(message_id=""), limit=PAGE).messages) > 0,
        "reschedule": lambda here, other: _done(store.reschedule(here.message_id, other.next_attempt)),
        "cancel": lambda here, _: _done(store.cancel(here.message_id)),
    }


def _done(outcome: ManagementOutcome) -> bool:
    return outcome is ManagementOutcome.DONE


def _some(bench: Bench, count: int) -> Sequence[Position]:
    """The positions of messages that wait, chosen at random."""
    query = sql.SQL("SELECT next_attempt, message_id FROM {} ORDER BY random() LIMIT {}")
    rows = bench.database.execute(query.format(sql.Identifier(bench.table), count)).fetchall()
    return [Position(*row) for row in rows]
