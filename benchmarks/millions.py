"""What the questions about millions that wait share: the same store with none and with many, beside each other."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, Bench

NONE: Final = "none waiting"
MANY: Final = "waiting"


def millions(quick: bool) -> int:
    """How many wait."""
    return 100_000 if quick else 10_000_000


@contextmanager
def none_and_many(arena: Arena, waiting: int, body_bytes: int = BODY_BYTES) -> Iterator[Mapping[str, Bench]]:
    """An empty store, and the shared one in which so many wait, by NONE and MANY."""
    with ExitStack() as stack:
        many = stack.enter_context(arena.filled_bench(waiting, body_bytes))  # filled before anything is measured
        yield {NONE: stack.enter_context(arena.bench()), MANY: many}
