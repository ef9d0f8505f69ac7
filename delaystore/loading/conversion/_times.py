"""When messages are due, from what people have: instants, local times, text, or delays."""

import re
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.loading.conversion._faults import Faults, Unfit, by_value
from delaystore.loading.conversion._texts import readable
from delaystore.loading.conversion.local import EARLIEST, EPOCH, LATEST, MICROSECOND, OUT_OF_RANGE, LocalClock
from delaystore.times import parse_time

_SECOND: Final = 1_000_000
_US: Final = pa.timestamp("us", "UTC")
_FARTHEST: Final = LATEST - EARLIEST
"""No delay is longer, in microseconds."""
_FARTHEST_SECONDS: Final = _FARTHEST // _SECOND + 1
_DECIMAL_MICROSECOND: Final = Decimal("0.000001")
_NO_NUMBER: Final = "delay is not a finite number of seconds, such as 90 or 0.5"
_NUMBER: Final = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{1,9})?)\s*", re.ASCII | re.IGNORECASE)


def instants(index: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column due_time, of timestamps with a time zone: which one, does not matter."""
    return _due(batch.column(index).cast(pa.int64()), faults)


def local_times(index: int, clock: LocalClock, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column due_time, of timestamps without a time zone."""
    return _due(clock.instants(batch.column(index).cast(pa.int64()), faults), faults)


def written_times(index: int, clock: LocalClock | None, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column due_time, of text as `parse_time` reads it; `clock`: for what has no offset."""

    def instant(text: str) -> int:
        try:
            time = parse_time(text)
        except ValueError:
            raise Unfit(
                "due_time is not a time in a form that delaystore reads, such as 2026-11-30T08:00:00+01:00"
            ) from None
        if time.utcoffset() is not None:
            return microseconds(time)
        if clock is None:
            raise Unfit("due_time has no time zone (see the option timeZone)")
        return clock.instant(time.replace(tzinfo=None))

    return _due(by_value(readable(batch.column(index), "due_time", faults), instant, pa.int64(), faults), faults)


def delays(index: int, began: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column delay, in seconds (numbers, or text of them) or as an interval.

    `began`: what delays begin at, in microseconds after 1970.
    """
    given = batch.column(index)
    faults.add(given.is_null(), "delay is null")
    numbers = _microseconds(given, faults)
    faults.add(pc.less(numbers, 0), "delay is negative")
    far = pc.greater(numbers, _FARTHEST)
    faults.add(far, OUT_OF_RANGE)
    near = pc.if_else(far, pa.scalar(None, pa.int64()), pc.max_element_wise(numbers, 0, skip_nulls=False))
    return _due(pc.add(near, began), faults)


def microseconds(instant: datetime) -> int:
    """After 1970."""
    return (instant - EPOCH) // MICROSECOND


def _due(instants: pa.Array, faults: Faults) -> pa.Array:
    """Timestamps of microseconds after 1970."""
    faults.add(instants.is_null(), "due_time is null")
    faults.add(pc.or_(pc.less(instants, EARLIEST), pc.greater(instants, LATEST)), OUT_OF_RANGE)
    return instants.view(_US)


def _microseconds(delays: pa.Array, faults: Faults) -> pa.Array:
    """Integers; null where a fault was found."""
    kind = delays.type
    if pa.types.is_duration(kind):
        return delays.cast(pa.duration("us")).cast(pa.int64())
    if pa.types.is_decimal(kind):
        return by_value(delays, _of_decimal, pa.int64(), faults)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return by_value(readable(delays, "delay", faults), _of_text, pa.int64(), faults)
    if pa.types.is_floating(kind):
        return _of_floats(delays.cast(pa.float64()), faults)
    limited = pc.min_element_wise(delays.cast(pa.int64()), _FARTHEST_SECONDS, skip_nulls=False)
    return pc.multiply(pc.max_element_wise(limited, -1, skip_nulls=False), _SECOND)


def _of_floats(delays: pa.Array, faults: Faults) -> pa.Array:
    """As `timedelta(seconds=...)` rounds: the fraction alone, half to even."""
    finite = pc.is_finite(delays)
    faults.add(pc.invert(finite), _NO_NUMBER)
    delays = pc.if_else(finite, delays, pa.scalar(None, pa.float64()))
    limited = pc.min_element_wise(delays, float(_FARTHEST_SECONDS), skip_nulls=False)
    limited = pc.max_element_wise(limited, -1.0, skip_nulls=False)
    whole = pc.trunc(limited)
    fraction = pc.round(pc.multiply(pc.subtract(limited, whole), float(_SECOND)), round_mode="half_to_even")
    return pc.add(pc.multiply(whole.cast(pa.int64()), _SECOND), fraction.cast(pa.int64()))


def _of_text(text: str) -> int:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise Unfit(_NO_NUMBER)
    return _of_decimal(Decimal(found[1]))


def _of_decimal(delay: Decimal) -> int:
    limited = max(min(delay, Decimal(_FARTHEST_SECONDS)), Decimal(-1))
    return int(limited.quantize(_DECIMAL_MICROSECOND, ROUND_HALF_EVEN).scaleb(6))
