"""The fields of messages from the columns of a batch: names, due times, headers, properties and bodies."""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.bulk.columns import MAX_LATE, Column
from delaystore.bulk.options import AmbiguousTime
from delaystore.bulk.values import (
    EARLIEST,
    EPOCH,
    LATEST,
    MICROSECOND,
    OUT_OF_RANGE,
    Encoding,
    Faults,
    LocalClock,
    Plain,
    Portable,
    Tagged,
    UnfitValueError,
    any_of_row,
    braced,
    by_value,
    check_destinations,
    check_keys,
    check_message_ids,
    joined,
    known_zones,
    of_columns,
    of_maps,
    readable,
)
from delaystore.errors import InvalidMessageError
from delaystore.message import PROPERTY_TYPES, check_headers, check_properties
from delaystore.stores.sql.codec import encode_mapping, untagged
from delaystore.text import AmbiguousJsonError, DeepJsonError, parse_json, parse_time

# Where message ids and destinations come from.
#
# An id may be derived from id columns: the same load and key give the same id, at every run and on every machine.

_PERSON: Final = b"delaystore.id"
_COLON: Final = pa.scalar(b":")
_NOTHING: Final = pa.scalar(b"")


def given_ids(index: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column message_id, checked."""
    ids = readable(batch.column(index), "message_id", faults)
    check_message_ids(ids, faults)
    return ids


def given_keys(index: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column of keys, checked; null: the message has none."""
    keys = readable(batch.column(index), "key", faults)
    check_keys(keys, faults)
    return keys


def derived_ids(keys: Sequence[Column], load_id: str, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Ids in the form of a UUID (RFC 9562, version 8); null where a id column is.

    Each is a blake2b digest of the key's values, salted with the load's id.
    """
    for key in keys:
        faults.add(batch.column(key.index).is_null(), f"id column {key.name} is null")
    encoded = [part for key in keys for part in _encoded(batch.column(key.index))]
    rows = pc.binary_join_element_wise(*encoded, _NOTHING)
    salt = blake2b(load_id.encode(), digest_size=16, person=_PERSON).digest()
    return pa.array([None if row is None else _id_of(row, salt) for row in rows.to_pylist()], pa.string())


def destinations(index: int | None, default: str | None, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column destination, if there is one, checked; `default`, which was checked, for rows that have none."""
    if index is None:
        return pa.repeat(default, batch.num_rows)
    given = batch.column(index)
    names = readable(given, "destination", faults)
    if default is not None:
        names = pc.if_else(given.is_null(), default, names)
    check_destinations(names, faults)
    return names


def _id_of(row: bytes, salt: bytes) -> str:
    digest = blake2b(row, digest_size=16, salt=salt, person=_PERSON).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:]}"


def _encoded(array: pa.Array) -> tuple[pa.Scalar, pa.Array, pa.Scalar, pa.Array]:
    """Each value as its type's letter, its length, a colon, and its bytes: no two keys share an encoding."""
    letter, values = _typed(array)
    lengths = pc.binary_length(values).cast(pa.string()).cast(pa.binary())
    return pa.scalar(letter), lengths, _COLON, values


def _typed(array: pa.Array) -> tuple[bytes, pa.Array]:
    """The value's bytes; integers of all widths are one type."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return b"s", array.cast(pa.binary())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b"x", array.cast(pa.binary())
    if pa.types.is_timestamp(kind):
        return (b"n" if kind.tz is None else b"t"), _text(array.cast(pa.int64()))
    if pa.types.is_date32(kind):
        return b"D", _text(array.cast(pa.int32()))
    if pa.types.is_boolean(kind):
        return b"b", _text(array)
    return (b"d" if pa.types.is_decimal(kind) else b"i"), _text(array)


def _text(array: pa.Array) -> pa.Array:
    return array.cast(pa.string()).cast(pa.binary())


# When messages are due, from what people have: instants, local times, text, or delays.

MakeTimes = Callable[[pa.RecordBatch, Faults], pa.Array]
"""Makes times of the rows of a batch."""
_SECOND: Final = 1_000_000
_US: Final = pa.timestamp("us", "UTC")
_FARTHEST: Final = LATEST - EARLIEST
"""No delay is longer, in microseconds."""
_FARTHEST_SECONDS: Final = _FARTHEST // _SECOND + 1
_DECIMAL_MICROSECOND: Final = Decimal("0.000001")
_NO_OFFSET: Final = "due_time has no time zone (see the option timeZone)"
_NO_NUMBER: Final = "delay is not a finite number of seconds, such as 90 or 0.5"
_NUMBER: Final = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{1,9})?)\s*", re.ASCII | re.IGNORECASE)


def instants(index: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column due_time, of timestamps with a time zone: which one, does not matter."""
    return _due(batch.column(index).cast(pa.int64()), faults)


def local_times(index: int, clock: LocalClock, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column due_time, of timestamps without a time zone."""
    return _due(_shown(batch.column(index), clock, faults), faults)


def written_times(index: int, clock: LocalClock | None, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column due_time, of text as `parse_time` reads it; `clock`: for times without an offset."""
    return _due(_written(batch.column(index), clock, faults), faults)


def zoned_times(
    index: int, zones: int, clock: LocalClock | None, ambiguous: AmbiguousTime, batch: pa.RecordBatch, faults: Faults
) -> pa.Array:
    """The column due_time, local times or text, by the clocks of each row's time zone, zone by zone.

    `zones`: the column of their names; `clock`: of rows without a name, None: these need an offset.
    """
    times = batch.column(index)
    read = _written if pa.types.is_string(times.type) else _shown
    names = known_zones(batch.column(zones), faults).dictionary_encode(null_encoding="encode")
    found, rows = [pa.array([], pa.int64())], [pa.array([], pa.int64())]
    reasons = [pa.array([], pa.string())]
    for number, name in enumerate(names.dictionary.to_pylist()):
        rows.append(pc.indices_nonzero(pc.equal(names.indices, number)).cast(pa.int64()))
        part = Faults()
        of_zone = clock if name is None else LocalClock(name, ambiguous)
        found.append(read(times.take(rows[-1]), of_zone, part))
        wrong = part.reasons()
        reasons.append(pa.nulls(len(rows[-1]), pa.string()) if wrong is None else wrong)
    order = pc.sort_indices(pa.concat_arrays(rows))
    faults.add_reasons(pa.concat_arrays(reasons).take(order))
    return _due(pa.concat_arrays(found).take(order), faults)


def _shown(times: pa.Array, clock: LocalClock | None, faults: Faults) -> pa.Array:
    """Microseconds after 1970 of timestamps without a time zone."""
    if clock is None:
        faults.add(times.is_valid(), _NO_OFFSET)
        return pa.nulls(len(times), pa.int64())
    return clock.instants(times.cast(pa.int64()), faults)


def _written(times: pa.Array, clock: LocalClock | None, faults: Faults) -> pa.Array:
    """Microseconds after 1970 of texts."""

    def instant(text: str) -> int:
        try:
            time = parse_time(text)
        except ValueError:
            raise UnfitValueError(
                "due_time is not a time in a form that delaystore reads, such as 2026-11-30T08:00:00+01:00"
            ) from None
        if time.utcoffset() is not None:
            return microseconds(time)
        if clock is None:
            raise UnfitValueError(_NO_OFFSET)
        return clock.instant(time.replace(tzinfo=None))

    return by_value(readable(times, "due_time", faults), instant, pa.int64(), faults)


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


def unlimited(batch: pa.RecordBatch, _: pa.Array, __: Faults) -> pa.Array:
    """No message has a latest delivery."""
    return pa.nulls(batch.num_rows, _US)


def limits(
    index: int, name: str, given: MakeTimes, batch: pa.RecordBatch, due_times: pa.Array, faults: Faults
) -> pa.Array:
    """The latest deliveries of rows with these due times; null: none.

    `given` makes them of the column `name`, as it makes due times; of MAX_LATE it makes times since 1970.
    """
    own, is_given = Faults(), batch.column(index).is_valid()
    limit = given(batch, own).cast(pa.int64())
    reasons = own.reasons()
    if reasons is not None:
        renamed = pc.replace_substring_regex(reasons, r"^(due_time|delay)\b", name)
        faults.add_reasons(pc.if_else(is_given, renamed, pa.scalar(None, pa.string())))
    due = due_times.cast(pa.int64())
    if name == MAX_LATE:
        faults.add(pc.equal(limit, 0), f"{name} is 0")
        limit = pc.add(due, limit)
        faults.add(pc.greater(limit, LATEST), f"{name} is out of range")
    else:
        faults.add(pc.less(limit, due), f"{name} is before the due time")
    return limit.view(_US)


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
        raise UnfitValueError(_NO_NUMBER)
    return _of_decimal(Decimal(found[1]))


def _of_decimal(delay: Decimal) -> int:
    limited = max(min(delay, Decimal(_FARTHEST_SECONDS)), Decimal(-1))
    return int(limited.quantize(_DECIMAL_MICROSECOND, ROUND_HALF_EVEN).scaleb(6))


# Headers from a map, a struct, JSON, or columns of their own, as the store's codec writes them.
#
# A null value is kept where it was written: in a map or in JSON. A struct, and so a row of columns, has all of its
# fields in every row: there null means that the header is absent. What is in JSON stays of the type that is written
# there.

EntrySource = Callable[[pa.RecordBatch, Faults], pa.Array]
"""Where headers (or properties) come from: their entries, as in `objects`."""
_ENCODINGS: Final[Mapping[str, Encoding]] = {"headers": Portable(), "properties": Tagged()}
"""How values of Spark's types are written: properties are made to fit AMQP's types later."""


def absent(batch: pa.RecordBatch, _: Faults) -> pa.Array:
    """No message has any."""
    return pa.nulls(batch.num_rows, pa.string())


def headers(sources: Sequence[EntrySource], batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The headers from all of their sources, as text; null for none."""
    return braced(joined([entries(batch, faults) for entries in sources]))


def map_entries(index: int, name: str, reserved: Sequence[str], batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of a map column, null values among them. `name`: what faults call the whole; it may hold no name `reserved`."""
    column = batch.column(index)
    entries, unfit = of_maps(column, _ENCODINGS[name])
    faults.add(unfit, _unfit(name))
    if reserved:
        taken = pc.is_in(column.keys, pa.array(reserved, column.keys.type))
        if taken.true_count:
            faults.add(any_of_row(column, taken), f"{name} and a column hold the same name")
    return entries


def struct_entries(index: int, name: str, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of a struct column, without null values."""
    column = batch.column(index)
    names = [field.name for field in column.type]
    return _of_fields(names, column.flatten(), name, faults) if names else absent(batch, faults)


def column_entries(columns: Sequence[Column], name: str, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of columns of their own, without null values."""
    values = [batch.column(column.index) for column in columns]
    return _of_fields([column.name for column in columns], values, name, faults)


def json_entries(index: int, name: str, reserved: Sequence[str], batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of a column of JSON objects, null values among them; the tags of the store's codec have the same meaning."""

    def entry(text: str) -> str | None:
        mapping = decoded(text, name)
        try:
            check_headers(mapping)
        except InvalidMessageError:
            raise UnfitValueError(_unfit(name)) from None
        if not mapping.keys().isdisjoint(reserved):
            raise UnfitValueError(f"{name} and a column hold the same name")
        encoded = encode_mapping(mapping)
        return None if encoded is None else f",{encoded[1:-1]}"

    return by_value(readable(batch.column(index), name, faults), entry, pa.string(), faults)


def decoded(text: str, name: str) -> Mapping[str, Any]:
    """The JSON object in `text`; raises UnfitValueError, which names the column `name`, for any other text."""
    try:
        mapping = parse_json(text)
        if type(mapping) is not dict:
            raise TypeError("not a JSON object")
        return untagged(mapping)
    except DeepJsonError:
        raise UnfitValueError(f"{name} is nested too deep") from None
    except AmbiguousJsonError:
        raise UnfitValueError(f"{name} has a name twice in one object") from None
    except (ValueError, TypeError):
        raise UnfitValueError(
            f"{name} is not a JSON object, or holds a tag (a name with $) that does not fit"
        ) from None


def _unfit(name: str) -> str:
    return f"{name} holds a name or value that no message can"


def _of_fields(names: Sequence[str], columns: Sequence[pa.Array], name: str, faults: Faults) -> pa.Array:
    entries, unfit = of_columns(names, columns, _ENCODINGS[name], nulls=False)
    faults.add(unfit, _unfit(name))
    return entries


# Properties from a map, a struct or JSON, in the types that AMQP gives them.
#
# A null value means that the property is absent. Text becomes a number or a time where the property is one.

_KINDS: Final = {str: "text", int: "a whole number", datetime: "a time with its offset"}


def named_properties(entries: EntrySource, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of a map or struct column, as text; null for none."""
    return by_value(braced(entries(batch, faults)), _properties, pa.string(), faults)


def json_properties(index: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """Of a column of JSON objects, as text; null for none."""
    return by_value(readable(batch.column(index), "properties", faults), _properties, pa.string(), faults)


def _properties(text: str) -> str | None:
    given = decoded(text, "properties")
    return encode_mapping({name: _checked(name, value) for name, value in given.items() if value is not None})


def _checked(name: str, value: Any) -> Any:
    expected = PROPERTY_TYPES.get(name)
    if expected is None:
        raise UnfitValueError("properties holds a name that is no property")
    try:
        if type(value) is str and expected is not str:
            value = _whole(value) if expected is int else parse_time(value)
        check_properties({name: value})
    except (ValueError, InvalidMessageError):
        raise UnfitValueError(f"property {name} is out of range or not {_KINDS[expected]}") from None
    return value


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


# Bodies: given as bytes, as text or in base64, or made of the columns that are not a message's.


def given_bodies(index: int, max_bytes: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column body as bytes, checked; text is taken as UTF-8."""
    bodies = batch.column(index).cast(pa.binary())
    faults.add(bodies.is_null(), "body is null")
    return _limited(bodies, max_bytes, faults)


def encoded_bodies(index: int, plain: int | None, max_bytes: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """The column body_base64 as bytes, checked. `plain`: the column of the other rows' bodies; None: there is none."""
    bodies = by_value(readable(batch.column(index), "body_base64", faults), _decoded, pa.binary(), faults)
    if plain is not None:
        others = batch.column(plain).cast(pa.binary())
        faults.add(pc.and_(others.is_valid(), bodies.is_valid()), "body and body_base64 are both there")
        bodies = pc.coalesce(others, bodies)
    faults.add(bodies.is_null(), "body is null")
    return _limited(bodies, max_bytes, faults)


def json_bodies(columns: Sequence[Column], max_bytes: int, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
    """A JSON object of these columns as bytes, checked; null is null."""
    values = [batch.column(column.index) for column in columns]
    entries, unfit = of_columns([column.name for column in columns], values, Plain(), nulls=True)
    faults.add(unfit, "body would hold a value that no JSON can")
    return _limited(braced(entries).cast(pa.binary()), max_bytes, faults)


def _limited(bodies: pa.Array, limit: int, faults: Faults) -> pa.Array:
    faults.add(pc.greater(pc.binary_length(bodies), limit), f"body has more than {limit} bytes")
    return bodies


def _decoded(text: str) -> bytes:
    try:
        return b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise UnfitValueError("body_base64 is no base64") from None
