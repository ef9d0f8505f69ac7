"""Columns of DataFrames, and Spark's types as Arrow's."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyspark import sql
from pyspark.sql import types as spark
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its home is a star import
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType


def column_of(frame: sql.DataFrame, name: str) -> sql.Column:
    """The column of exactly that name: dots and backticks in it are nothing but letters."""
    return frame["`" + name.replace("`", "``") + "`"]


def arrow_column(convert: Callable[[pa.Array], pa.Array], column: sql.Column, to: DataType) -> sql.Column:
    """The result of `convert` for a column's values, which it gets batch by batch in Spark's Python workers."""

    # The annotations tell Spark what kind of function it is. It is no mapInArrow, which asks for pandas.
    def converted(values: pa.Array) -> pa.Array:
        return convert(values)

    made: sql.Column = arrow_udf(converted, to)(column)
    return made


# Spark's types as Arrow's, by which rows are planned.

_PLAIN: Final = (
    spark.NullType,
    spark.BooleanType,
    spark.IntegralType,
    spark.FractionalType,
    spark.StringType,
    spark.BinaryType,
    spark.TimestampType,
    spark.TimestampNTZType,
    spark.DateType,
    spark.TimeType,
    spark.DayTimeIntervalType,
)


def fields_of(kind: spark.StructType) -> pa.Schema:
    """Return the columns of a schema; a type that no message can hold is an opaque one of Spark's name for it."""
    return pa.schema(_type_of(kind))


def _type_of(kind: spark.DataType) -> pa.DataType:
    if isinstance(kind, spark.StructType):
        return pa.struct([(field.name, _type_of(field.dataType)) for field in kind.fields])
    if isinstance(kind, spark.ArrayType):
        return pa.list_(_type_of(kind.elementType))
    if isinstance(kind, spark.MapType):
        return pa.map_(_type_of(kind.keyType), _type_of(kind.valueType))
    if isinstance(kind, _PLAIN):
        return to_arrow_type(kind, timezone="UTC")
    return pa.opaque(pa.null(), kind.simpleString(), "spark")
