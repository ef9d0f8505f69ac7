"""From the rows that people have to messages, column by column in Arrow's memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from itertools import repeat
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from delaystore.bulk.columns import (
    FIRST_AT,
    LINE,
    MAX_LATE,
    MESSAGE_COLUMNS,
    REASON,
    STAGED,
    UNREADABLE,
    Column,
    Columns,
    check_fields,
    check_header_column,
    check_header_type,
    check_json_type,
    check_key_type,
    is_instant,
    is_local_time,
    listed,
)
from delaystore.bulk.fields import (
    EntrySource,
    absent,
    column_entries,
    delays,
    derived_ids,
    destinations,
    encoded_bodies,
    given_bodies,
    given_ids,
    given_keys,
    headers,
    instants,
    json_bodies,
    json_entries,
    json_properties,
    limits,
    local_times,
    map_entries,
    microseconds,
    named_properties,
    struct_entries,
    unlimited,
    written_times,
    zoned_times,
)
from delaystore.bulk.options import UnknownColumns, WriteOptions
from delaystore.bulk.timing import Timing
from delaystore.bulk.values import EPOCH, MICROSECOND, Faults, LocalClock, values
from delaystore.errors import ConfigurationError, InvalidMessageError, LoadError
from delaystore.message import PROPERTY_TYPES, DelayedMessage
from delaystore.stores.sql.codec import MESSAGE_KEY, NOT_AFTER, decode_mapping
from delaystore.transports import Transport, open_transport

# Whether the transport that messages will be forwarded by can carry them.

_MOST_REASONS: Final = 20
"""Different reasons that a task reports: they may hold values of the row, and each is counted on its own."""
_OTHERWISE: Final = "the transport cannot carry it, for a reason such as others"


@dataclass(frozen=True)
class TransportCheck:
    """Asks the transport of a URL about each message, without a connection. Picklable; opened once in each process.

    Raises ConfigurationError and MissingDependencyError for a URL that cannot work.
    """

    url: str = field(repr=False)
    _told: set[str] = field(default_factory=set, compare=False, repr=False)

    def __post_init__(self) -> None:
        _opened(self.url)

    def reasons(self, staged: pa.RecordBatch) -> pa.Array:
        """By row of the schema STAGED: why its message cannot be carried; null: it can."""
        transport = _opened(self.url)
        return pa.array([self._reason(transport, message) for message in _messages(staged)], pa.string())

    def _reason(self, transport: Transport, message: DelayedMessage) -> str | None:
        try:
            transport.check(message)
        except InvalidMessageError as error:
            reason = f"the transport cannot carry it: {error}"
            if reason not in self._told and len(self._told) >= _MOST_REASONS:
                return _OTHERWISE
            self._told.add(reason)
            return reason
        return None


_opened = lru_cache(maxsize=4)(open_transport)
"""The transport of a URL, which connects to nothing while it only checks messages."""


def _messages(staged: pa.RecordBatch) -> Iterator[DelayedMessage]:
    columns = (staged.column(name) for name in ("message_id", "destination", "due_time", "headers", "properties"))
    # the body last: its values are bytes, which are not copied as `values` would
    for message_id, destination, due_time, header_text, property_text, body in zip(
        *(values(column) for column in columns), staged.column("body").to_pylist(), strict=True
    ):
        yield DelayedMessage(
            message_id=message_id,
            destination=destination,
            due_time=due_time,
            headers=decode_mapping(header_text),
            properties=decode_mapping(property_text),
            body=body,
        )


# Batches of rows as people have them, to batches as a store keeps them.

_MAX_BATCH_BYTES: Final = 2**31 - 1
"""Maximum of the offsets of Arrow's `binary`."""
MakeColumn = Callable[[pa.RecordBatch, Faults], pa.Array]
"""Makes one column of STAGED; its values in rows with faults do not matter."""
MakeLimits = Callable[[pa.RecordBatch, pa.Array, Faults], pa.Array]
"""Makes the latest deliveries of rows with these due times."""


@dataclass(frozen=True, slots=True)
class ConvertedBatch:
    """The result of a batch.

    `staged`: the messages, in the schema STAGED. `rejected`: the other rows as they came, without the REASON of
    an earlier load, and with REASON as the last column; None: there are none.
    """

    staged: pa.RecordBatch
    rejected: pa.RecordBatch | None


_TWICE: Final = "message_id is twice in the load"


class FirstRows:
    """The first good row of each message_id in a load, which keeps them all in memory."""

    def __init__(self) -> None:
        self._lines: dict[str, int | None] = {}

    def reasons(self, batch: pa.RecordBatch, staged: pa.RecordBatch, reasons: pa.Array | None) -> pa.Array | None:
        """`reasons` of the batch's rows, and those of rows good so far whose id came before. None: all are good."""
        ids = staged.column("message_id").to_pylist()
        lines = batch.column(LINE).to_pylist() if LINE in batch.schema.names else repeat(None)
        found = [None] * len(ids) if reasons is None else reasons.to_pylist()
        for number, (message_id, line, reason) in enumerate(zip(ids, lines, found, strict=False)):
            if reason is not None:
                continue
            if message_id not in self._lines:
                self._lines[message_id] = line
            elif (first := self._lines[message_id]) is None:
                found[number] = _TWICE
            else:
                found[number] = f"{_TWICE}{FIRST_AT}{first}"
        return pa.array(found, pa.string()) if any(found) else None


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the columns of a DataFrame become those of STAGED. Made by `plan_conversion`; picklable.

    `columns`: functions that make each column of STAGED but the latest deliveries, by its name. `limits`: makes these,
    of the due times as they are stored. `unreadable`: the index of the column that says why a row could not be read;
    None: there is none. `transport`: rejects messages that it cannot carry; None: no check. `timing`: moves due times;
    None: they stay as they are.
    """

    columns: Mapping[str, MakeColumn]
    limits: MakeLimits
    unreadable: int | None = None
    transport: TransportCheck | None = None
    timing: Timing | None = None

    def convert(self, batch: pa.RecordBatch, first_rows: FirstRows | None = None) -> ConvertedBatch:
        """`batch`, whose columns are those of the schema that was planned for.

        A valid row becomes the row that the SQL store writes for the same DelayedMessage. `first_rows`: the rows so
        far; a row is rejected if one of them has its id. None: no check. LoadError: the batch is too large.
        """
        if batch.nbytes > _MAX_BATCH_BYTES:
            raise LoadError(
                "a batch of rows holds more than 2 GB; set spark.sql.execution.arrow.maxRecordsPerBatch lower"
            )
        faults = Faults()
        if self.unreadable is not None:
            faults.add_reasons(batch.column(self.unreadable).cast(pa.string()))
        made = {name: self.columns[name](batch, faults) for name in STAGED.names if name != NOT_AFTER}
        if self.timing is not None:
            made["due_time"] = self.timing.moved(made["due_time"], made["message_id"], batch, faults)
        made[NOT_AFTER] = self.limits(batch, made["due_time"], faults)
        staged = pa.RecordBatch.from_arrays([made[name] for name in STAGED.names], schema=STAGED)
        reasons = self._uncarried(staged, faults.reasons())
        if first_rows is not None:
            reasons = first_rows.reasons(batch, staged, reasons)
        if reasons is None:
            return ConvertedBatch(staged, None)
        kept = [name for name in batch.schema.names if name.lower() not in (UNREADABLE, REASON)]
        rejected = batch.select(kept).filter(reasons.is_valid()).append_column(REASON, reasons.drop_null())
        return ConvertedBatch(staged.filter(reasons.is_null()), rejected)

    def _uncarried(self, staged: pa.RecordBatch, reasons: pa.Array | None) -> pa.Array | None:
        """`reasons`, and those of rows good so far that the transport cannot carry. None: all are good."""
        if self.transport is None:
            return reasons
        if reasons is None:
            found = self.transport.reasons(staged)
        else:
            good = reasons.is_null()
            found = pc.replace_with_mask(reasons, good, self.transport.reasons(staged.filter(good)))
        return found if found.null_count < len(found) else None


# From the columns of rows and the options to a Conversion.

_DELAYS: Final = (types.is_integer, types.is_floating, types.is_decimal, types.is_string, types.is_duration)


def plan_conversion(schema: pa.Schema, options: WriteOptions, began: datetime) -> Conversion:
    """How rows of `schema` become messages. `began`: what delays begin at (aware).

    Raises ConfigurationError, in one line that names the column, for values that could be no message in any row, and
    for a transport that cannot work.
    """
    columns = Columns(schema)
    keys = _keys(columns, options)
    zones = _zones(columns, options)
    made: dict[str, MakeColumn] = {
        "due_time": _times(columns, zones, options, began),
        "destination": _destinations(columns, options),
        "message_id": _ids(columns, keys, options.load_id),
    }
    key = _message_key(columns, options)
    made[MESSAGE_KEY] = absent if key is None else partial(given_keys, key.index)
    unknown = _unknown(columns, [*keys, *([] if key is None else [key])], zones, options)
    made["headers"] = _headers(columns, unknown if options.unknown_columns is UnknownColumns.HEADERS else [])
    made["properties"] = _properties(columns)
    made["body"] = _bodies(columns, unknown if options.unknown_columns is UnknownColumns.BODY else None, options)
    transport = None if options.transport is None else TransportCheck(options.transport)
    limits = _limits(columns, zones, options)
    return Conversion(made, limits, _unreadable(columns), transport, _timing(zones, options))


def _keys(columns: Columns, options: WriteOptions) -> Sequence[Column]:
    keys = []
    for name in options.id_columns:
        key = columns.get(name)
        if key is None:
            raise ConfigurationError(f"the id column {name} is not there; the columns are {columns}")
        if key in keys:
            raise ConfigurationError(f"the id column {name} is named twice; name it once")
        check_key_type(key.type, key.name)
        keys.append(key)
    return keys


def _message_key(columns: Columns, options: WriteOptions) -> Column | None:
    if options.key_column is None:
        return None
    column = columns.get(options.key_column)
    if column is None:
        raise ConfigurationError(f"the column of keys, {options.key_column}, is not there; the columns are {columns}")
    if not types.is_string(column.type):
        raise column.wrong("a key must be string; cast it")
    return column


def _zones(columns: Columns, options: WriteOptions) -> Column | None:
    if options.zone_column is None:
        return None
    column = columns.get(options.zone_column)
    if column is None:
        raise ConfigurationError(f"the zone column {options.zone_column} is not there; the columns are {columns}")
    if not types.is_string(column.type):
        raise column.wrong("a time zone must be string, such as Europe/Berlin; cast it")
    return column


def _timing(zones: Column | None, options: WriteOptions) -> Timing | None:
    if options.spread is None and options.window is None:
        return None
    spread, ramp = (0 if each is None else each // MICROSECOND for each in (options.spread, options.ramp))
    return Timing(spread, ramp, options.window, None if zones is None else zones.index, options.time_zone)


def _unknown(columns: Columns, keys: Sequence[Column], zones: Column | None, options: WriteOptions) -> list[Column]:
    """Columns that are not a message's. Id columns are never refused, and are among them; time zones are not."""
    unknown = [column for column in columns.unknown() if column != zones]
    if options.unknown_columns is UnknownColumns.ERROR:
        strangers = [column for column in unknown if column not in keys]
        if strangers:
            raise ConfigurationError(
                f"unknown columns {listed(strangers)}; a message's are {', '.join(MESSAGE_COLUMNS)}: rename or drop "
                "them, or set the option unknownColumns to headers or body, or to ignore to leave them out"
            )
    return unknown


def _unreadable(columns: Columns) -> int | None:
    column = columns.get(UNREADABLE)
    if column is not None and not types.is_string(column.type):
        raise column.wrong("it says why a row could not be read, and must be string; cast it")
    return None if column is None else column.index


def _ids(columns: Columns, keys: Sequence[Column], load_id: str | None) -> MakeColumn:
    column = columns.get("message_id")
    if column is not None:
        if keys:
            raise ConfigurationError(
                "the option idColumns is for rows without message_id; drop that column, or leave the option out"
            )
        if not types.is_string(column.type):
            raise column.wrong("a message_id must be string; cast it")
        return partial(given_ids, column.index)
    if not keys or load_id is None:
        both = "the options idColumns and loadId"
        missing = "the option loadId" if keys else "the option idColumns" if load_id is not None else both
        raise ConfigurationError(
            f"no column has ids: name one message_id (string), or set {missing}, so that ids can be derived from a "
            f"key; the columns are {columns}"
        )
    return partial(derived_ids, keys, load_id)


def _destinations(columns: Columns, options: WriteOptions) -> MakeColumn:
    column = columns.get("destination")
    if column is None:
        if options.destination is None:
            raise ConfigurationError(
                "no column says where messages go: name one destination (string), or set the option destination; "
                f"the columns are {columns}"
            )
        return partial(destinations, None, options.destination)
    if not types.is_string(column.type):
        raise column.wrong("a destination must be string; cast it")
    return partial(destinations, column.index, options.destination)


def _times(columns: Columns, zones: Column | None, options: WriteOptions, began: datetime) -> MakeColumn:
    column, delay = columns.get("due_time"), columns.get("delay")
    if column is not None and delay is not None:
        raise ConfigurationError(f"columns {column.name} and {delay.name} both give the due time; drop one")
    given = delay if column is None else column
    if given is None:
        raise ConfigurationError(
            "no column says when messages are due: name one due_time (timestamp) or delay (seconds); "
            f"the columns are {columns}"
        )
    has_local_times = delay is None and not is_instant(given.type)
    if zones is not None and not has_local_times and options.window is None:
        raise ConfigurationError(
            f"the option zoneColumn is for local times, and column {given.name} has none; leave it out"
        )
    return _instants(given, "due_time", zones, options) if delay is None else _spans(delay, "delay", began)


def _limits(columns: Columns, zones: Column | None, options: WriteOptions) -> MakeLimits:
    """Latest deliveries are a time, or counted from the due time."""
    column, span = columns.get(NOT_AFTER), columns.get(MAX_LATE)
    if column is not None and span is not None:
        raise ConfigurationError(f"columns {column.name} and {span.name} both give the latest delivery; drop one")
    if span is not None and not types.is_null(span.type):
        return partial(limits, span.index, MAX_LATE, _spans(span, MAX_LATE, EPOCH))
    if column is not None and not types.is_null(column.type):
        return partial(limits, column.index, NOT_AFTER, _instants(column, NOT_AFTER, zones, options))
    return unlimited


def _spans(column: Column, name: str, began: datetime) -> MakeColumn:
    """Of times that are counted from `began`."""
    if not any(is_such(column.type) for is_such in _DELAYS):
        raise column.wrong(f"a {name} must be a number (of seconds), its text, or an interval day to second; cast it")
    return partial(delays, column.index, microseconds(began))


def _instants(column: Column, name: str, zones: Column | None, options: WriteOptions) -> MakeColumn:
    """Of times."""
    clock = None if options.time_zone is None else LocalClock(options.time_zone, options.ambiguous_time)
    if is_instant(column.type):
        return partial(instants, column.index)
    if zones is not None and (types.is_string(column.type) or is_local_time(column.type)):
        return partial(zoned_times, column.index, zones.index, clock, options.ambiguous_time)
    if types.is_string(column.type):
        return partial(written_times, column.index, clock)
    if not is_local_time(column.type):
        raise column.wrong(f"a {name} must be timestamp, or string (ISO 8601); cast it")
    if clock is None:
        raise column.wrong("its times have no time zone; set the option timeZone, such as Europe/Berlin, or zoneColumn")
    return partial(local_times, column.index, clock)


def _headers(columns: Columns, unknown: Sequence[Column]) -> MakeColumn:
    for other in unknown:
        check_header_column(other.type, other.name)
    sources: list[EntrySource] = []
    column = columns.get("headers")
    if column is not None and not types.is_null(column.type):
        reserved = tuple(other.name for other in unknown)
        if types.is_string(column.type):
            sources.append(partial(json_entries, column.index, "headers", reserved))
        else:
            sources.append(_named(column, "headers", reserved))
    if unknown:
        sources.append(partial(column_entries, unknown, "headers"))
    return partial(headers, sources) if sources else absent


def _properties(columns: Columns) -> MakeColumn:
    column = columns.get("properties")
    if column is None or types.is_null(column.type):
        return absent
    if types.is_string(column.type):
        return partial(json_properties, column.index)
    if types.is_struct(column.type):
        check_fields(column.type, column.name)
        for field in column.type:
            if field.name not in PROPERTY_TYPES:
                raise ConfigurationError(
                    f"column {column.name} has a field {field.name}, which is no property; "
                    f"there are {', '.join(PROPERTY_TYPES)}"
                )
    return partial(named_properties, _named(column, "properties"))


def _named(column: Column, name: str, reserved: Sequence[str] = ()) -> EntrySource:
    """The values of a column of structs or maps. `name`: "headers" or "properties"; `reserved`: names not to be in
    it.
    """
    if types.is_struct(column.type):
        check_header_type(column.type, column.name)
        for taken in {field.name for field in column.type} & set(reserved):
            raise ConfigurationError(f"header {taken} is a field of {column.name} and a column; rename or drop one")
        return partial(struct_entries, column.index, name)
    if types.is_map(column.type) and types.is_string(column.type.key_type):
        check_header_type(column.type, column.name)
        return partial(map_entries, column.index, name, reserved)
    raise column.wrong(f"{name} must be a map from string, a struct, or string (a JSON object); cast it")


def _bodies(columns: Columns, unknown: Sequence[Column] | None, options: WriteOptions) -> MakeColumn:
    column, encoded = columns.get("body"), columns.get("body_base64")
    if unknown is not None:
        if (given := column or encoded) is not None:
            raise ConfigurationError(
                f"the option unknownColumns is body, and there is a column {given.name}; drop it, or say headers"
            )
        if not unknown:
            raise ConfigurationError(
                "the option unknownColumns is body, and there are no such columns; add the columns of the body"
            )
        for other in unknown:
            check_json_type(other.type, other.name)
        return partial(json_bodies, unknown, options.max_body_bytes)
    if column is not None and not (types.is_binary(column.type) or types.is_string(column.type)):
        raise column.wrong("a body must be binary or string; cast it")
    if encoded is not None:
        if not types.is_string(encoded.type):
            raise encoded.wrong("a body in base64 must be string; cast it")
        plain = None if column is None else column.index
        return partial(encoded_bodies, encoded.index, plain, options.max_body_bytes)
    if column is None:
        raise ConfigurationError(
            "no column is a body: name one body (binary or string), or make bodies of others by setting the option "
            f"unknownColumns to body; the columns are {columns}"
        )
    return partial(given_bodies, column.index, options.max_body_bytes)
