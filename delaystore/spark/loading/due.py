"""When the rows of a DataFrame are due, roughly: enough for a plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, NumericType, StringType, StructType, TimestampNTZType, TimestampType

from delaystore.spark.conversion.local import EARLIEST, EPOCH, LATEST

_POINTS: Final = 240
_BARS: Final = 12
_SECOND: Final = 1_000_000
_FIRST, _LAST = EARLIEST / _SECOND, LATEST / _SECOND
_LONGEST: Final = _LAST - _FIRST
_WIDTHS: Final = (
    *(timedelta(minutes=n) for n in (1, 5, 15)),
    *(timedelta(hours=n) for n in (1, 3, 6, 12)),
    *(timedelta(days=n) for n in (1, 2, 7, 14, 28, 91, 182, 364, 1820, 18_200, 182_000, 364_000)),
)
"""The widest are wide enough for all years in which a message can be due."""


@dataclass(frozen=True, slots=True)
class Bar:
    """About how many messages are due from `start` on, up to the next bar's."""

    start: datetime
    count: int


def points_of(column: Column) -> Column:
    """An aggregate: where the numbers (seconds after 1970) of `column` lie, as points with a weight each."""
    return sf.histogram_numeric(column, sf.lit(_POINTS))


def due_seconds(schema: StructType, began: datetime, time_zone: str | None) -> Column | None:
    """When each row is due, in seconds after 1970; None: no column can say.

    Null where that is not clear, or not a time at which a message can be due: such a row is rejected, yet looked at.
    """
    fields = {field.name.lower(): field for field in schema.fields}
    if delay := fields.get("delay"):
        if not isinstance(delay.dataType, NumericType | StringType):
            return None
        delays = sf.col(delay.name).try_cast("double")
        return _possible(sf.when(delays.between(0, _LONGEST), delays) + sf.lit(began.timestamp()))
    due = fields.get("due_time")
    seconds = None if due is None else _seconds(sf.col(due.name), due.dataType, time_zone or "UTC")
    return None if seconds is None else _possible(seconds)


def bars_of(points: Sequence[Any] | None) -> list[Bar]:
    """The points as at most a dozen bars of equal width, empty ones among them."""
    known = [(float(point["x"]), float(point["y"])) for point in points or ()]
    known = [(x, y) for x, y in known if _FIRST <= x <= _LAST]
    if not known:
        return []
    first, last = min(known)[0], max(known)[0]
    width = next((each for each in _WIDTHS if last - first < (_BARS - 1) * each.total_seconds()), _WIDTHS[-1])
    seconds = width.total_seconds()
    start = first // seconds
    counts = [0.0] * (int(last // seconds - start) + 1)
    for x, y in known:
        counts[int(x // seconds - start)] += y
    return [Bar(_start(start + n, width), round(count)) for n, count in enumerate(counts)]


def _start(number: float, width: timedelta) -> datetime:
    """Of the bar of that number after 1970; the first of all would begin before anything can be due."""
    return EPOCH + max(number * width, timedelta(microseconds=EARLIEST))


def _possible(seconds: Column) -> Column:
    return sf.when(seconds.between(_FIRST, _LAST), seconds)


def _seconds(column: Column, kind: DataType, time_zone: str) -> Column | None:
    if isinstance(kind, TimestampType):
        return sf.unix_micros(column) / 1e6
    if isinstance(kind, TimestampNTZType | StringType):
        text = column.cast("string")
        local = sf.concat(text, sf.lit(f" {time_zone}")).try_cast("timestamp")
        # with the zone's name after it: no time, where the text has an offset already
        return sf.unix_micros(sf.coalesce(local, text.try_cast("timestamp"))) / 1e6
    return None
