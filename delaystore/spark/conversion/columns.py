"""Which columns a DataFrame has, in any case and order."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import sql
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its home is a star import
from pyspark.sql.types import DataType, StructType

from delaystore.errors import ConfigurationError
from delaystore.sql.columns import SENT

MESSAGE_COLUMNS: Final = (*(column.name for column in SENT), "delay")
UNREADABLE: Final = "delaystore_unreadable"
"""The column that says why a row of a file or export could not be read: it is rejected for that. Null: it could."""
_NAMED: Final = 10
"""Columns named in an error."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the DataFrame has it."""

    index: int
    name: str
    type: DataType

    def wrong(self, do: str) -> ConfigurationError:
        """The error for its type; `do`: what helps."""
        return ConfigurationError(f"column {self.name} is {self.type.simpleString()}: {do}")


class Columns:
    """The columns of a schema by name; ConfigurationError if two have the same but for case."""

    def __init__(self, schema: StructType) -> None:
        found: dict[str, Column] = {}
        for index, field in enumerate(schema.fields):
            column = Column(index, field.name, field.dataType)
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
    named = ", ".join(f"{column.name} ({column.type.simpleString()})" for column in columns[:_NAMED])
    return f"{named} and {len(columns) - _NAMED} more" if len(columns) > _NAMED else named


def column_of(frame: sql.DataFrame, name: str) -> sql.Column:
    """The column of exactly that name: dots and backticks in it are nothing but letters."""
    return frame["`" + name.replace("`", "``") + "`"]


def arrow_column(convert: Callable[[pa.Array], pa.Array], column: sql.Column, to: DataType) -> sql.Column:
    """What `convert` makes of a column's values, which it gets batch by batch in Spark's Python workers."""

    # The annotations tell Spark what kind of function it is. It is no mapInArrow, which asks for pandas.
    def converted(values: pa.Array) -> pa.Array:
        return convert(values)

    made: sql.Column = arrow_udf(converted, to)(column)
    return made
