"""Timeouts in tables of NServiceBus SQL persistence: `<Endpoint>_TimeoutData`, by JDBC or in files of its rows."""

import re
from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampNTZType, TimestampType

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.loading.values import EPOCH
from delaystore.message import DelayedMessage
from delaystore.migrations.sources.legacy.nservicebus_sql import NServiceBusSqlShape
from delaystore.records.times import DueTimes
from delaystore.spark._dataframes import column_of
from delaystore.spark.pipeline._rows import messages_in, row
from delaystore.spark.pipeline._timeouts import address_of

_COLUMNS: Final = tuple(NServiceBusSqlShape.columns)
_TIME: Final = NServiceBusSqlShape.time_column
_UTC: Final = DueTimes(zone=ZoneInfo("UTC"))
_HEXADECIMAL: Final = re.compile(r"(?:0x|\\x)(?:[0-9a-fA-F]{2})*")
_QUOTES: Final = {"mysql": ("`", "`"), "mariadb": ("`", "`"), "sqlserver": ("[", "]")}


def nservicebus_messages(rows: DataFrame, *, addresses: str = "queue") -> DataFrame:
    """The messages of a table's rows: columns Id, Destination, SagaId, State, Time, Headers; others are ignored.

    A Time without a zone is UTC, which is what NServiceBus writes. In files of text, State is base64, or hexadecimal
    after `0x`, or after a backslash and x, as databases export it. `addresses`: "msmq" where destinations are
    `queue@machine`. Raises ConfigurationError for missing columns.
    """
    found = {name.lower(): name for name in rows.columns}
    missing = [name for name in _COLUMNS if name.lower() not in found]
    if missing:
        raise ConfigurationError(f"the rows have no column {', '.join(missing)}; they have {', '.join(rows.columns)}")
    shape = NServiceBusSqlShape(address=address_of(addresses))
    flat = rows.select([column_of(rows, found[name.lower()]).alias(name) for name in _COLUMNS])
    time = flat[_TIME]
    if isinstance(flat.schema[_TIME].dataType, TimestampNTZType):
        time = time.cast("string")
    elif isinstance(flat.schema[_TIME].dataType, TimestampType):
        time = sf.unix_micros(time)  # as a number: Arrow would turn it into the session's time zone
    record = sf.struct(*(time.alias(_TIME) if name == _TIME else flat[name] for name in _COLUMNS))
    return messages_in(flat, record, lambda found: [row(partial(_message, shape), found)])


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

    `url`: such as `jdbc:postgresql://host/database`; its driver must be on Spark's class path (`spark.jars`). `table`:
    its name as SQL has it, where it is not `<Endpoint>_TimeoutData`. `options`: Spark's JDBC reader's: user, password,
    numPartitions with partitionColumn, lowerBound and upperBound, and so on.
    """
    name = table or _quoted(url, NServiceBusSqlShape().table_name(endpoint))
    # without it Spark reads times as those of the Java machine's own zone
    rows = spark.read.format("jdbc").options(url=url, dbtable=name, preferTimestampNTZ="true", **options).load()
    return nservicebus_messages(rows, addresses=addresses)


def _message(shape: NServiceBusSqlShape, record: Mapping[str, Any]) -> DelayedMessage:
    state = record["State"]
    known = {_TIME: _instant(record[_TIME]), "State": _bytes(state) if isinstance(state, str) else state}
    return shape.to_message({**record, **known}, "")


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
