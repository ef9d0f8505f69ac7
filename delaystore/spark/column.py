"""Columns of a DataFrame by what they are called."""

from pyspark.sql import Column, DataFrame


def column_of(frame: DataFrame, name: str) -> Column:
    """The column of exactly that name: dots and backticks in it are nothing but letters."""
    return frame["`" + name.replace("`", "``") + "`"]
