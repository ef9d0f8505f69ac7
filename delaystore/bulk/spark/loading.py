"""Files of messages, loaded by Spark."""

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
from pyspark import InheritableThread
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from delaystore.bulk.columns import FILE, REASON, UNREADABLE
from delaystore.bulk.conversion import Conversion, plan_conversion
from delaystore.bulk.csv_files import COMMA, CsvForm, separator_line_error
from delaystore.bulk.files import DataFiles, Kind, bytes_a_row, can_be_checked, check_files
from delaystore.bulk.json_lines import RAW, WHY, names_of, read_keys, read_lines
from delaystore.bulk.preview import MINUTES, counts_of, minutes_of, preview_of
from delaystore.bulk.rejects import Reason, Rejects, count_rejects
from delaystore.bulk.request import DryRun, LoadReport, LoadRequest, report_of
from delaystore.bulk.rows import OTHER_COLUMNS, renamed
from delaystore.bulk.spark._columns import arrow_column, column_of, fields_of
from delaystore.bulk.spark._errors import plain_error, plain_errors
from delaystore.bulk.staging import open_load_store
from delaystore.errors import ConfigurationError, StoreSetupError
from delaystore.stores import open_store
from delaystore.stores.abc import ManagedDelayedMessageStore

# Files as DataFrames whose columns are a message's.

_LINE: Final = "_delaystore_line"
_FILE: Final = "_delaystore_file"
_EMPTY: Final = "\0_delaystore_empty"
"""A quoted field with nothing in it, which Spark would make null, as it does one without quotes."""
_CSV: Final = {
    "header": "true",
    "enforceSchema": "false",  # each file's header is compared, for columns are read by their order
    "multiLine": "true",  # a quoted line end is no end
    "escape": '"',  # RFC 4180
}
_REPLACED: Final = "\ufffd"
"""What Spark makes of bytes that are no UTF-8."""
_BYTES_A_TASK: Final = 32 * 1024 * 1024
_BATCH: Final = 16 * 1024 * 1024
_ARROW_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_ARROW_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PARQUET_ROWS: Final = "spark.sql.parquet.columnarReaderBatchSize"
_NUMBER: Final = re.compile(r"(-?\d+)b?$", re.IGNORECASE)
"""The unit of a limit that is written without one."""


@contextmanager
def limited_batches(spark: SparkSession, files: DataFiles) -> Iterator[None]:
    """For the block, let no batch of rows be much larger than _BATCH bytes; a session's smaller limits stay.

    Spark counts rows alone where it reads Parquet: 4,096 of a megabyte each are 4 GB of Java's memory.
    """
    rows = max(1, _BATCH // max(1, bytes_a_row(files) or 1))
    limits = {_ARROW_BYTES: _BATCH, _ARROW_ROWS: rows, _PARQUET_ROWS: rows}
    before = {name: spark.conf.get(name, None) for name in limits}
    try:
        for name, limit in limits.items():
            found = _NUMBER.match(before[name] or "0")
            if found is not None and not 0 < int(found[1]) <= limit:
                spark.conf.set(name, limit)
        yield
    finally:
        with suppress(Exception):  # Java has gone, perhaps, and what the block raised says so
            for name, value in before.items():
                if value is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, value)


def read_files(spark: SparkSession, files: DataFiles, mapping: Mapping[str, str]) -> DataFrame:
    """The rows of the files; `mapping`: the file's column of a message's column.

    CSV and JSON give text alone; of JSON, objects and arrays are their text. A line that cannot be
    read becomes a row that the writer rejects, with the line as its body if there is such a column. Of several files,
    each row has its file's name in the column FILE.
    Raises ConfigurationError for files that cannot be read, or that lack a column of the mapping.
    """
    try:
        frame = _READERS[files.kind](spark, files)
    except AnalysisException as error:
        raise ConfigurationError(f"the files cannot be read: {str(error).splitlines()[0]}") from None
    names = [name for name in frame.columns if name not in (RAW, WHY, _FILE)]
    read = renamed(names, mapping)
    columns = {new: column_of(frame, old) for old, new in read}
    if files.kind is Kind.CSV:
        texts = {new for old, new in read if frame.schema[old].dataType == StringType()}
        columns = {name: _field(column, name) if name in texts else column for name, column in columns.items()}
    if files.kind is not Kind.PARQUET:
        columns = _texts(frame, columns)
    if files.are_several:
        columns[FILE] = frame[_FILE]
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def _named(frame: DataFrame, files: DataFiles) -> DataFrame:
    """With each row's file, where there are several."""
    return frame.withColumn(_FILE, frame.metadataColumn("_metadata")["file_path"]) if files.are_several else frame


def _csv(spark: SparkSession, files: DataFiles) -> DataFrame:
    form = check_files(files).form or CsvForm(files.separator or COMMA)
    unchecked = files.elsewhere or not all(map(can_be_checked, files.local))
    options = {**_CSV, "sep": form.separator, "encoding": form.encoding}
    if form.line_end is not None and not unchecked:
        options["lineSep"] = form.line_end  # where Spark finds the line ends itself, it makes a CR LF in quotes LF
    names = spark.read.options(**options).csv(list(files.paths)).columns
    if names and names[0].lower().startswith("sep="):
        raise separator_line_error()
    reader = spark.read.options(**options, columnNameOfCorruptRecord=RAW, emptyValue=_EMPTY)
    frame = _named(reader.csv(list(files.paths), all_text([*names, RAW])), files)
    why = sf.when(frame[RAW].isNotNull(), sf.lit(OTHER_COLUMNS))
    if unchecked:
        texts = [column_of(frame, name) for name, kind in frame.dtypes if kind == "string" and name != _FILE]
        replaced = reduce(or_, (sf.coalesce(column.contains(_REPLACED), sf.lit(False)) for column in texts))
        why = sf.when(replaced, sf.lit("the line is not UTF-8, or holds U+FFFD")).otherwise(why)
    frame = frame.withColumn(WHY, why)
    tasks = files.size // _BYTES_A_TASK
    # a CSV file is read by one task, which may meet a quoted line end anywhere
    return frame.repartition(tasks) if tasks > len(files.paths) else frame


def _json(spark: SparkSession, files: DataFiles) -> DataFrame:
    """Reads the lines twice: first for the columns alone, since any line may have a new one."""
    lines = spark.read.schema(all_text([_LINE])).text(list(files.paths))
    folders = [name for name in lines.columns if name != _LINE]
    if folders:  # day=01 is text, too
        lines = spark.read.schema(all_text([_LINE, *folders])).text(list(files.paths))
    lines = _named(lines, files)
    taken = {name.lower() for name in (*folders, RAW, WHY)}
    names = [name for name in _keys(lines) if name.lower() not in taken]
    kind = ArrayType(all_text([*names, RAW, WHY]))
    rows = arrow_column(lambda values: read_lines(values, names), _bytes(lines), kind)
    others = [*folders, _FILE] if files.are_several else folders
    return lines.select(sf.inline(rows), *(column_of(lines, name) for name in others))


def _keys(lines: DataFrame) -> list[str]:
    """The keys of all lines, sorted. ConfigurationError where no line can be read, or two differ but in case."""
    keys = arrow_column(read_keys, _bytes(lines), ArrayType(all_text(["key", "why"])))
    found = lines.select(sf.inline(keys)).distinct().collect()
    return names_of(
        (row["key"] for row in found if row["key"] is not None), (row["why"] for row in found if row["why"] is not None)
    )


def _parquet(spark: SparkSession, files: DataFiles) -> DataFrame:
    return _named(spark.read.options(mergeSchema="true").parquet(*files.paths), files)


_READERS: Final = {Kind.CSV: _csv, Kind.JSON: _json, Kind.PARQUET: _parquet}


def _bytes(lines: DataFrame) -> Column:
    """The lines as they are in the file: Spark does not check that its texts are UTF-8."""
    return lines[_LINE].cast("binary")


def all_text(names: Sequence[str]) -> StructType:
    """Columns of these names, all text."""
    return StructType([StructField(name, StringType()) for name in names])


def _field(column: Column, name: str) -> Column:
    """The column of a CSV file: an empty field in quotes is an empty body, and null in all other columns."""
    return sf.when(column == _EMPTY, "" if name.lower() == "body" else None).otherwise(column)


def _texts(frame: DataFrame, columns: dict[str, Column]) -> dict[str, Column]:
    """`columns`, with why a line was not readable, and with that line as the body."""
    by_field = {name.lower(): name for name in columns}
    if body := by_field.get("body"):
        columns[body] = sf.coalesce(frame[RAW], columns[body])
    return {**columns, UNREADABLE: frame[WHY]}


# Running a job of Spark's while the main thread watches it.

ResultT = TypeVar("ResultT")
_logger = logging.getLogger(__name__)
_INTERVAL: Final = 0.2
_OF_GROUP: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@dataclass(frozen=True, slots=True)
class Tasks:
    """How far a job is; `total` grows as Spark begins new stages, and is 0 before the first."""

    done: int
    total: int


class Watcher(Protocol):
    """Called with how far the job is; returns whether to stop it."""

    def watch(self, tasks: Tasks) -> bool:
        """Called every fifth of a second, in a thread of its own. True: cancel running jobs."""


def run_watched(spark: SparkSession, action: Callable[[], ResultT], watcher: Watcher) -> ResultT:
    """`action()`, in the caller's thread: in another, Spark would not know the session's data sources.

    Cancelling ends Spark's tasks; what Spark calls on the driver (the promotion of a load) is waited for.
    """
    group = f"delaystore-load-{uuid.uuid4()}"
    context = spark.sparkContext
    ended = threading.Event()

    def watch() -> None:
        try:
            while not ended.wait(_INTERVAL):
                if watcher.watch(_tasks(spark, group)):
                    context.cancelJobGroup(group)
        except Exception:  # Java has gone, perhaps, and then `action` says so
            _logger.info("the load is no longer watched", exc_info=True)

    thread = InheritableThread(watch, name="delaystore-load-watch", daemon=True)
    context.setJobGroup(group, "delaystore load", interruptOnCancel=True)
    thread.start()
    try:
        return action()
    finally:
        ended.set()
        thread.join()
        for name in _OF_GROUP:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it


def _tasks(spark: SparkSession, group: str) -> Tasks:
    status = spark.sparkContext.statusTracker()
    jobs = [status.getJobInfo(job) for job in status.getJobIdsForGroup(group)]
    stages = [status.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return Tasks(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))


# Files into a store, by Spark.


def load(spark: SparkSession, request: LoadRequest, watcher: Watcher) -> LoadReport:
    """Load the files; all of them or nothing. `spark`: the format is registered there.

    Raises ConfigurationError, RejectedRowsError, DuplicateMessageError and the other kin of LoadError and StoreError.
    """
    clock = time.monotonic()
    with plain_errors(), limited_batches(spark, request.files):
        run_watched(spark, lambda: _write(spark, request), watcher)
    return report_of(request, time.monotonic() - clock)


def _write(spark: SparkSession, request: LoadRequest) -> None:
    frame = read_files(spark, request.files, request.mapping)
    frame.write.format("delaystore").options(**request.options_to_write()).mode("append").save()


# What a load would do: everything is converted and checked, and nothing is written.

_CHECKED: Final = all_text(["message_id", "destination", "reason", "example"]).add("minute", LongType())


def dry_run(
    spark: SparkSession, request: LoadRequest, watcher: Watcher, *, stored: bool = True, duplicates: bool = True
) -> DryRun:
    """The result that `load` would have. Raises as `load`.

    `stored`: whether there is a store to ask, too. `duplicates`: whether to look for duplicates.
    """
    clock = time.monotonic()

    def run() -> DryRun:
        frame = read_files(spark, request.files, request.mapping)
        conversion = plan_conversion(fields_of(frame.schema), request.given, datetime.now(UTC))
        checked = _checked(frame, conversion)
        if not duplicates:
            return _counted(request, checked, (None, 0, (), ()), clock, stored=stored)
        checked = checked.persist()
        try:
            return _counted(request, checked, _duplicates(spark, request, checked, stored=stored), clock, stored=stored)
        finally:
            checked.unpersist()

    with plain_errors(), limited_batches(spark, request.files):
        return run_watched(spark, run, watcher)


_Duplicates = tuple[int | None, int | None, tuple[str, ...], tuple[str, ...]]
"""Rows whose id came before, and ids that wait; None each: not known. Examples of each."""


def _duplicates(spark: SparkSession, request: LoadRequest, checked: DataFrame, *, stored: bool) -> _Duplicates:
    good = checked.where("reason is null")
    several = good.groupBy("message_id").count().where("count > 1")
    twice = several.agg(sf.sum(sf.col("count") - 1).alias("count"), _some("message_id")).first()
    waiting, waits = _waiting(spark, request, good) if stored else (0, ())
    return twice["count"] or 0 if twice else 0, waiting, tuple(twice["some"] if twice else ()), tuple(waits)


def _counted(
    request: LoadRequest, checked: DataFrame, duplicates: _Duplicates, clock: float, *, stored: bool
) -> DryRun:
    """Spark counts rows by destination and minute, or by the reason of their rejection; only these come here."""
    counted = checked.groupBy(*MINUTES, "reason").agg(sf.count(sf.lit(1)).alias("count"), _some("example")).collect()
    counts = counts_of((*(row[name] for name in MINUTES), row["count"]) for row in counted if row["reason"] is None)
    bad = {row["reason"]: Reason(row["count"], tuple(row["some"])) for row in counted if row["reason"] is not None}
    twice, waiting, twice_examples, waiting_examples = duplicates
    with closing(open_load_store(request.given)) as store:
        return DryRun(
            given=request.given,
            messages=sum(sum(numbers.values()) for numbers in counts.values()),
            rejects=Rejects(bad),
            twice=twice,
            waiting=waiting,
            twice_examples=twice_examples,
            waiting_examples=waiting_examples,
            preview=preview_of(counts, store.store if stored else None),
            seconds=time.monotonic() - clock,
        )


def _checked(frame: DataFrame, conversion: Conversion) -> DataFrame:
    """A row of _CHECKED for each row, though in another order."""

    def check(rows: pa.Array) -> pa.Array:
        converted = conversion.convert(pa.RecordBatch.from_struct_array(rows))
        bad = 0 if converted.rejected is None else converted.rejected.num_rows
        reasons = [] if converted.rejected is None else converted.rejected.column(REASON).to_pylist()
        left = {text: list(reason.examples) for text, reason in count_rejects(converted.rejected).reasons.items()}
        examples = [left[text].pop(0) if left[text] else None for text in reasons]
        good = converted.staged.num_rows
        columns = [
            *(
                pa.concat_arrays([converted.staged.column(name), pa.nulls(bad, pa.string())])
                for name in ("message_id", "destination")
            ),
            pa.array([*(None for _ in range(good)), *reasons], pa.string()),
            pa.array([*(None for _ in range(good)), *examples], pa.string()),
            pa.concat_arrays([minutes_of(converted.staged.column("due_time")), pa.nulls(bad, pa.int64())]),
        ]
        return pa.StructArray.from_arrays(columns, names=_CHECKED.names)

    every = sf.struct(*(column_of(frame, name) for name in frame.columns))
    return frame.select(arrow_column(check, every, _CHECKED).alias("row")).select("row.*")


def _waiting(spark: SparkSession, request: LoadRequest, good: DataFrame) -> tuple[int | None, Sequence[str]]:
    """How many ids wait in the store already, and some of them; None: the store cannot list its messages."""
    with closing(open_store(request.given.store)) as store:
        if not isinstance(store, ManagedDelayedMessageStore):
            return None, ()
    try:
        waiting = spark.read.format("delaystore").options(**request.options_to_read()).load().select("message_id")
        both = good.select("message_id").distinct().join(waiting, "message_id", "left_semi")
        found = both.agg(sf.count(sf.lit(1)).alias("count"), _some("message_id")).first()
    except Exception as error:
        if isinstance(plain_error(error), StoreSetupError):  # it has no tables yet
            return 0, ()
        raise
    assert found is not None
    return found["count"], found["some"]


def _some(column: str) -> Any:
    return sf.array_compact(sf.array(sf.min(column), sf.max(column))).alias("some")
