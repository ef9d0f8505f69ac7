"""From a DataFrame's schema and the options to a Conversion."""

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql.types import (
    BinaryType,
    DayTimeIntervalType,
    FractionalType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from delaystore.errors import ConfigurationError
from delaystore.message import PROPERTY_TYPES
from delaystore.spark.conversion._bodies import GivenBodies, JsonBodies
from delaystore.spark.conversion._headers import (
    ColumnEntries,
    Entries,
    Headers,
    JsonEntries,
    MapEntries,
    StructEntries,
)
from delaystore.spark.conversion._kinds import check_fields, check_header_type, check_json_type, check_key_type
from delaystore.spark.conversion._names import DerivedIds, Destinations, GivenIds, KeyColumn
from delaystore.spark.conversion._properties import JsonProperties, NamedProperties, NoProperties
from delaystore.spark.conversion._times import Delays, Instants, LocalTimes, WrittenTimes, microseconds
from delaystore.spark.conversion.columns import MESSAGE_COLUMNS, UNREADABLE, Column, Columns, listed
from delaystore.spark.conversion.conversion import Conversion, Part
from delaystore.spark.conversion.local import LocalClock
from delaystore.spark.options import UnknownColumns, WriteOptions


def plan_conversion(schema: StructType, options: WriteOptions, began: datetime) -> Conversion:
    """How rows of `schema` become messages. `began`: what delays begin at (aware).

    Raises ConfigurationError, in one line that names the column, for what could be no message in any row.
    """
    columns = Columns(schema)
    keys = _keys(columns, options)
    times = _times(columns, options, began)
    destinations = _destinations(columns, options)
    ids = _ids(columns, keys, options.load_id)
    unknown = _unknown(columns, keys, options)
    return Conversion(
        (
            ids,
            destinations,
            times,
            _headers(columns, unknown if options.unknown_columns is UnknownColumns.HEADERS else []),
            _properties(columns),
            _bodies(columns, unknown if options.unknown_columns is UnknownColumns.BODY else None, options),
        ),
        _unreadable(columns),
    )


def _keys(columns: Columns, options: WriteOptions) -> Sequence[Column]:
    keys = []
    for name in options.key_columns:
        key = columns.get(name)
        if key is None:
            raise ConfigurationError(f"the key column {name} is not there; the columns are {columns}")
        if key in keys:
            raise ConfigurationError(f"the key column {name} is named twice; name it once")
        check_key_type(key.type, key.name)
        keys.append(key)
    return keys


def _unknown(columns: Columns, keys: Sequence[Column], options: WriteOptions) -> list[Column]:
    """Columns that are not a message's. Key columns are never refused, and are among them."""
    unknown = list(columns.unknown())
    if options.unknown_columns is UnknownColumns.ERROR:
        strangers = [column for column in unknown if column not in keys]
        if strangers:
            raise ConfigurationError(
                f"unknown columns {listed(strangers)}; a message's are {', '.join(MESSAGE_COLUMNS)}: rename or drop "
                'them, or set the option "unknown columns" to headers or body'
            )
    return unknown


def _unreadable(columns: Columns) -> int | None:
    column = columns.get(UNREADABLE)
    if column is not None and not isinstance(column.type, StringType):
        raise column.wrong("it says why a row could not be read, and must be string; cast it")
    return None if column is None else column.index


def _ids(columns: Columns, keys: Sequence[Column], load_id: str | None) -> Part:
    column = columns.get("message_id")
    if column is not None:
        if keys:
            raise ConfigurationError(
                'the option "key columns" is for rows without message_id; drop that column, or leave the option out'
            )
        if not isinstance(column.type, StringType):
            raise column.wrong("a message_id must be string; cast it")
        return GivenIds(column.index)
    if not keys or load_id is None:
        both = 'the options "key columns" and "load id"'
        missing = 'the option "load id"' if keys else 'the option "key columns"' if load_id is not None else both
        raise ConfigurationError(
            f"no column has ids: name one message_id (string), or set {missing}, so that ids can be derived from a "
            f"key; the columns are {columns}"
        )
    return DerivedIds.of_load(tuple(KeyColumn(key.index, key.name) for key in keys), load_id)


def _destinations(columns: Columns, options: WriteOptions) -> Part:
    column = columns.get("destination")
    if column is None:
        if options.destination is None:
            raise ConfigurationError(
                "no column says where messages go: name one destination (string), or set the option destination; "
                f"the columns are {columns}"
            )
        return Destinations(None, options.destination)
    if not isinstance(column.type, StringType):
        raise column.wrong("a destination must be string; cast it")
    return Destinations(column.index, options.destination)


def _times(columns: Columns, options: WriteOptions, began: datetime) -> Part:
    column, delay = columns.get("due_time"), columns.get("delay")
    if column is not None and delay is not None:
        raise ConfigurationError(f"columns {column.name} and {delay.name} both say when; drop one")
    if delay is not None:
        if not isinstance(delay.type, IntegralType | FractionalType | StringType | DayTimeIntervalType):
            raise delay.wrong("a delay must be a number (of seconds), its text, or an interval day to second; cast it")
        return Delays(delay.index, microseconds(began))
    if column is None:
        raise ConfigurationError(
            "no column says when messages are due: name one due_time (timestamp) or delay (seconds); "
            f"the columns are {columns}"
        )
    clock = None if options.time_zone is None else LocalClock(options.time_zone, options.ambiguous_time)
    if isinstance(column.type, TimestampType):
        return Instants(column.index)
    if isinstance(column.type, StringType):
        return WrittenTimes(column.index, clock)
    if not isinstance(column.type, TimestampNTZType):
        raise column.wrong("a due_time must be timestamp, or string (ISO 8601); cast it")
    if clock is None:
        raise column.wrong('its times have no time zone; set the option "time zone", such as Europe/Berlin')
    return LocalTimes(column.index, clock)


def _headers(columns: Columns, unknown: Sequence[Column]) -> Part:
    for other in unknown:
        check_header_type(other.type, other.name)
    extra = tuple((column.index, column.name) for column in unknown)
    sources: list[Entries] = []
    column = columns.get("headers")
    if column is not None:
        sources += _entries(column, tuple(name for _, name in extra))
    return Headers((*sources, ColumnEntries(extra)) if extra else tuple(sources))


def _entries(column: Column, reserved: tuple[str, ...]) -> Sequence[Entries]:
    if isinstance(column.type, NullType):
        return []
    if isinstance(column.type, StringType):
        return [JsonEntries(column.index, reserved)]
    if isinstance(column.type, StructType):
        check_header_type(column.type, column.name)
        for name in {field.name for field in column.type.fields} & set(reserved):
            raise ConfigurationError(f"header {name} is a field of {column.name} and a column; rename or drop one")
        return [StructEntries(column.index)]
    if isinstance(column.type, MapType) and isinstance(column.type.keyType, StringType):
        check_header_type(column.type, column.name)
        return [MapEntries(column.index, reserved)]
    raise column.wrong("headers must be a map from string, a struct, or string (a JSON object); cast it")


def _properties(columns: Columns) -> Part:
    column = columns.get("properties")
    if column is None or isinstance(column.type, NullType):
        return NoProperties()
    if isinstance(column.type, StringType):
        return JsonProperties(column.index)
    if isinstance(column.type, StructType):
        check_fields(column.type, column.name)
        for field in column.type.fields:
            if field.name not in PROPERTY_TYPES:
                raise ConfigurationError(
                    f"column {column.name} has a field {field.name}, which is no property; "
                    f"there are {', '.join(PROPERTY_TYPES)}"
                )
        check_header_type(column.type, column.name)
        return NamedProperties(StructEntries(column.index))
    if isinstance(column.type, MapType) and isinstance(column.type.keyType, StringType):
        check_header_type(column.type, column.name)
        return NamedProperties(MapEntries(column.index))
    raise column.wrong("properties must be a map from string, a struct, or string (a JSON object); cast it")


def _bodies(columns: Columns, unknown: Sequence[Column] | None, options: WriteOptions) -> Part:
    column = columns.get("body")
    if unknown is not None:
        if column is not None:
            raise ConfigurationError(
                f'the option "unknown columns" is body, and there is a column {column.name}; drop it, or say headers'
            )
        if not unknown:
            raise ConfigurationError('the option "unknown columns" is body, and there are none; add those of the body')
        for other in unknown:
            check_json_type(other.type, other.name)
        return JsonBodies(tuple((other.index, other.name) for other in unknown), options.max_body_bytes)
    if column is None:
        raise ConfigurationError(
            "no column is a body: name one body (binary or string), or make bodies of others by setting the option "
            f'"unknown columns" to body; the columns are {columns}'
        )
    if not isinstance(column.type, BinaryType | StringType):
        raise column.wrong("a body must be binary or string; cast it")
    return GivenBodies(column.index, options.max_body_bytes)
