"""Columns of DataFrames."""

from collections.abc import Callable

import pyarrow as pa
from pyspark import sql
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its home is a star import
from pyspark.sql.types import DataType


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
