"""Files as DataFrames whose columns are a message's, or say so in an error."""

from collections.abc import Mapping
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from delaystore.errors import ConfigurationError
from delaystore.spark.column import column_of
from delaystore.spark.conversion.columns import UNREADABLE
from delaystore.spark.loading.files import DataFiles, Kind
from delaystore.spark.loading.mapping import renamed

_BROKEN: Final = "_delaystore_broken_record"
"""Where Spark puts a line that it cannot read."""
_CSV: Final = {
    "header": "true",
    "enforceSchema": "false",  # each file's header is compared, for columns are read by their place
    "multiLine": "true",  # a quoted line end is no end
    "escape": '"',  # RFC 4180
    "encoding": "UTF-8",
}
_BYTES_A_TASK: Final = 32 * 1024 * 1024


def read_files(spark: SparkSession, files: DataFiles, mapping: Mapping[str, str]) -> DataFrame:
    """The rows of the files; `mapping`: the file's column of a message's column.

    CSV and JSON give text alone; of JSON, objects and arrays are their text. A line that cannot be
    read becomes a row that the writer rejects, with the line as its body if there is such a column.
    Raises ConfigurationError for files that cannot be read, or that lack a column of the mapping.
    """
    try:
        frame = _READERS[files.kind](spark, files)
    except AnalysisException as error:
        raise ConfigurationError(f"the files cannot be read: {str(error).splitlines()[0]}") from None
    names = [name for name in frame.columns if name != _BROKEN]
    if not names:
        raise ConfigurationError("the files have no rows")
    columns = {new: column_of(frame, old) for old, new in renamed(names, mapping)}
    if files.kind is not Kind.PARQUET:
        columns = _texts(frame, columns)
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def _csv(spark: SparkSession, files: DataFiles) -> DataFrame:
    names = spark.read.options(**_CSV).csv(list(files.paths)).columns
    frame = spark.read.options(**_CSV, columnNameOfCorruptRecord=_BROKEN).csv(list(files.paths), _all_text(names))
    tasks = files.size // _BYTES_A_TASK
    # a CSV file is read by one task, which may meet a quoted line end anywhere
    return frame.repartition(tasks) if tasks > len(files.paths) else frame


def _json(spark: SparkSession, files: DataFiles) -> DataFrame:
    """Read twice: the first time for the columns alone, of which any line may have a new one."""
    names = spark.read.options(primitivesAsString="true", columnNameOfCorruptRecord=_BROKEN).json(list(files.paths))
    kept = [name for name in names.columns if name != _BROKEN]
    return spark.read.options(columnNameOfCorruptRecord=_BROKEN).json(list(files.paths), _all_text(kept))


def _parquet(spark: SparkSession, files: DataFiles) -> DataFrame:
    return spark.read.options(mergeSchema="true").parquet(*files.paths)


_READERS: Final = {Kind.CSV: _csv, Kind.JSON: _json, Kind.PARQUET: _parquet}


def _all_text(names: list[str]) -> StructType:
    return StructType([StructField(name, StringType()) for name in (*names, _BROKEN)])


def _texts(frame: DataFrame, columns: dict[str, Column]) -> dict[str, Column]:
    """With why a line was not readable."""
    by_field = {name.lower(): name for name in columns}
    why = sf.when(frame[_BROKEN].isNotNull(), sf.lit("the line is not readable, or has other columns"))
    if body := by_field.get("body"):
        columns[body] = sf.coalesce(frame[_BROKEN], columns[body])
    return {**columns, UNREADABLE: why}
