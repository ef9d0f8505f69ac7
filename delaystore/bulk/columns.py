"""Columns of rows and of messages: their types, and which types can be in what."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import Integer
from sqlalchemy.types import TypeEngine

from delaystore.errors import ConfigurationError
from delaystore.message import MAX_KEY_BYTES
from delaystore.stores.sql.codec import COLUMNS, MESSAGE_KEY, SENT, Body, ExactText, Json, MessageColumn, UtcDateTime

# Types of columns of all readers. They have Spark's names for them, since errors show Spark's names to users.


@dataclass(frozen=True, slots=True)
class DataType:
    """A type; one that is none of the others below can be in no message. `name`: as SQL writes it, such as bigint."""

    name: str


class NullType(DataType):
    """Of a column that only has null."""


class BooleanType(DataType):
    """True or false."""


class IntegralType(DataType):
    """Whole numbers of any width."""


class FractionalType(DataType):
    """Floats, and decimals."""


class DecimalType(FractionalType):
    """Decimals."""


class StringType(DataType):
    """Text."""


class BinaryType(DataType):
    """Bytes."""


class TimestampType(DataType):
    """Instants."""


class TimestampNTZType(DataType):
    """Local times, without a time zone."""


class DateType(DataType):
    """Days."""


class TimeType(DataType):
    """Times of day."""


class DayTimeIntervalType(DataType):
    """Intervals of days to seconds."""


@dataclass(frozen=True, slots=True)
class ArrayType(DataType):
    """Lists."""

    element: DataType


@dataclass(frozen=True, slots=True)
class MapType(DataType):
    """Maps."""

    key: DataType
    value: DataType


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A column, or a field of a struct."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class StructType(DataType):
    """Structs."""

    fields: Sequence[ColumnField]


def texts(names: Sequence[str]) -> Iterator[ColumnField]:
    """Columns of text of these names."""
    return (ColumnField(name, StringType("string")) for name in names)


# Messages in Arrow's memory, in the columns of the store.

_TYPES: Final[Mapping[type[TypeEngine[Any]], pa.DataType]] = {
    ExactText: pa.string(),
    Json: pa.string(),
    UtcDateTime: pa.timestamp("us", "UTC"),
    Integer: pa.int32(),
    Body: pa.binary(),
}


def _schema(columns: Iterable[MessageColumn]) -> pa.Schema:
    return pa.schema([pa.field(column.name, _TYPES[type(column.type)], column.nullable) for column in columns])


MESSAGES: Final = _schema(COLUMNS)
"""Messages as they wait. `headers` and `properties` are text as the SQL store's codec writes it; null: none."""
STAGED: Final = _schema((*SENT, MessageColumn(MESSAGE_KEY, ExactText(MAX_KEY_BYTES), nullable=True)))
"""New messages, checked, on their way from Spark to a store; their keys last, null: none."""

# Which columns rows have, in any case and order.

MESSAGE_COLUMNS: Final = (*(column.name for column in SENT), "delay", "body_base64")
UNREADABLE: Final = "delaystore_unreadable"
"""The column that says why a row of a file or export could not be read: it is rejected for that. Null: it could."""
_NAMED: Final = 10
"""Columns named in an error."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the rows have it."""

    index: int
    name: str
    type: DataType

    def wrong(self, do: str) -> ConfigurationError:
        """The error for its type; `do`: what helps."""
        return ConfigurationError(f"column {self.name} is {self.type.name}: {do}")


class Columns:
    """The columns of a schema by name; ConfigurationError if two have the same but for case."""

    def __init__(self, schema: Sequence[ColumnField]) -> None:
        found: dict[str, Column] = {}
        for index, field in enumerate(schema):
            column = Column(index, field.name, field.type)
            other = found.setdefault(field.name.lower(), column)
            if other is not column:
                raise ConfigurationError(
                    f"columns {other.name} and {column.name} have one name but for case; rename or drop one"
                )
        self._by_name: Mapping[str, Column] = found

    def get(self, name: str) -> Column | None:
        """The column; None: there is none."""
        return self._by_name.get(name.lower())

    def unknown(self) -> Iterator[Column]:
        """Those that are not a message's, in order."""
        return (column for name, column in self._by_name.items() if name not in (*MESSAGE_COLUMNS, UNREADABLE))

    def __str__(self) -> str:
        return listed([column for name, column in self._by_name.items() if name != UNREADABLE])


def listed(columns: list[Column]) -> str:
    """Their names and types."""
    named = ", ".join(f"{_shown(column.name)} ({column.type.name})" for column in columns[:_NAMED])
    return f"{named} and {len(columns) - _NAMED} more" if len(columns) > _NAMED else named


def _shown(name: str) -> str:
    """In quotes where it would be taken for another one: a space before or behind it, or a tab in it."""
    return name if name.isprintable() and name == name.strip() else repr(name)


# Which types can be in headers, and which in JSON.

_HEADERS: Final = (
    NullType, BooleanType, IntegralType, FractionalType, StringType, BinaryType, TimestampType,
)  # fmt: skip
_JSON: Final = (*_HEADERS, DateType, TimestampNTZType, DayTimeIntervalType, TimeType)
_KEYS: Final = (
    StringType, IntegralType, BooleanType, BinaryType, DecimalType, DateType, TimestampType, TimestampNTZType,
)  # fmt: skip


def check_header_type(kind: DataType, path: str) -> None:
    """ConfigurationError, naming `path`, for a type that no message header can hold."""
    _check(kind, path, _HEADERS, "which no message header can hold; cast it to string, or timestamp")


def check_json_type(kind: DataType, path: str) -> None:
    """ConfigurationError, naming `path`, for a type that has no JSON here."""
    _check(kind, path, _JSON, "which has no JSON; cast it to string")


def check_key_type(kind: DataType, path: str) -> None:
    """ConfigurationError, naming `path`, for a type whose values are not exact, or of many parts."""
    if not isinstance(kind, _KEYS):
        raise ConfigurationError(
            f"key column {path} is {kind.name}, which ids cannot be derived from; cast it to string"
        )


def _check(kind: DataType, path: str, allowed: tuple[type[DataType], ...], otherwise: str) -> None:
    if isinstance(kind, ArrayType):
        _check(kind.element, f"{path}[]", allowed, otherwise)
    elif isinstance(kind, MapType) and isinstance(kind.key, StringType):
        _check(kind.value, f"{path}[]", allowed, otherwise)
    elif isinstance(kind, StructType):
        check_fields(kind, path)
        for field in kind.fields:
            _check(field.type, f"{path}.{field.name}", allowed, otherwise)
    elif not isinstance(kind, allowed):
        raise ConfigurationError(f"column {path} is {kind.name}, {otherwise}")


def check_fields(kind: StructType, path: str) -> None:
    """ConfigurationError for two fields of one name."""
    names = [field.name for field in kind.fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"column {path} has two fields {name}; rename or drop one")
