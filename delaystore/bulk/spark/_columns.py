"""Columns of DataFrames, and Spark's types as those that rows are planned by."""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from pyspark import sql
from pyspark.sql import types as spark
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its home is a star import
from pyspark.sql.types import DataType

from delaystore.bulk import columns as ours

# Columns of DataFrames.


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


# Spark's types as those that rows are planned by.

_SIMPLE: Final[Sequence[tuple[type[spark.DataType], type[ours.DataType]]]] = (
    (spark.NullType, ours.NullType),
    (spark.BooleanType, ours.BooleanType),
    (spark.IntegralType, ours.IntegralType),
    (spark.DecimalType, ours.DecimalType),
    (spark.FractionalType, ours.FractionalType),
    (spark.StringType, ours.StringType),
    (spark.BinaryType, ours.BinaryType),
    (spark.TimestampType, ours.TimestampType),
    (spark.TimestampNTZType, ours.TimestampNTZType),
    (spark.DateType, ours.DateType),
    (spark.TimeType, ours.TimeType),
    (spark.DayTimeIntervalType, ours.DayTimeIntervalType),
)


def fields_of(kind: spark.StructType) -> Sequence[ours.ColumnField]:
    """The columns of a schema."""
    return tuple(ours.ColumnField(field.name, _type_of(field.dataType)) for field in kind.fields)


def _type_of(kind: spark.DataType) -> ours.DataType:
    name = kind.simpleString()
    if isinstance(kind, spark.StructType):
        return ours.StructType(name, fields_of(kind))
    if isinstance(kind, spark.ArrayType):
        return ours.ArrayType(name, _type_of(kind.elementType))
    if isinstance(kind, spark.MapType):
        return ours.MapType(name, _type_of(kind.keyType), _type_of(kind.valueType))
    return next((made for theirs, made in _SIMPLE if isinstance(kind, theirs)), ours.DataType)(name)
