"""The questions about millions in short, for more and more that wait: one row of a table each."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES
from benchmarks.dispatching import SCATTERED, compare_dispatch
from benchmarks.lateness_steady import compare_waiting
from benchmarks.lookups import measure_look_ups
from benchmarks.millions import MANY
from benchmarks.results import Measurement
from benchmarks.sending import FAR, NEAR, compare_sends, compare_store_many

ROUNDS: Final = 3
DISPATCHED: Final = 20_000
SECONDS: Final = 20
SENT: Final = 200
STORED: Final = 100_000
LOOKED_UP: Final = 100

Row = Mapping[str, str]
"""What was measured, by column."""


def measure_row(arena: Arena, waiting: int, body_bytes: int = BODY_BYTES) -> Row:
    """Fill a store with so many, measure, and drop it. Ratios are to none waiting, for look-ups to a thousand."""
    dispatch = compare_dispatch(arena, waiting, DISPATCHED, ROUNDS, body_bytes)
    lateness = compare_waiting(arena, waiting, SECONDS, ROUNDS, body_bytes)
    far = compare_sends(arena, waiting, FAR, SENT, ROUNDS, body_bytes)
    near = compare_sends(arena, waiting, NEAR, SENT, ROUNDS, body_bytes)
    stored = compare_store_many(arena, waiting, STORED, ROUNDS, body_bytes)
    look_ups = measure_look_ups(arena, waiting, LOOKED_UP, ROUNDS, body_bytes)
    arena.drop_filled()
    return {
        "waiting": f"{waiting:,}",
        "dispatch": _shown(dispatch),
        "scattered": f"{median(dispatch.numbers[SCATTERED]):,.0f}/s",
        "p99 lateness": _shown(lateness),
        "send, a year": _shown(far),
        "send, minutes": _shown(near),
        "store_many": _shown(stored),
        "worst look-up": f"{look_ups.worst(MANY):.2f} ms, {look_ups.worst_ratio():.2f} x",
    }


def table(rows: Sequence[Row]) -> str:
    """The rows below each other, in columns."""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _shown(measured: Measurement) -> str:
    return f"{measured.ours.partition(' (')[0]}, {measured.figure:.2f} x"
