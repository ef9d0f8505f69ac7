"""How late messages arrive, as a histogram of fixed buckets: small, and those of many dispatchers add up."""

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, Self

SHORTEST: Final = 0.001
"""Seconds: the bound of the first bucket."""
FACTOR: Final = 1.5
"""Each bound is this many times the one before, so that a percentile is off by less than half of itself."""
BOUNDS: Final[Sequence[float]] = tuple(SHORTEST * FACTOR**number for number in range(46))
"""Upper bounds of the buckets, in seconds, up to a day; what is later is in one more bucket."""


class LatenessHistogram:
    """How many messages were so late, by buckets of `BOUNDS`. It is not safe to share between threads."""

    __slots__ = ("counts",)

    def __init__(self, counts: Sequence[int] = ()) -> None:
        self.counts = [*counts, *[0] * (len(BOUNDS) + 1 - len(counts))]

    def __eq__(self, other: object) -> bool:
        return self.counts == other.counts if isinstance(other, LatenessHistogram) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"LatenessHistogram.from_text({self.text()!r})"

    def add(self, lateness: Iterable[float]) -> None:
        """Count messages by their lateness in seconds."""
        for seconds in lateness:
            self.counts[bisect_left(BOUNDS, seconds)] += 1

    def __add__(self, other: "LatenessHistogram") -> "LatenessHistogram":
        return LatenessHistogram([mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)])

    @property
    def total(self) -> int:
        """How many messages were counted."""
        return sum(self.counts)

    def percentile(self, percent: float) -> float | None:
        """The lateness in seconds that `percent` of the messages did not exceed, interpolated within a bucket.

        None: nothing was counted.
        """
        wanted, before = self.total * percent / 100, 0
        if not self.total:
            return None
        for number, count in enumerate(self.counts):
            if count and before + count >= wanted:
                lower = BOUNDS[number - 1] if number else 0.0
                upper = BOUNDS[min(number, len(BOUNDS) - 1)]
                return lower + (upper - lower) * max(0.0, wanted - before) / count
            before += count
        return BOUNDS[-1]

    def text(self) -> str:
        """The counts as JSON, without the zeros at the end."""
        last = max((number for number, count in enumerate(self.counts) if count), default=-1)
        return json.dumps(self.counts[: last + 1], separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of `text`; raises ValueError for anything else."""
        try:
            counts = json.loads(text)
        except RecursionError:
            counts = None
        fits = isinstance(counts, list) and len(counts) <= len(BOUNDS) + 1
        if not fits or not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError(f"not a histogram of lateness: {text[:80]!r}")
        return cls(counts)
