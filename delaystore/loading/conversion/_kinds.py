"""Which types can be in headers, and which in JSON."""

from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.loading.conversion.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

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
