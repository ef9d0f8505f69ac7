"""Due times moved by a load: spread over a time, and into the hours of a send window."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.bulk.values import EARLIEST, LATEST, OUT_OF_RANGE, Faults, known_zones
from delaystore.bulk.windows import DAY, SendWindow
from delaystore.text import zone

# A number from 0 to 1 of each message, which its id alone decides.

_HASH: Final = blake2b(digest_size=8, person=b"delaystore.due")
_BITS: Final = 53
"""Bits of a float's fraction: every such number is exact, and less than 1."""
_HALF: Final = 32
"""Bits of the second number's own hash."""
_NO_INSTANT: Final = pa.scalar(None, pa.int64())


def hashes(ids: pa.Array) -> pa.Array:
    """64 bits of each id's BLAKE2b digest: the same at every run and on every machine. Null counts as empty."""
    start, digests = _HASH.copy, []
    for text in pc.fill_null(ids, "").cast(pa.binary()).to_pylist():
        digest = start()  # a copy: half the time of making one
        digest.update(text)
        digests.append(digest.digest())
    return pa.Array.from_buffers(pa.uint64(), len(digests), [None, pa.py_buffer(b"".join(digests))])


def _fractions(hashed: pa.Array) -> pa.Array:
    """Uniform in [0, 1)."""
    return pc.multiply(pc.shift_right(hashed, pa.scalar(64 - _BITS, pa.uint64())).cast(pa.float64()), 2.0**-_BITS)


def offsets(fractions: pa.Array, length: pa.Array | pa.Scalar, ramp: pa.Array | pa.Scalar) -> pa.Array:
    """How much later each message is due.

    With the spread s and the ramp r, the rate rises from 0 at the time 0 to c = 1 / (s - r/2) at the time r, and is c
    from r to s. The share of messages due by the time t is therefore F(t) = c t^2 / 2r up to r, and c (t - r/2) from
    then on. This is its inverse, for the fraction u: sqrt(2 r u / c) while u < c r / 2, else u / c + r / 2.

    Args:
        fractions: Uniform in [0, 1).
        length: The spread in microseconds, as a float above 0.
        ramp: The ramp in microseconds, as a float from 0 to the spread.

    Returns:
        Whole microseconds, from 0 to less than the spread.

    """
    half = pc.multiply(ramp, 0.5)
    inverse_rate = pc.subtract(length, half)
    even = pc.multiply(fractions, inverse_rate)
    growing = pc.sqrt(pc.multiply(pc.multiply(ramp, 2.0), even))
    found = pc.floor(pc.if_else(pc.less(even, half), growing, pc.add(even, half)))
    return pc.min_element_wise(found, pc.subtract(length, 1.0)).cast(pa.int64())  # rounding may reach the length


# Due times into windows.


@dataclass(frozen=True, slots=True)
class Timing:
    """How a load moves due times. Picklable.

    Attributes:
        spread: Microseconds, more than 0, over which due times are spread; 0: not at all.
        ramp: Microseconds of them in which the rate grows.
        window: Where due times must be; None: anywhere.
        zone_index: The column of each row's time zone; None: there is none.
        time_zone: The time zone of rows without one; None: they are rejected.

    """

    spread: int
    ramp: int
    window: SendWindow | None
    zone_index: int | None
    time_zone: str | None

    def moved(self, due: pa.Array, ids: pa.Array, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """`due`, timestamps of the rows of `batch`, whose ids are `ids`; those with faults do not matter."""
        given = due.cast(pa.int64())
        good = pc.and_(pc.greater_equal(given, EARLIEST), pc.less_equal(given, LATEST))
        times = given = pc.if_else(good, given, _NO_INSTANT)
        hashed = hashes(ids) if self.spread else None
        if hashed is not None:
            later = offsets(_fractions(hashed), pa.scalar(float(self.spread)), pa.scalar(float(self.ramp)))
            times = pc.add(times, later)
            faults.add(pc.greater(times, LATEST), OUT_OF_RANGE)
        if self.window is not None:
            times = self._opened(self.window, times, hashed, self._zones(batch, faults))
            faults.add(pc.and_(given.is_valid(), pc.fill_null(pc.greater(times, LATEST), True)), OUT_OF_RANGE)
        return times.view(due.type)

    def _zones(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """The name of each row's time zone; null: it is unknown."""
        if self.zone_index is None:
            return pa.repeat(self.time_zone, batch.num_rows)
        column = batch.column(self.zone_index)
        zones = known_zones(column, faults)
        if self.time_zone is not None:
            return pc.if_else(column.is_null(), self.time_zone, zones)
        faults.add(column.is_null(), "time zone is null (see the option timeZone)")
        return zones

    def _opened(self, window: SendWindow, times: pa.Array, hashed: pa.Array | None, zones: pa.Array) -> pa.Array:
        """Times in the window as they are, and others at its next opening, spread once more; null: there is none."""
        days = pc.divide(pc.subtract(times, EARLIEST), DAY).dictionary_encode()  # EARLIEST is a midnight
        names = zones.dictionary_encode()
        width = max(1, len(days.dictionary))
        codes = pc.add(pc.multiply(names.indices.cast(pa.int64()), width), days.indices).dictionary_encode()
        zone_names, numbers = names.dictionary.to_pylist(), days.dictionary.to_pylist()
        found = [_spans(window, zone_names[at // width], numbers[at % width]) for at in codes.dictionary.to_pylist()]
        opens = closes = pa.nulls(len(times), pa.int64())
        for number in reversed(range(max(map(len, found), default=0))):  # the first that closes later counts
            spans = [each[number] if number < len(each) else (None, None) for each in found]
            begin, end = (pa.array(side, pa.int64()).take(codes.indices) for side in zip(*spans, strict=True))
            is_before = pc.fill_null(pc.less(times, end), False)
            opens, closes = pc.if_else(is_before, begin, opens), pc.if_else(is_before, end, closes)
        moved = pc.max_element_wise(times, opens, skip_nulls=False)
        if hashed is None:
            return moved
        again = _fractions(pc.shift_left(hashed, pa.scalar(_HALF, pa.uint64())))
        length = pc.min_element_wise(pc.subtract(closes, opens), self.spread).cast(pa.float64())
        later = offsets(again, length, pc.min_element_wise(length, float(self.ramp)))
        return pc.if_else(pc.greater(opens, times), pc.add(opens, later), moved)


@lru_cache(maxsize=2**16)
def _spans(window: SendWindow, name: str, day: int) -> Sequence[tuple[int, int]]:
    """As `SendWindow.spans`; `day`: after EARLIEST."""
    return window.spans(zone(name), day + EARLIEST // DAY)
