"""Columns of rows and of messages: their types, and which types can be in what."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import types
from sqlalchemy import Integer
from sqlalchemy.types import TypeEngine

from delaystore.errors import ConfigurationError
from delaystore.message import MAX_KEY_BYTES
from delaystore.stores.sql.codec import (
    COLUMNS,
    MESSAGE_KEY,
    NOT_AFTER,
    SENT,
    Body,
    ExactText,
    Json,
    MessageColumn,
    UtcDateTime,
)

# Columns of rows have Arrow's types, whichever reader they come from. Errors show Spark's names of them to users.

_NAMES: Final[Mapping[pa.DataType, str]] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.time64("us"): "time(6)",
    pa.time64("ns"): "time(6)",
    pa.duration("us"): "interval day to second",
}


def type_name(kind: pa.DataType) -> str:
    """Return a type's name as Spark's SQL writes it, such as bigint."""
    if is_instant(kind):
        return "timestamp"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in kind)}>"
    if types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if isinstance(kind, pa.OpaqueType):
        return str(kind.type_name)
    return _NAMES.get(kind, str(kind))


def is_instant(kind: pa.DataType) -> bool:
    """Whether values are instants: times with a time zone."""
    return types.is_timestamp(kind) and kind.tz is not None


def is_local_time(kind: pa.DataType) -> bool:
    """Whether values are dates with a time of day, without a time zone."""
    return types.is_timestamp(kind) and kind.tz is None


def text_columns(names: Sequence[str]) -> pa.Schema:
    """Return columns of text of these names."""
    return pa.schema([(name, pa.string()) for name in names])


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


_LIMIT: Final = MessageColumn(NOT_AFTER, UtcDateTime(), nullable=True)
MESSAGES: Final = _schema((*COLUMNS, _LIMIT))
"""Messages as they wait. `headers` and `properties` are text as the SQL store's codec writes it; null: none."""
STAGED: Final = _schema((*SENT, MessageColumn(MESSAGE_KEY, ExactText(MAX_KEY_BYTES), nullable=True), _LIMIT))
"""New messages, checked, on their way from Spark to a store; their keys and latest deliveries last, null: none."""

# Which columns rows have, in any case and order.

MAX_LATE: Final = "max_late"
"""The column of the latest delivery in seconds after the due time."""
MESSAGE_COLUMNS: Final = (*(column.name for column in SENT), "delay", "body_base64", NOT_AFTER, MAX_LATE)
UNREADABLE: Final = "delaystore_unreadable"
"""The column that says why a row of a file or export could not be read: it is rejected for that. Null: it could."""
REASON: Final = "_reason"
"""The last column of rejected rows."""
LINE: Final = "_line"
"""The column of a row's line in its file; of a workbook, its row in the sheet."""
FILE: Final = "_file"
"""The column of a row's file, where a load has several."""
FIRST_AT: Final = "; first at line "
"""In a reason, before the line of another row; reasons are counted without it."""
OF_REJECTS: Final = frozenset({REASON, LINE, FILE})
"""Columns that a file of rejected rows has beside the input's: no load takes them for a message's, or unknown."""
_OURS: Final = OF_REJECTS | {UNREADABLE}
_NAMED: Final = 10
"""Columns named in an error."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the rows have it."""

    index: int
    name: str
    type: pa.DataType

    def wrong(self, do: str) -> ConfigurationError:
        """The error for its type; `do`: what helps."""
        return ConfigurationError(f"column {self.name} is {type_name(self.type)}: {do}")


class Columns:
    """The columns of a schema by name; ConfigurationError if two differ only in case."""

    def __init__(self, schema: pa.Schema) -> None:
        found: dict[str, Column] = {}
        for index, field in enumerate(schema):
            column = Column(index, field.name, field.type)
            other = found.setdefault(field.name.lower(), column)
            if other is not column:
                raise ConfigurationError(
                    f"columns {other.name} and {column.name} differ only in case; rename or drop one"
                )
        self._by_name: Mapping[str, Column] = found

    def get(self, name: str) -> Column | None:
        """The column; None: there is none."""
        return self._by_name.get(name.lower())

    def unknown(self) -> Iterator[Column]:
        """Columns that are not a message's, in order."""
        return (column for name, column in self._by_name.items() if name not in (*MESSAGE_COLUMNS, *_OURS))

    def __str__(self) -> str:
        return listed([column for name, column in self._by_name.items() if name not in _OURS])


def listed(columns: list[Column]) -> str:
    """Their names and types."""
    named = ", ".join(f"{_shown(column.name)} ({type_name(column.type)})" for column in columns[:_NAMED])
    return f"{named} and {len(columns) - _NAMED} more" if len(columns) > _NAMED else named


def _shown(name: str) -> str:
    """In quotes where it would be taken for another one: a space before or behind it, or a tab in it."""
    return name if name.isprintable() and name == name.strip() else repr(name)


# Which types can be in headers, which in JSON, and of which ids can be made.

_Predicate = Callable[[pa.DataType], bool]
_HEADERS: Final[Sequence[_Predicate]] = (
    types.is_null,
    types.is_boolean,
    types.is_integer,
    types.is_floating,
    types.is_decimal,
    types.is_string,
    types.is_binary,
    is_instant,
)
_JSON: Final = (*_HEADERS, types.is_date, types.is_time, types.is_duration, is_local_time)
_NESTED: Final = (types.is_struct, types.is_map, types.is_list)
_KEYS: Final = (
    types.is_string,
    types.is_integer,
    types.is_boolean,
    types.is_binary,
    types.is_decimal,
    types.is_date,
    types.is_timestamp,
)


def is_known(kind: pa.DataType) -> bool:
    """Whether some message can hold values of the type, or of its parts."""
    return _is_any(kind, (*_JSON, *_NESTED))


def check_header_type(kind: pa.DataType, path: str) -> None:
    """Raise ConfigurationError, naming `path`, for a type that no message header can hold."""
    _check(kind, path, _HEADERS, "which no message header can hold; cast it to string, or timestamp")


def check_header_column(kind: pa.DataType, path: str) -> None:
    """As `check_header_type`, for a column that becomes a header: dates, times and intervals become text."""
    _check(kind, path, _JSON, "which no message header can hold; cast it to string, or timestamp")


def check_json_type(kind: pa.DataType, path: str) -> None:
    """Raise ConfigurationError, naming `path`, for a type that has no JSON here."""
    _check(kind, path, _JSON, "which has no JSON; cast it to string")


def check_key_type(kind: pa.DataType, path: str) -> None:
    """Raise ConfigurationError, naming `path`, for a type whose values are not exact, or of many parts."""
    if not _is_any(kind, _KEYS):
        raise ConfigurationError(
            f"id column {path} is {type_name(kind)}, which ids cannot be derived from; cast it to string"
        )


def _check(kind: pa.DataType, path: str, allowed: Sequence[_Predicate], otherwise: str) -> None:
    if types.is_list(kind):
        _check(kind.value_type, f"{path}[]", allowed, otherwise)
    elif types.is_map(kind) and types.is_string(kind.key_type):
        _check(kind.item_type, f"{path}[]", allowed, otherwise)
    elif types.is_struct(kind):
        check_fields(kind, path)
        for field in kind:
            _check(field.type, f"{path}.{field.name}", allowed, otherwise)
    elif not _is_any(kind, allowed):
        raise ConfigurationError(f"column {path} is {type_name(kind)}, {otherwise}")


def check_fields(kind: pa.StructType, path: str) -> None:
    """Raise ConfigurationError for two fields of one name."""
    names = [field.name for field in kind]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"column {path} has two fields {name}; rename or drop one")


def _is_any(kind: pa.DataType, predicates: Iterable[_Predicate]) -> bool:
    return any(is_such(kind) for is_such in predicates)
