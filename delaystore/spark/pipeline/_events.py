"""Messages by a rule, from tables of events: "three days after it was created, unless it was paid"."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampNTZType, TimestampType

from delaystore.errors import ConfigurationError
from delaystore.spark._dataframes import column_of

_MICROSECOND: Final = timedelta(microseconds=1)


def due_after(
    events: DataFrame,
    time: str,
    delay: timedelta,
    *,
    destination: str | Column,
    key: str | Sequence[str],
    unless: Column | str | None = None,
    rule: str | None = None,
    body: Column | Sequence[str] | None = None,
    headers: Column | None = None,
) -> DataFrame:
    """A message for each event, due `delay` after its column `time` (before it, where `delay` is negative).

    `unless`: a condition, or a boolean column. Events for which it is true get no message; null counts as false.
    `key`: the columns that tell events apart. An id is made of them and of `rule` (default: the destination's text):
    the same event has the same id at every run, and another in each rule.
    `body`: a column, or the names of those that go into a JSON object; None: all of the event's.
    A `time` with a zone is counted on in elapsed time; one without (timestamp_ntz) on the calendar, and the writer then
    needs its option timeZone. Events whose time or key is null become rows that the writer rejects.
    Raises ConfigurationError for columns that are missing, or of other types.
    """
    keys = [key] if isinstance(key, str) else list(key)
    _check(events, [time, *keys, *(body if body is not None and not isinstance(body, Column) else ())])
    if not keys:
        raise ConfigurationError("key is empty; name the columns that tell events apart")
    name = rule if rule is not None else destination
    if isinstance(name, Column):
        raise ConfigurationError("rule is missing; where the destination is a column, give the rule a name")
    left = events if unless is None else events.where(~sf.coalesce(_condition(unless), sf.lit(False)))
    columns = [
        _message_id(left, name, keys).alias("message_id"),
        (sf.lit(destination) if isinstance(destination, str) else destination).alias("destination"),
        _later(left, time, delay).alias("due_time"),
        (body if isinstance(body, Column) else _json(left, left.columns if body is None else body)).alias("body"),
    ]
    return left.select(*columns, *(() if headers is None else (headers.alias("headers"),)))


def _check(events: DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if name not in events.columns:
            raise ConfigurationError(f"the events have no column {name!r}; they have {', '.join(events.columns)}")
    found = events.schema[names[0]].dataType
    if not isinstance(found, TimestampType | TimestampNTZType):
        raise ConfigurationError(
            f"the column {names[0]!r} is a {found.simpleString()}, not a timestamp; convert it, as by to_timestamp"
        )


def _condition(unless: Column | str) -> Column:
    return sf.expr(unless) if isinstance(unless, str) else unless


def _message_id(events: DataFrame, rule: str, keys: Sequence[str]) -> Column:
    """`rule/key/key`; null if one of them is. All are percent-encoded, so that no two can make one id."""
    parts = [sf.url_encode(column_of(events, name).cast("string")) for name in keys]
    return sf.concat(sf.url_encode(sf.lit(rule)), *(part for key in parts for part in (sf.lit("/"), key)))


def _later(events: DataFrame, name: str, delay: timedelta) -> Column:
    time = column_of(events, name)
    microseconds = delay // _MICROSECOND
    if isinstance(events.schema[name].dataType, TimestampNTZType):
        return time + sf.expr(f"make_dt_interval(0, 0, 0, {Decimal(microseconds).scaleb(-6):f})")
    # not as an interval: its days would be those of the session's calendar
    return sf.timestamp_micros(sf.unix_micros(time) + sf.lit(microseconds))


def _json(events: DataFrame, names: Sequence[str]) -> Column:
    return sf.to_json(sf.struct(*(column_of(events, name) for name in names)), {"ignoreNullFields": "false"})
