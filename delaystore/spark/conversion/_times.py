"""When messages are due, from what people have: instants, local times, text, or delays."""

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.spark.conversion._faults import Faults, Unfit, by_value
from delaystore.spark.conversion._texts import readable
from delaystore.spark.conversion.local import EARLIEST, EPOCH, LATEST, MICROSECOND, OUT_OF_RANGE, LocalClock

_SECOND: Final = 1_000_000
_US: Final = pa.timestamp("us", "UTC")
_FARTHEST: Final = LATEST - EARLIEST
"""No delay is longer, in microseconds."""
_FARTHEST_SECONDS: Final = _FARTHEST // _SECOND + 1
_DECIMAL_MICROSECOND: Final = Decimal("0.000001")
_NO_NUMBER: Final = "delay is not a finite number"
_NUMBER: Final = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{1,9})?)\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Instants:
    """The column due_time, of timestamps with a time zone: which one, does not matter."""

    index: int

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Instants, in range."""
        return _due(batch.column(self.index).cast(pa.int64()), faults)


@dataclass(frozen=True, slots=True)
class LocalTimes:
    """The column due_time, of timestamps without a time zone."""

    index: int
    clock: LocalClock

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Instants, in range."""
        return _due(self.clock.instants(batch.column(self.index).cast(pa.int64()), faults), faults)


@dataclass(frozen=True, slots=True)
class WrittenTimes:
    """The column due_time, of text as ISO 8601 has it; `clock`: for what has no offset."""

    index: int
    clock: LocalClock | None

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Instants, in range."""
        texts = readable(batch.column(self.index), "due_time", faults)
        return _due(by_value(texts, self._instant, pa.int64(), faults), faults)

    def _instant(self, text: str) -> int:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise Unfit("due_time is no time as ISO 8601 has it, such as 2026-11-30T08:00:00+01:00") from None
        if time.utcoffset() is not None:
            return (time - EPOCH) // MICROSECOND
        if self.clock is None:
            raise Unfit('due_time has no time zone (see the option "time zone")')
        return self.clock.instant(time.replace(tzinfo=None))


@dataclass(frozen=True, slots=True)
class Delays:
    """The column delay, in seconds (numbers, or text of them) or as an interval, after `began`.

    `began`: microseconds after 1970.
    """

    index: int
    began: int

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Instants, in range."""
        given = batch.column(self.index)
        faults.add(given.is_null(), "delay is null")
        delays = _microseconds(given, faults)
        faults.add(pc.less(delays, 0), "delay is negative")
        far = pc.greater(delays, _FARTHEST)
        faults.add(far, OUT_OF_RANGE)
        near = pc.if_else(far, pa.scalar(None, pa.int64()), pc.max_element_wise(delays, 0, skip_nulls=False))
        return _due(pc.add(near, self.began), faults)


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
