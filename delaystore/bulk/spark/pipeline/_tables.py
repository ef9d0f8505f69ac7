"""Messages of tables: of NServiceBus SQL persistence, and by a rule from tables of events."""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampNTZType, TimestampType

from delaystore.bulk.spark._columns import column_of
from delaystore.bulk.spark.pipeline._exports import address_of, messages_in, row
from delaystore.bulk.values import EPOCH
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations.records.times import DueTimes
from delaystore.migrations.sources.legacy.nservicebus import NServiceBusSqlLayout

# Timeouts in tables of NServiceBus SQL persistence: `<Endpoint>_TimeoutData`, by JDBC or in files of its rows.

_COLUMNS: Final = tuple(NServiceBusSqlLayout.columns)
_TIME: Final = NServiceBusSqlLayout.time_column
_UTC: Final = DueTimes(zone=ZoneInfo("UTC"))
_HEXADECIMAL: Final = re.compile(r"(?:0x|\\x)(?:[0-9a-fA-F]{2})*")
_QUOTES: Final = {"mysql": ("`", "`"), "mariadb": ("`", "`"), "sqlserver": ("[", "]")}


def nservicebus_messages(rows: DataFrame, *, addresses: str = "queue") -> DataFrame:
    """The messages of the rows of a timeout table of NServiceBus.

    A Time without a zone is UTC, which is what NServiceBus writes. In files of text, State is base64, or hexadecimal
    after `0x`, or after a backslash and x, as databases export it.

    Args:
        rows: The rows, with the columns Id, Destination, SagaId, State, Time and Headers; others are ignored.
        addresses: "msmq" where destinations are `queue@machine`, else "queue".

    Returns:
        The messages, for the writer.

    Raises:
        ConfigurationError: Columns are missing, or `addresses` is something else.

    """
    found = {name.lower(): name for name in rows.columns}
    missing = [name for name in _COLUMNS if name.lower() not in found]
    if missing:
        raise ConfigurationError(f"the rows have no column {', '.join(missing)}; they have {', '.join(rows.columns)}")
    layout = NServiceBusSqlLayout(address=address_of(addresses))
    flat = rows.select([column_of(rows, found[name.lower()]).alias(name) for name in _COLUMNS])
    time = flat[_TIME]
    if isinstance(flat.schema[_TIME].dataType, TimestampNTZType):
        time = time.cast("string")
    elif isinstance(flat.schema[_TIME].dataType, TimestampType):
        time = sf.unix_micros(time)  # as a number: Arrow would turn it into the session's time zone
    record = sf.struct(*(time.alias(_TIME) if name == _TIME else flat[name] for name in _COLUMNS))
    return messages_in(flat, record, lambda found: [row(partial(_message, layout), found)])


def read_nservicebus_table(
    spark: SparkSession,
    url: str,
    endpoint: str,
    *,
    table: str | None = None,
    addresses: str = "queue",
    **options: str,
) -> DataFrame:
    """The messages of an endpoint's table, by JDBC.

    Args:
        spark: The session.
        url: Such as `jdbc:postgresql://host/database`; its driver must be on Spark's class path (`spark.jars`).
        endpoint: The NServiceBus endpoint.
        table: The table's name as SQL has it; None: `<Endpoint>_TimeoutData`.
        addresses: As of `nservicebus_messages`.
        **options: Options of Spark's JDBC reader: user, password, numPartitions with partitionColumn, lowerBound and
            upperBound, and so on.

    Returns:
        The messages, for the writer.

    Raises:
        ConfigurationError: Columns are missing, or `addresses` is something else.

    """
    name = table or _quoted(url, NServiceBusSqlLayout().table_name(endpoint))
    # without it Spark reads times as those of the Java machine's own zone
    rows = spark.read.format("jdbc").options(url=url, dbtable=name, preferTimestampNTZ="true", **options).load()
    return nservicebus_messages(rows, addresses=addresses)


def _message(layout: NServiceBusSqlLayout, record: Mapping[str, Any]) -> DelayedMessage:
    state = record["State"]
    known = {_TIME: _instant(record[_TIME]), "State": _bytes(state) if isinstance(state, str) else state}
    return layout.to_message({**record, **known}, "")


def _instant(value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, int):
        try:
            return EPOCH + timedelta(microseconds=value)
        except OverflowError:
            raise InvalidMessageError("its due time is out of range") from None
    return _UTC.parse(value)


def _bytes(text: str) -> bytes:
    if _HEXADECIMAL.fullmatch(text):
        return bytes.fromhex(text[2:])
    try:
        return b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise InvalidMessageError("its body is text, but neither base64 nor hexadecimal") from None


def _quoted(url: str, table: str) -> str:
    kind = url.removeprefix("jdbc:").partition(":")[0]
    begin, end = _QUOTES.get(kind, ('"', '"'))
    return f"{begin}{table.replace(end, end * 2)}{end}"


# Messages by a rule, from tables of events: "three days after it was created, unless it was paid".

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
    """A message for each event, due some time after it.

    A time with a zone is counted on in elapsed time; one without (timestamp_ntz) on the calendar, and the writer then
    needs its option timeZone. Events whose time or key is null become rows that the writer rejects.

    Args:
        events: The events.
        time: The column with the event's time.
        delay: How long after that time the message is due; before it, where `delay` is negative.
        destination: Where all messages go, or a column.
        key: The columns that tell events apart. The message's id is made of them and of `rule`: the same event has the
            same id at every run, and another in each rule.
        unless: A condition, or a boolean column. Events for which it is true get no message; null counts as false.
        rule: The name of the rule; None: the destination's text; where that is a column, give a name.
        body: A column, or the names of columns that go into a JSON object; None: all of the event's.
        headers: A column; None: no headers.

    Returns:
        The messages, for the writer.

    Raises:
        ConfigurationError: Columns are missing or of other types, or `key` or `rule` is missing.

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
