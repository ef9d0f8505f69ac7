"""How fast due messages are dispatched, by the number of other messages that are waiting."""

from collections.abc import Sequence
from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES
from benchmarks.dispatching import SCATTERED, compare_dispatch
from benchmarks.figures.series import Series
from benchmarks.millions import MANY, NONE

AMOUNTS: Final = ((1_000_000, BODY_BYTES), (3_000_000, BODY_BYTES), (10_000_000, BODY_BYTES), (30_000_000, BODY_BYTES))
MOST: Final = (100_000_000, 20)
"""With smaller bodies, as the disk must hold them: 33 GB."""
FEW: Final = ((10_000, BODY_BYTES), (30_000, BODY_BYTES))
STORED_LATE, STORED_EARLY = "stored when they are due", "stored among the waiting ones"


def measure(arena: Arena, quick: bool) -> Series:
    """Messages a second: rounds of messages that are stored and due at once, one round of older ones."""
    amounts, count, rounds = (FEW, 1_000, 1) if quick else ((*AMOUNTS, MOST), 100_000, 3)
    late, early, none = [], [], []
    for waiting, body_bytes in amounts:
        found = compare_dispatch(arena, waiting, count, rounds, body_bytes).numbers
        arena.drop_filled()
        late.append({"waiting": waiting, "body_bytes": body_bytes, "rounds": _whole(found[MANY])})
        early.append({"waiting": waiting, "body_bytes": body_bytes, "rounds": _whole(found[SCATTERED])})
        none += _whole(found[NONE])
    late.insert(0, {"waiting": 0, "body_bytes": BODY_BYTES, "rounds": none})
    return [{"name": STORED_LATE, "points": late}, {"name": STORED_EARLY, "points": early}]


def _whole(rates: Sequence[float]) -> list[int]:
    return [round(rate) for rate in rates]
