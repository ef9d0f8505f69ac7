"""Types of columns, whoever reads them. They are named as Spark names its own, whose words people see in errors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


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
class Field:
    """A column, or a field of a struct."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class StructType(DataType):
    """Structs."""

    fields: Sequence[Field]


def texts(names: Sequence[str]) -> Iterator[Field]:
    """Columns of text of these names."""
    return (Field(name, StringType("string")) for name in names)
