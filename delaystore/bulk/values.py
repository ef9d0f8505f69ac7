"""Arrow values: their faults, and their JSON, tagged as the codec of stores writes it, or plain."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from delaystore.bulk.options import AmbiguousTime
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import (
    EARLIEST_DUE_TIME,
    LATEST_DUE_TIME,
    MAX_ADDRESS_BYTES,
    MAX_DESTINATION_BYTES,
    MAX_KEY_BYTES,
    MAX_MESSAGE_ID_BYTES,
    check_headers,
)
from delaystore.migrations.records.reader import float_text, json_of
from delaystore.stores.sql.codec import encode_mapping
from delaystore.text import zone

# What is wrong with the rows of a batch.


class UnfitValueError(Exception):
    """A value that cannot be in a message. `reason` holds no value of the row, so that equal reasons can be counted."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Faults:
    """Why rows are rejected, collected column by column; a row's first reason is the one that counts."""

    def __init__(self) -> None:
        self._found: list[pa.Array] = []

    def add(self, mask: pa.Array | None, reason: str) -> None:
        """The rows where `mask` is true are rejected; null is false, and so is None everywhere."""
        if mask is not None and mask.true_count:
            self._found.append(pc.if_else(mask, pa.scalar(reason), pa.scalar(None, pa.string())))

    def add_reasons(self, reasons: pa.Array) -> None:
        """The rows where `reasons` is not null are rejected for that."""
        if reasons.null_count < len(reasons):
            self._found.append(reasons)

    def reasons(self) -> pa.Array | None:
        """By row: its reason, null for a good one; None if all are good."""
        return pc.coalesce(*self._found) if self._found else None


def by_value(array: pa.Array, convert: Callable[[Any], Any], to: pa.DataType, faults: Faults) -> pa.Array:
    """`convert` of each value that is not null, called once per distinct one; where it raises UnfitValueError, null."""
    encoded = array.dictionary_encode()
    values, reasons = each(encoded.dictionary.to_pylist(), convert)
    if any(reasons):
        faults.add_reasons(pa.array(reasons, pa.string()).take(encoded.indices))
    return pa.array(values, to).take(encoded.indices)


def each(values: Iterable[Any], convert: Callable[[Any], Any]) -> tuple[list[Any], list[str | None]]:
    """`convert` of each value that is not None, and the reason of the UnfitValueError that it raises, else None."""
    converted: list[Any] = []
    reasons: list[str | None] = []
    for value in values:
        try:
            converted.append(None if value is None else convert(value))
            reasons.append(None)
        except UnfitValueError as unfit:
            converted.append(None)
            reasons.append(unfit.reason)
    return converted, reasons


# Text columns: what is no UTF-8, empty, too long, or holds what AMQP's short strings cannot.


def readable(array: pa.Array, name: str, faults: Faults) -> pa.Array:
    """The text column with null in place of texts that are no UTF-8 (Spark does not check its strings)."""
    broken = not_utf8(array)
    if broken is not None:
        faults.add(broken, f"{name} is not UTF-8")
        array = pc.if_else(broken, pa.scalar(None, array.type), array)
    return array.cast(pa.string())


def not_utf8(array: pa.Array) -> pa.Array | None:
    """Where a text column holds other bytes; None: nowhere."""
    binary = array.cast(pa.large_binary())
    try:
        binary.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([value is not None and not _is_utf8(value) for value in binary.to_pylist()])
    return None


def check_message_ids(array: pa.Array, faults: Faults) -> None:
    """As `message.check_message_id`."""
    faults.add(array.is_null(), "message_id is null")
    faults.add(
        pc.greater(pc.binary_length(array), MAX_MESSAGE_ID_BYTES),
        f"message_id has more than {MAX_MESSAGE_ID_BYTES} bytes",
    )
    _check_characters(array, "message_id", faults)


def check_keys(array: pa.Array, faults: Faults) -> None:
    """As `message.check_key`; null: there is none."""
    faults.add(pc.greater(pc.binary_length(array), MAX_KEY_BYTES), f"key has more than {MAX_KEY_BYTES} bytes")
    _check_characters(array, "key", faults)
    faults.add(pc.match_substring_regex(array, r"\p{Cc}"), "key contains a control character")


def check_destinations(array: pa.Array, faults: Faults) -> None:
    """As `message.check_destination`."""
    faults.add(array.is_null(), "destination is null")
    size = pc.binary_length(array)
    address = pc.starts_with(array, "/")
    faults.add(
        pc.and_(pc.invert(address), pc.greater(size, MAX_DESTINATION_BYTES)),
        f"destination has more than {MAX_DESTINATION_BYTES} bytes",
    )
    faults.add(
        pc.and_(address, pc.greater(size, MAX_ADDRESS_BYTES)),
        f"destination is an address of more than {MAX_ADDRESS_BYTES} bytes",
    )
    _check_characters(array, "destination", faults)
    faults.add(pc.match_substring_regex(array, r"\p{Cc}"), "destination contains a control character")


def _check_characters(array: pa.Array, name: str, faults: Faults) -> None:
    faults.add(pc.equal(pc.binary_length(array), 0), f"{name} is empty")
    faults.add(pc.match_substring(array, "\0"), f"{name} contains a NUL character")


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def known_zones(column: pa.Array, faults: Faults) -> pa.Array:
    """The names of time zones in a text column, with null in place of unknown ones."""
    return by_value(readable(column, "time zone", faults), _known_zone, pa.string(), faults)


def _known_zone(name: str) -> str:
    try:
        zone(name)
    except ConfigurationError:
        raise UnfitValueError("time zone is unknown; write it as in Europe/Berlin or UTC") from None
    return name


# Local times, which mean an instant only together with a time zone: some come twice, some never.

MICROSECOND: Final = timedelta(microseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = (EARLIEST_DUE_TIME - EPOCH) // MICROSECOND
LATEST: Final = (LATEST_DUE_TIME - EPOCH) // MICROSECOND
"""The range of a due time, in microseconds after 1970."""
SKIPPED: Final = "due_time does not exist: the clocks of its time zone skip it"
TWICE: Final = "due_time is ambiguous: the clocks of its time zone bring it twice (see the option ambiguousTime)"
OUT_OF_RANGE: Final = "due_time is out of range"
_LOCAL_EPOCH: Final = EPOCH.replace(tzinfo=None)
_HOUR: Final = timedelta(hours=1) // MICROSECOND
_DAY: Final = 24 * _HOUR


@dataclass(frozen=True, slots=True)
class LocalClock:
    """The clocks of a time zone. Instants are microseconds after 1970."""

    time_zone: str
    ambiguous: AmbiguousTime

    def instant(self, local: datetime) -> int:
        """When the clocks show `local`, which is naive; UnfitValueError if never, or twice without a choice."""
        aware = local.replace(tzinfo=zone(self.time_zone), fold=0)
        first, second = aware.utcoffset(), aware.replace(fold=1).utcoffset()
        assert first is not None
        assert second is not None
        if first < second:
            raise UnfitValueError(SKIPPED)
        if first > second and self.ambiguous is AmbiguousTime.REJECT:
            raise UnfitValueError(TWICE)
        offset = second if self.ambiguous is AmbiguousTime.LATEST else first
        return (local - _LOCAL_EPOCH - offset) // MICROSECOND

    def instants(self, local: pa.Array, faults: Faults) -> pa.Array:
        """As `instant`, of microseconds on the clocks: hour by hour, and one by one in an hour when clocks change."""
        outside = pc.or_(pc.less(local, EARLIEST - _DAY), pc.greater(local, LATEST + _DAY))
        faults.add(outside, OUT_OF_RANGE)
        local = pc.if_else(outside, pa.scalar(None, pa.int64()), local)
        hours = pc.divide(pc.subtract(local, EARLIEST - _DAY), _HOUR).dictionary_encode()
        offsets = pa.array([self._offset(hour) for hour in hours.dictionary.to_pylist()], pa.int64())
        instants = pc.subtract(local, offsets.take(hours.indices))
        changing = pc.if_else(instants.is_null(), local, pa.scalar(None, pa.int64()))
        return pc.coalesce(instants, by_value(changing, self._shown, pa.int64(), faults))

    def _shown(self, local: int) -> int:
        return self.instant(_LOCAL_EPOCH + local * MICROSECOND)

    def _offset(self, hour: int) -> int | None:
        """Microseconds that the clocks are ahead of UTC in that hour since the year 1. None: they are changed in it."""
        begin = datetime(1, 1, 1, tzinfo=zone(self.time_zone)) + hour * timedelta(hours=1)
        end = begin + timedelta(hours=1) - MICROSECOND
        offsets = {at.replace(fold=fold).utcoffset() for at in (begin, end) for fold in (0, 1)}
        offset = offsets.pop()
        return None if offsets or offset is None else offset // MICROSECOND


# Arrow values as the Python values that message headers and JSON are made of, whatever is in the memory.


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that Python has no value for: bytes that are no UTF-8, a time out of its range; `text` shows it."""

    text: str


def values(array: pa.Array) -> list[Any]:
    """By row; None for null. Instants are in UTC; a struct's fields that are null are left out, a map's are kept."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(array)
    if pa.types.is_timestamp(kind):
        return _times(array, EPOCH if kind.tz is not None else EPOCH.replace(tzinfo=None))
    if pa.types.is_time64(kind):
        return list(array.cast(pa.time64("us"), safe=False).to_pylist())
    if pa.types.is_date32(kind):
        return list(array.cast(pa.string()).to_pylist())
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        keys, items = values(array.keys), values(array.items)
        return [span if span is None else {keys[i]: items[i] for i in span} for span in _spans(array)]
    if pa.types.is_list(kind):
        items = values(array.values)
        return [span if span is None else items[span.start : span.stop] for span in _spans(array)]
    if pa.types.is_float32(kind):
        array = array.cast(pa.string()).cast(pa.float64())  # 0.1 stays 0.1
    return list(array.to_pylist())


def _texts(array: pa.Array) -> list[Any]:
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:
        return [None if value is None else _text(value) for value in array.cast(pa.large_binary()).to_pylist()]


def _text(value: bytes) -> str | Unreadable:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Unreadable(value.decode(errors="replace"))


def _times(array: pa.Array, epoch: datetime) -> list[Any]:
    found: list[Any] = []
    for value in array.cast(pa.int64()).to_pylist():
        try:
            found.append(None if value is None else epoch + value * MICROSECOND)
        except OverflowError:
            found.append(Unreadable(f"{value} microseconds after 1970"))
    return found


def _structs(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [values(child) for child in array.flatten()]
    rows = zip(*columns, strict=True) if columns else (() for _ in range(len(array)))
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None} if valid else None
        for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)
    ]


def _spans(array: pa.Array) -> Iterator[range | None]:
    """Which of its children each row has."""
    offsets = array.offsets.to_pylist()
    for row, valid in enumerate(array.is_valid().to_pylist()):
        yield range(offsets[row], offsets[row + 1]) if valid else None


# Arrow values as JSON texts, column-wise: tagged as the store's codec writes headers, or plain as people read it.

_NEEDS_ESCAPING: Final = r"[^ !#-\[\]-~]"
_EMPTY_NAME: Final = len('{"":')


class Encoding(ABC):
    """How values become JSON."""

    def texts(self, array: pa.Array) -> tuple[pa.Array, pa.Array | None]:
        """The JSON text of each value (null for null), and a mask of the values that have none. None: all have one."""
        kind = array.type
        if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind):
            return array.cast(pa.string()), None
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return (self._strings(array), None) if not_utf8(array) is None else self._one_by_one(array)
        if pa.types.is_floating(kind):
            return self._floats(array), None
        return self._one_by_one(array)

    @abstractmethod
    def quoted(self, text: str) -> str:
        """The JSON text of a string."""

    @abstractmethod
    def text(self, value: Any) -> str:
        """The JSON text of one of `values.values`; UnfitValueError if it has none."""

    def _strings(self, array: pa.Array) -> pa.Array:
        array = array.cast(pa.string())
        if pc.any(pc.match_substring_regex(array, _NEEDS_ESCAPING)).as_py():
            quoted = self.quoted
            return pa.array([None if text is None else quoted(text) for text in array.to_pylist()], pa.string())
        return pc.binary_join_element_wise('"', array, '"', "")

    def _floats(self, array: pa.Array) -> pa.Array:
        text = self.text
        return pa.array([None if value is None else text(value) for value in array.to_pylist()], pa.string())

    def _one_by_one(self, array: pa.Array) -> tuple[pa.Array, pa.Array | None]:
        texts, reasons = each(values(array), self.text)
        unfit = pa.array([reason is not None for reason in reasons]) if any(reasons) else None
        return pa.array(texts, pa.string()), unfit


class Tagged(Encoding):
    """As `codec.encode_mapping` writes mappings that `message.check_headers` allows; ASCII."""

    @override
    def quoted(self, text: str) -> str:
        return encode_basestring_ascii(text)

    @override
    def text(self, value: Any) -> str:
        header = {"": value}
        try:
            check_headers(header)
            encoded = encode_mapping(header)
        except (InvalidMessageError, RecursionError):
            raise UnfitValueError("a value no header can hold") from None
        assert encoded is not None
        return encoded[_EMPTY_NAME:-1]

    @override
    def _floats(self, array: pa.Array) -> pa.Array:
        """Encodes all as one text, and splits it: its only commas are those between numbers."""
        encoded = encode_mapping({"": array.to_pylist()})
        assert encoded is not None
        texts = pa.array(encoded[_EMPTY_NAME + 1 : -2].split(",") if len(array) else [], pa.string())
        return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


class Portable(Tagged):
    """As Tagged, but in the types that every transport carries unchanged, at the price of being text.

    Numbers with a fraction are texts such as 1.5, and times, dates and intervals ISO 8601 (instants in UTC): AMQP's
    times have no fractions of a second and its decimals 32 bits, and of its floats clients in Python make whole
    numbers.
    """

    @override
    def text(self, value: Any) -> str:
        return super().text(_portable(value))

    @override
    def _floats(self, array: pa.Array) -> pa.Array:
        return pa.array([None if value is None else f'"{float_text(value)}"' for value in values(array)], pa.string())


class Plain(Encoding):
    """As people and programs in other languages read it.

    Bytes are base64, times ISO 8601 (instants in UTC), intervals seconds, decimals numbers, and NaN and the infinities
    strings, as Spark's own to_json has them. `lenient`: a value without a text is described instead.
    """

    def __init__(self, *, lenient: bool = False) -> None:
        self._lenient = lenient

    @override
    def quoted(self, text: str) -> str:
        """As json.dumps, and not limited to ASCII."""
        return encode_basestring(text)

    @override
    def text(self, value: Any) -> str:
        return json_of(value, self._described)

    def _described(self, value: Any) -> str:
        if isinstance(value, Unreadable) and not self._lenient:
            raise UnfitValueError("a value no JSON can hold")
        return value.text if isinstance(value, Unreadable) else str(value)


def _portable(value: Any) -> Any:
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"PT{Decimal(value // MICROSECOND).scaleb(-6).normalize():f}S"
    if isinstance(value, dict):
        return {name: _portable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_portable(item) for item in value]
    return value


# The entries of JSON objects: by row, `,"name":value` one after another. Null or empty: there is none.
#
# Arrow (26) drops rows whose values are all null where it joins with null_handling="skip", so that is not used here.

_NO_TEXT: Final = pa.scalar(None, pa.string())


def of_columns(
    names: Sequence[str], columns: Sequence[pa.Array], encoding: Encoding, *, nulls: bool
) -> tuple[pa.Array, pa.Array | None]:
    """One entry for each column, and the rows with a value that has no text. `nulls`: those are written, too."""
    entries, unfit = [], None
    for name, column in zip(names, columns, strict=True):
        texts, bad = encoding.texts(column)
        unfit = either(unfit, bad)
        entry = pc.binary_join_element_wise(f",{encoding.quoted(name)}:", pc.fill_null(texts, "null"), "")
        entries.append(entry if nulls else pc.if_else(texts.is_valid(), entry, ""))
    return joined(entries), unfit


def of_maps(array: pa.Array, encoding: Encoding) -> tuple[pa.Array, pa.Array | None]:
    """The entries of each map, null values among them; and the rows with a name or value that has no text."""
    names, bad_names = encoding.texts(array.keys)
    texts, bad_values = encoding.texts(array.items)
    entries = pc.binary_join_element_wise(",", pc.fill_null(names, '""'), ":", pc.fill_null(texts, "null"), "")
    rows = pc.binary_join(pa.ListArray.from_arrays(array.offsets, entries), "")
    unfit = either(bad_names, bad_values)
    return pc.if_else(array.is_valid(), rows, _NO_TEXT), None if unfit is None else any_of_row(array, unfit)


def any_of_row(array: pa.Array, entries: pa.Array) -> pa.Array:
    """The rows of a list or map array for one of whose children `entries` is true."""
    offsets = array.offsets.to_pylist()
    return pa.array([pc.any(entries.slice(a, b - a)).as_py() is True for a, b in pairwise(offsets)])


def either(left: pa.Array | None, right: pa.Array | None) -> pa.Array | None:
    """Both masks, where None is false everywhere."""
    if left is None or right is None:
        return right if left is None else left
    return pc.or_(left, right)


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Entries after entries."""
    return pc.binary_join_element_wise(*(pc.fill_null(part, "") for part in parts), "")


def braced(entries: pa.Array) -> pa.Array:
    """The objects; null for those without entries."""
    objects = pc.replace_substring(pc.binary_join_element_wise(entries, "}", ""), ",", "{", max_replacements=1)
    return pc.if_else(pc.fill_null(pc.equal(entries, ""), True), pa.scalar(None, pa.string()), objects)
