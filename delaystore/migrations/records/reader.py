"""From records to messages: which column is which field, and how it is read."""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from delaystore.errors import InvalidMessageError
from delaystore.message import PROPERTY_TYPES, DelayedMessage
from delaystore.migrations.records import nservicebus
from delaystore.migrations.records.nservicebus import AddressRule, as_it_is
from delaystore.migrations.records.times import MILLISECONDS, UNITS, Delays, DueTimes
from delaystore.text import JsonError, parse_json

# Which column of a record is which field of a message.

FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "message_id": "its id; without one, a line gets an id made of what it holds",
        "destination": "where it goes",
        "due_time": "when it is due",
        "sent_time": "when it was sent; with delay_ms, in place of due_time",
        "delay_ms": "milliseconds from sent_time to the due time",
        "body": "its body as text (Parquet: or bytes)",
        "body_base64": "its body in base64, in place of body",
        "body_json": "its body as a JSON value, in place of body",
        "headers": "its headers, an object or JSON text",
        "properties": "its AMQP properties, an object or JSON text",
        "endpoint": "the endpoint it belongs to",
        "saga_id": "the saga that waits; with nservicebus",
        **{name: f"the AMQP property {name}" for name in PROPERTY_TYPES},
    }
)
"""The fields to which a column can be mapped."""
CONSTANT: Final = "="
"""The prefix of a value for all records, which is given in place of a column's name."""


@dataclass(frozen=True, slots=True)
class RecordMapping:
    """How records become messages.

    `columns`: the column of each field (one of FIELDS): its name, or names joined by dots where columns are nested;
    after `=` a value for all records. `nservicebus`: the headers are NServiceBus', and have the id and the
    properties; `address`: the meaning of a destination then. `delays`: how those of `delay_ms` are read.
    """

    columns: Mapping[str, str]
    due_times: DueTimes
    nservicebus: bool = False
    address: AddressRule = as_it_is
    delays: Delays = MILLISECONDS


# Values of records as JSON that any parser takes (RFC 8259).


def json_text(value: Any) -> str:
    """The JSON text of a value of JSON's types or Parquet's, as a bulk load writes bodies.

    Bytes are base64, times ISO 8601 (instants in UTC), durations seconds, decimals numbers, UUIDs text, and NaN and the
    infinities, which JSON does not have, the strings "NaN", "Infinity" and "-Infinity". Names of other types are
    written as the values would be. Raises InvalidMessageError for any other value, and for values that are nested
    too deeply.
    """
    try:
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError):  # it holds what JSON does not have
            return json_of(value, _refused)
    except RecursionError:
        raise InvalidMessageError("its body is nested too deeply") from None


def json_of(value: Any, other: Callable[[Any], str]) -> str:
    """Return the JSON text of a value, as `json_text` does.

    Args:
        value: The value.
        other: Makes the text, to be quoted, of a value whose type `json_text` does not know.

    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'"{float_text(value)}"'
    if isinstance(value, timedelta):
        return repr(value.total_seconds())
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_name(name, other)}:{json_of(item, other)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(json_of(item, other) for item in value) + "]"
    return encode_basestring(_written(value, other))


def float_text(value: float) -> str:
    """Return the shortest text that is read as this number; NaN, Infinity or -Infinity where JSON has no number."""
    if math.isfinite(value):
        return repr(value)
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _name(name: Any, other: Callable[[Any], str]) -> str:
    text = json_of(name, other)
    return text if text.startswith('"') else encode_basestring(text)


def _written(value: Any, other: Callable[[Any], str]) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return _in_utc(value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else other(value)


def _refused(value: Any) -> str:
    raise InvalidMessageError(f"its body holds a {type(value).__name__}, which JSON cannot")


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError:  # at the ends of what Python has
        return value


# From records to messages.


class RecordReader:
    """Reads records as `mapping` says. A record has a value for each column, of JSON's types or Parquet's."""

    def __init__(self, mapping: RecordMapping) -> None:
        self._mapping = mapping

    def message(self, number: int, record: Mapping[str, Any]) -> DelayedMessage:
        """The message of the record of that number (in its file).

        Raises InvalidMessageError with the fault, and DeliveredAtOnceError where it has arrived.
        """
        if self._mapping.nservicebus:
            return self._of_nservicebus(number, record)
        return DelayedMessage(
            message_id=self._message_id(number, record),
            destination=self._destination(record),
            due_time=self._due_time(record),
            body=self._body(record),
            headers=self._mapping.delays.headers(_mapping(self._value(record, "headers"), "headers")),
            properties=self._properties(record),
        )

    def endpoint(self, record: Mapping[str, Any]) -> str | None:
        """The endpoint that the record names; None: it names none."""
        value = self._value(record, "endpoint")
        return None if value is None else str(value)

    def _of_nservicebus(self, number: int, record: Mapping[str, Any]) -> DelayedMessage:
        return nservicebus.message(
            row_id=self._message_id(number, record),
            to=self._destination(record),
            due_time=self._due_time(record),
            state=self._body(record),
            headers=nservicebus.parse_json_headers(self._value(record, "headers")),
            saga_id=self._value(record, "saga_id"),
            address=self._mapping.address,
        )

    def _value(self, record: Mapping[str, Any], field: str) -> Any:
        """The record's value of `field`. None: it has none."""
        column = self._mapping.columns.get(field)
        if column is None:
            return None
        if column.startswith(CONSTANT):
            return column.removeprefix(CONSTANT)
        return _nested(record, column)

    def _message_id(self, number: int, record: Mapping[str, Any]) -> Any:
        """The record's own; else one made of its number and its content, the same at every run."""
        value = self._value(record, "message_id")
        if value is None:
            return str(UUID(bytes=blake2b(_digested([number, record]).encode(), digest_size=16).digest(), version=5))
        return str(value) if type(value) in (int, UUID) else value

    def _destination(self, record: Mapping[str, Any]) -> str:
        value = self._value(record, "destination")
        if value is None:
            raise InvalidMessageError(f"it has no destination ({self._where('destination')})")
        if type(value) is not str:
            raise InvalidMessageError(f"its destination is of the type {type(value).__name__}, not text")
        return value

    def _due_time(self, record: Mapping[str, Any]) -> datetime:
        due, sent = self._value(record, "due_time"), self._value(record, "sent_time")
        if due is None and sent is not None:
            return self._mapping.delays.due_time(self._mapping.due_times.parse(sent), self._value(record, "delay_ms"))
        if due is None:
            raise InvalidMessageError(f"it has no due time ({self._where('due_time', 'sent_time')})")
        return self._mapping.due_times.parse(due)

    def _body(self, record: Mapping[str, Any]) -> bytes:
        found = {name: self._value(record, name) for name in ("body", "body_base64", "body_json")}
        given = [(name, value) for name, value in found.items() if value is not None]
        if not given:
            return b""
        if len(given) > 1:
            raise InvalidMessageError(f"it has two bodies ({' and '.join(name for name, _ in given)})")
        ((name, value),) = given
        if name == "body_json":
            return _utf8(json_text(value))
        return _decoded(value) if name == "body_base64" else _plain(value)

    def _properties(self, record: Mapping[str, Any]) -> dict[str, Any]:
        properties = _mapping(self._value(record, "properties"), "properties")
        single = {name: self._value(record, name) for name in PROPERTY_TYPES if name in self._mapping.columns}
        properties |= {name: value for name, value in single.items() if value is not None}
        return {name: self._property(name, value) for name, value in properties.items()}

    def _property(self, name: str, value: Any) -> Any:
        """In the type that AMQP gives the property, where the value can be read in one way only."""
        expected = PROPERTY_TYPES.get(name)
        if expected is datetime:  # of AMQP, which counts seconds
            times = self._mapping.due_times
            return replace(times, unit=times.unit or UNITS["s"]).parse(value)
        if expected is str and type(value) is int:
            return str(value)
        if expected is int and type(value) is str and value.isascii() and value.isdigit():
            return int(value)
        return value

    def _where(self, *fields: str) -> str:
        columns = [self._mapping.columns[field] for field in fields if field in self._mapping.columns]
        return f"looked for in {' and '.join(map(repr, columns))}"


def _digested(value: Any) -> str:
    """Text that is the same for the same value."""
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except TypeError:  # names that are no text, in a map of Parquet's
        return json_text(value)


def _nested(value: Any, column: str) -> Any:
    """The value at a name with dots. A column's own name may have dots, too, such as those of .NET headers."""
    if not isinstance(value, Mapping):
        return None
    if column in value:
        return value[column]
    outer = column
    while "." in outer:
        outer = outer.rpartition(".")[0]
        if outer in value:
            return _nested(value[outer], column[len(outer) + 1 :])
    return None


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if isinstance(value, str) and value.strip():
        try:
            value = parse_json(value)
        except JsonError as error:
            raise InvalidMessageError(f"the text of its {what} {error}") from None
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise InvalidMessageError(f"its {what} are no object")
    return dict(value)


def _decoded(value: Any) -> bytes:
    try:
        text = value.decode("ascii") if isinstance(value, bytes) else value
        return b64decode("".join(text.split()), validate=True)
    except (ValueError, AttributeError):
        raise InvalidMessageError("its body is no base64") from None


def _plain(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _utf8(value)
    kind = "number" if isinstance(value, int | float | Decimal) else type(value).__name__
    raise InvalidMessageError(f"its body is a {kind}, not text; body_json=COLUMN takes any JSON value")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidMessageError("its body holds half a surrogate pair, which UTF-8 cannot") from None
